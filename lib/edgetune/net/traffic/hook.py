# SPDX-License-Identifier: Apache-2.0
"""Drivers that have an operator's own hook do it, be that a program or a service.

A hook tells its servers as one JSON document::

    {"servers": [{"name": "e01", "withdrawn": "", "up": true, "sessions": 3}], "refuses": ""}

A server has the fields of ``Server`` up to ``leaving``, and ``idle``. ``name``, ``withdrawn``,
``up`` and ``sessions`` have to be there, for what is absent would read as "serves" or "carries
nothing". ``refuses`` is why a change would be refused. A hook gets the command to ``withdraw``,
``isolate`` or ``restore`` a server, and may get it again. What its document shows then decides
whether it was done. One that shows the ``weight`` of a server gets ``weigh``, too.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Callable

from edgetune.base import clock
from edgetune.base.errors import DrainError, InputError
from edgetune.base.fields import Fields
from edgetune.net.traffic.driver import HEAVIEST, DrainDriver, Server

TIMEOUT = 30.0
"""Seconds until a call is over, whatever the hook does meanwhile."""
POLL = 0.2

_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}"
_WORD = r"([A-Za-z0-9][A-Za-z0-9_.:-]{0,63})?"
_REASON = r"[ -~]{0,100}"
_READY = "ready"
_OUT: tuple[str, Callable[[Server], bool]] = ("withdrawn", lambda now: bool(now.withdrawn))


class HookDriver(DrainDriver):
    """What all hooks have in common; ``_where`` names the hook in errors."""

    _where: str

    def servers(self) -> Mapping[str, Server]:
        return self._read(_deadline())[0]

    def withdraw(self, server: str) -> None:
        deadline = _deadline()
        known = self._read(deadline)[0]
        # An isolated server stays as it is.
        if server not in known or not known[server].withdrawn:
            self._do("withdraw", server, deadline, *_OUT)

    def isolate(self, server: str) -> None:
        self._do("isolate", server, _deadline(), *_OUT)

    def restore(self, server: str, withdrawn: str = "") -> None:
        self._do(
            "restore",
            server,
            _deadline(),
            withdrawn or _READY,
            lambda now: now.withdrawn == withdrawn,
            withdrawn,
        )

    def set_weight(self, server: str, weight: int) -> None:
        deadline = _deadline()
        known = self._read(deadline)[0].get(server)
        if known and known.weight is None:
            raise DrainError(f"{self._where}: {server} has no weight that it tells")
        asked = f"of the weight {weight}"
        self._do("weigh", server, deadline, asked, lambda now: now.weight == weight, weight=weight)

    def refuses_changes(self) -> str:
        refusal = self._read(_deadline())[1]
        return f"{self._where}: {refusal}" if refusal else ""

    @abstractmethod
    def _asked(self, deadline: float) -> object:
        """The document of the hook; DrainError where there is none, ValueError for no JSON."""

    @abstractmethod
    def _tell(
        self, do: str, server: str, withdrawn: str, deadline: float, weight: int | None
    ) -> None:
        """Tell the hook what to do; DrainError where it fails, done or not.

        ``weight`` is that of ``weigh``, and None of all else.
        """

    def _do(
        self,
        do: str,
        server: str,
        deadline: float,
        asked: str,
        shows: Callable[[Server], bool],
        withdrawn: str = "",
        weight: int | None = None,
    ) -> None:
        """``asked`` says in words what the server has to show then."""
        if server not in self._read(deadline)[0]:
            raise DrainError(f"{self._where}: there is no server {server!r}")
        problem = ""
        try:
            self._tell(do, server, withdrawn, deadline, weight)
        except DrainError as error:
            # It may have been done all the same: what can be seen decides.
            problem = f" ({error})"
        while True:
            now = self._read(deadline)[0].get(server)
            if now and shows(now):
                return
            if problem or clock.monotonic() + POLL > deadline:
                how = now.withdrawn if now else "not there"
                raise DrainError(
                    f"{self._where}: {server} is {how or _READY}, not {asked}{problem}"
                )
            clock.sleep(POLL)

    def _read(self, deadline: float) -> tuple[dict[str, Server], str]:
        """Servers by name, and why changes would be refused."""
        try:
            return read_hook(self._asked(deadline))
        except InputError as error:
            problem = ": ".join(filter(None, (error.field, error.problem)))
        except ValueError as error:
            problem = f"no JSON: {error}"
        raise DrainError(f"{self._where}: what it tells of its servers is wrong: {problem}")


def read_hook(document: Any) -> tuple[dict[str, Server], str]:
    """The servers of a hook's document by name, and why changes would be refused, or "".

    InputError names the field that is wrong.
    """
    top = Fields(document, "hook")
    servers: dict[str, Server] = {}
    for fields in top.each("servers"):
        server = _server(fields)
        if server.name in servers:
            raise fields.wrong("name", f"there are two servers {server.name}")
        servers[server.name] = server
    refuses: str = top.text("refuses", "")
    top.done()
    return servers, refuses


def _server(fields: Fields) -> Server:
    if "sessions" not in fields.names():
        raise fields.wrong("sessions", "is missing; null says that nobody can tell")
    if "up" not in fields.names():
        raise fields.wrong("up", "is missing")
    withdrawn: str = fields.text("withdrawn", pattern=_WORD)
    if withdrawn.partition(":")[0] == _READY:
        raise fields.wrong("withdrawn", f"{_READY} is the word for a server that is not; leave ''")
    checked = fields.flag("checked", True)
    server = Server(
        name=fields.text("name", pattern=_NAME),
        withdrawn=withdrawn,
        up=fields.flag("up", False),
        sessions=fields.whole("sessions", None, minimum=0),
        address=fields.text("address", ""),
        port=fields.whole("port", 0, minimum=0, maximum=65535),
        checked=checked,
        passing=fields.flag("passing", not checked),
        leaving=fields.flag("leaving", False),
        idle=fields.text("idle", "", pattern=_REASON),
        weight=fields.whole("weight", None, minimum=0, maximum=HEAVIEST),
    )
    fields.done()
    return server


def _deadline() -> float:
    return clock.monotonic() + TIMEOUT
