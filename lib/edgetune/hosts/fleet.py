# SPDX-License-Identifier: Apache-2.0
"""Asks the agent on many hosts at once: one SSH connection and one round trip for each."""

from __future__ import annotations

import json
import socket
import time
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

import paramiko

from edgetune import AGENT_PROTOCOL
from edgetune.config import Config
from edgetune.errors import HostError
from edgetune.hosts.agent import bundle
from edgetune.hosts.result import HostResult
from edgetune.hosts.ssh_files import load_key, load_known_hosts
from edgetune.inventory import Host

MAX_REPLY = 4 << 20
_AGAIN = 1.0

# The agent keeps its source: to act after a reboot it has to stay on the host.
BOOTSTRAP = (
    "python3 -I -S -c 'import sys, zlib; i = sys.stdin.buffer; "
    "source = zlib.decompress(i.read(int(i.readline()))); "
    'exec(compile(source, "edgetune-agent", "exec"))\''
)


def packed(source: bytes) -> bytes:
    """A program as BOOTSTRAP reads it; what the program itself reads comes after it."""
    data = zlib.compress(source)
    return b"%d\n%s" % (len(data), data)


class Fleet:
    """Hosts reached over SSH with verified host keys, ``config.ssh_threads`` at a time."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._agent = packed(bundle.make())
        self._key = load_key(config.ssh_key_file)
        self._known = load_known_hosts(config.ssh_known_hosts)

    def ask(
        self,
        hosts: Sequence[Host],
        verb: str,
        request: Callable[[Host], Mapping[str, Any]],
        timeout: float = 60,
        patience: float = 0,
    ) -> dict[str, HostResult]:
        """Send ``verb`` to every host with its own request; failures are data, not exceptions.

        ``timeout`` (s) bounds the agent's work on one host; connecting has its own, so a dead
        host costs one ``ssh_timeout`` of one thread. For ``patience`` (s, of the whole call) a
        host that cannot be reached is asked again.
        """
        if not hosts:
            return {}
        end = time.monotonic() + patience

        def ask_until(host: Host) -> HostResult:
            while True:
                result = self._ask_one(host, verb, request(host), timeout)
                if result.reason != "unreachable" or time.monotonic() + _AGAIN > end:
                    return result
                time.sleep(_AGAIN)

        with ThreadPoolExecutor(min(self._config.ssh_threads, len(hosts))) as pool:
            return {result.host: result for result in pool.map(ask_until, hosts)}

    def _ask_one(
        self, host: Host, verb: str, request: Mapping[str, Any], timeout: float
    ) -> HostResult:
        document = dict(request, protocol=AGENT_PROTOCOL, verb=verb)
        try:
            return _read_reply(host.name, verb, self._round_trip(host, document, timeout))
        except HostError as error:
            return HostResult(host.name, error=str(error), reason="garbage")
        except (OSError, paramiko.SSHException, EOFError) as error:
            text = str(error) or type(error).__name__
            return HostResult(host.name, error=f"{host.address}: {text}", reason="unreachable")

    def _round_trip(self, host: Host, document: Mapping[str, Any], timeout: float) -> bytes:
        body = json.dumps(document).encode()
        with paramiko.SSHClient() as client:
            self._connect(client, host)
            transport = client.get_transport()
            if transport is None:
                raise HostError(f"{host.address}: the connection closed at once")
            channel = transport.open_session(timeout=self._config.ssh_timeout)
            channel.settimeout(timeout)
            channel.exec_command(BOOTSTRAP)
            _send_all(channel, self._agent + body)
            return _read_all(channel, time.monotonic() + timeout, host)

    def _connect(self, client: paramiko.SSHClient, host: Host) -> None:
        # The client knows no key itself: a client with all of known_hosts reads them squared.
        trusted = self._known.keys_of(host.address, host.port)
        client.set_missing_host_key_policy(trusted)
        limit = self._config.ssh_timeout
        sock = socket.create_connection((host.address, host.port), limit)
        # Without this every connection waits for two delayed acknowledgements of 40 ms.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.connect(
            host.address,
            host.port,
            self._config.ssh_user,
            pkey=self._key,
            sock=sock,
            timeout=limit,
            banner_timeout=limit,
            auth_timeout=limit,
            allow_agent=False,
            look_for_keys=False,
            transport_factory=trusted.transport,
        )


def _send_all(channel: paramiko.Channel, data: bytes) -> None:
    """All of it, or as much as the program read that has ended: its answer says why."""
    try:
        channel.sendall(data)
        channel.shutdown_write()
    except OSError as error:
        if isinstance(error, socket.timeout) or not channel.closed:
            raise


def _read_all(channel: paramiko.Channel, deadline: float, host: Host) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        chunk = channel.recv(65536)
        if not chunk:
            break
        parts.append(chunk)
        size += len(chunk)
        if size > MAX_REPLY:
            raise HostError(f"{host.address}: answered more than {MAX_REPLY} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError("the agent did not finish in time")
    if not b"".join(parts).rstrip().endswith(b"}") and _was_cut_off(channel):
        raise ConnectionError("the connection broke before the answer was through")
    if not parts:
        raise HostError(f"{host.address}: no answer: {_stderr_line(channel)}")
    return b"".join(parts)


def _was_cut_off(channel: paramiko.Channel) -> bool:
    """Whether the other end went away: a program that ended says with what status."""
    channel.status_event.wait(_AGAIN)
    return channel.exit_status == -1


def _stderr_line(channel: paramiko.Channel) -> str:
    text = channel.recv_stderr(4096).decode("utf-8", "replace").strip()
    return text.splitlines()[-1][:200] if text else "the agent ended without a word"


def _read_reply(host: str, verb: str, raw: bytes) -> HostResult:
    try:
        reply = json.loads(raw)
    except (ValueError, RecursionError):
        raise HostError(f"{host}: the answer is not the agent's: {raw[:60]!r}") from None
    if not isinstance(reply, dict) or reply.get("edgetune") != AGENT_PROTOCOL:
        raise HostError(f"{host}: edgetune: the answer does not speak protocol {AGENT_PROTOCOL}")
    if reply.get("verb") != verb:
        raise HostError(f"{host}: verb: the answer is not to {verb!r}")
    if reply.get("ok") is True and isinstance(reply.get("result"), dict):
        return HostResult(host, data=_checked(host, verb, reply["result"]))
    error = reply.get("error")
    if reply.get("ok") is not False or not isinstance(error, dict):
        raise HostError(f"{host}: ok: the answer has neither a result nor an error")
    message = ": ".join(str(part) for part in (error.get("field"), error.get("message")) if part)
    return HostResult(host, error=message, reason=str(error.get("reason")))


# What the steps of a rollout read of an answer, by verb.
_ROWS = {
    "plan": "settings",
    "verify": "settings",
    "confirm": "settings",
    "apply": "diff",
    "restore": "diff",
    "sample": "drift",
}
_ROW_FIELDS = {
    "plan": ("id", "status", "runtime", "persistent", "wanted"),
    "sample": ("tuning", "id", "runtime", "persistent", "wanted", "reason"),
}
_MAPPINGS = {"sample": ("counters", "gauges")}


def _checked(host: str, verb: str, result: dict[str, Any]) -> dict[str, Any]:
    """The result; HostError names the first field that is missing or of the wrong kind."""
    rows = result.get(_ROWS[verb]) if verb in _ROWS else []
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise HostError(f"{host}: result.{_ROWS[verb]}: must be a list of mappings")
    for row in rows:
        for name in _ROW_FIELDS.get(verb, ()):
            if name not in row:
                raise HostError(f"{host}: result.{_ROWS[verb]}: {name} is missing")
    for name in _MAPPINGS.get(verb, ()):
        values = result.get(name)
        if not isinstance(values, dict) or not all(map(_is_number, values.values())):
            raise HostError(f"{host}: result.{name}: must be a mapping of numbers")
    for name, is_right, what in (*_SINGLE.get(verb, ()), ("boot_id", _is_text, "text")):
        if not is_right(result.get(name)):
            raise HostError(f"{host}: result.{name}: must be {what}")
    return result


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_state(value: Any) -> bool:
    tunings = value.get("tunings") if isinstance(value, dict) else None
    return isinstance(tunings, dict) and all(isinstance(own, dict) for own in tunings.values())


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _are_findings(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_finding, value))


def _is_finding(value: Any) -> bool:
    """As ``findings.words`` of the agent makes them."""
    return (
        isinstance(value, dict)
        and all(_is_text(value.get(name)) for name in ("finding", "what", "measure"))
        and value.get("severity") in ("helps", "conflict", "note")
        and (value.get("tuning") is None) != _is_text(value.get("tuning"))
        and isinstance(value.get("numbers"), dict)
        and value["measure"] in value["numbers"]
        and all(number is not None and _is_number(number) for number in value["numbers"].values())
    )


_SINGLE: Mapping[str, Sequence[tuple[str, Callable[[Any], bool], str]]] = {
    "facts": [("agent_state", _is_state, "a mapping with one of tunings")],
    "ready": [("sessions", lambda value: isinstance(value, int), "a whole number")],
    "sample": [("uptime", lambda value: isinstance(value, (int, float)), "a number")],
    "diagnose": [
        ("findings", _are_findings, "a list of findings"),
        (
            "unread",
            lambda value: isinstance(value, list) and all(map(_is_text, value)),
            "a list of texts",
        ),
        ("tunings", lambda value: isinstance(value, dict), "a mapping"),
    ],
}
