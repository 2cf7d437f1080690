# SPDX-License-Identifier: Apache-2.0
"""The service's health check, asked on the host that serves."""

import http.client
import io
import socket
import time
from types import SimpleNamespace
from typing import Any, Dict, Optional, Tuple
from urllib.parse import urlsplit

from edgetune.agent.protocol import Request

TIMEOUT = 2.0
URL = r"https?://[A-Za-z0-9.:\[\]-]+([/?][!-~]*)?"
NAME = r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?"
_LONGEST_REASON = 100
_PIECE = 65536


class HealthCheck:
    """A URL, the name that the service is asked for ("" for the URL's), and how TLS is verified.

    ``asked`` says all of it in a line.
    """

    def __init__(self, url: str, name: str = "", insecure: bool = False) -> None:
        """ValueError where the URL names no host or no port."""
        parts = urlsplit(url)
        if not parts.hostname:
            raise ValueError("names no host")
        tls = parts.scheme == "https"
        usual = 443 if tls else 80
        self.asked = f"{url} {name} {'insecure' if insecure else ''}".rstrip()
        self._address = (parts.hostname, parts.port or usual)
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._name = name or parts.hostname
        self._host_header = name or _host_header(parts.hostname, parts.port, usual)
        self._context = _tls_context(insecure) if tls else None

    def measure(self, count: int) -> Tuple[Dict[str, float], str]:
        """Ask a number of times, each over another connection.

        Gauges, with the times in ms of those that went well, and what the first that did not
        go well was seen to do ("" if all did).
        """
        asked = [self.ask() for _ in range(count)]
        well = sorted(taken for taken, _ in asked if taken is not None)
        gauges: Dict[str, float] = {"health_failed": (count - len(well)) / count} if count else {}
        if well:
            gauges["health_slowest_ms"] = round(well[-1], 3)
        for share in (50, 95, 99) if well else ():
            # Nearest rank: the smallest time that so many per cent do not exceed.
            rank = max(-(-share * len(well) // 100), 1)
            gauges[f"health_p{share}_ms"] = round(well[rank - 1], 3)
        return gauges, next((seen for taken, seen in asked if taken is None), "")

    def ask(self) -> Tuple[Optional[float], str]:
        """The time of one good answer in ms; or None, and what was seen instead of one."""
        started = time.monotonic()
        try:
            with self._connect() as connected:
                seen = self._converse(connected, started + TIMEOUT)
        # In Python 3.6 the wrong name in a certificate is a ValueError.
        except (OSError, http.client.HTTPException, ValueError) as error:
            seen = _seen(error)
        return (None, seen) if seen else ((time.monotonic() - started) * 1000, "")

    def _converse(self, connected: socket.socket, end: float) -> str:
        """What is wrong with the answer, "" for nothing."""
        connection: Any = http.client.HTTPConnection(*self._address)
        # As much of a socket as it needs. It closes before it has read the body: not yet.
        connection.sock = SimpleNamespace(
            sendall=connected.sendall,
            makefile=lambda mode: io.BufferedReader(_Answer(connected, end)),
            close=lambda: None,
        )
        headers = {"Host": self._host_header, "Connection": "close"}
        connection.request("GET", self._path, headers=headers)
        answer = connection.getresponse()
        while answer.read(_PIECE):
            pass
        if answer.length:
            return "breaks off in the middle of its answer"
        if 200 <= answer.status < 300:
            return ""
        return f"answers {answer.status} {_shown(answer.reason)}".rstrip()

    def _connect(self) -> socket.socket:
        plain = socket.create_connection(self._address, TIMEOUT)
        if self._context is None:
            return plain
        try:
            wrapped: socket.socket = self._context.wrap_socket(plain, server_hostname=self._name)
            return wrapped
        except BaseException:
            plain.close()
            raise


class _Answer(io.RawIOBase):
    """What a service says, until one deadline: one that drips would hold the agent for good."""

    def __init__(self, connected: socket.socket, end: float) -> None:
        super().__init__()
        self._connected, self._end = connected, end

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """The next bytes; ``socket.timeout`` once the deadline is over."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise socket.timeout()
        self._connected.settimeout(left)
        return self._connected.recv_into(buffer)


def read_health_check(request: Request) -> HealthCheck:
    """The check that a request describes."""
    url = request.text("health_url", URL)
    name = request.optional("health_name", NAME)
    insecure = request.optional("health_tls", "insecure") is not None
    try:
        return HealthCheck(url, name or "", insecure)
    except ValueError as error:
        raise request.wrong("health_url", str(error)) from None


def _host_header(name: str, port: Optional[int], usual: int) -> str:
    bracketed = f"[{name}]" if ":" in name else name
    return bracketed if port in (None, usual) else f"{bracketed}:{port}"


def _tls_context(insecure: bool) -> Any:
    # Only where it is needed: the import takes longer than all else that a sample does.
    import ssl

    context = ssl.create_default_context()
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _seen(error: Exception) -> str:
    """What a service did that gave no answer in HTTP."""
    if isinstance(error, socket.timeout):
        return f"gives no answer within {TIMEOUT:g} s"
    if isinstance(error, ConnectionRefusedError):
        return "refuses the connection"
    if isinstance(error, ConnectionError):
        return "closes the connection without an answer"
    if isinstance(error, socket.gaierror):
        return f"names a host that cannot be found: {_shown(error.strerror)}"
    if type(error).__module__ == "ssl":
        return f"fails in TLS: {_tls_failure(error)}"
    if isinstance(error, OSError):
        return f"cannot be reached: {_shown(error.strerror or error)}"
    return f"does not answer in HTTP: {type(error).__name__}"


def _tls_failure(error: Exception) -> str:
    why = getattr(error, "verify_message", "")
    if why:
        return f"certificate verify failed: {_shown(why)}"
    reason = getattr(error, "reason", None)
    return _shown(str(reason).replace("_", " ").lower() if reason else error)


def _shown(text: object) -> str:
    """What a stranger said, in one short line."""
    line = "".join(char if char.isprintable() else " " for char in str(text))
    return line[:_LONGEST_REASON].strip()
