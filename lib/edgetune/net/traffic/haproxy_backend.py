# SPDX-License-Identifier: Apache-2.0
"""One backend of one HAProxy over its runtime API (management.txt, 9.3, "Unix Socket commands").

What it answers is read whole or not at all (9.1 "CSV format").
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Callable, NamedTuple, TypeVar

from edgetune.base import clock
from edgetune.base.errors import DrainError
from edgetune.net.connection import PART, Connection, Tls, reach, reach_path
from edgetune.net.traffic.driver import BACKUP, Balancer, Server

if TYPE_CHECKING:
    from edgetune.net.tls import TlsConnection


READY, DRAIN, MAINT = "ready", "drain", "maint"
"""How HAProxy calls the states of a server; the last two are the ways of being withdrawn."""

_FORCED_MAINT, _FORCED_DRAIN = 0x01, 0x08
# Inherited from a tracked server, by the configuration, and for want of a name's address, too.
_MAINT_BITS = _FORCED_MAINT | 0x02 | 0x04 | 0x20
_DRAIN_BITS = _FORCED_DRAIN | 0x10
_CHECK_ENABLED = 0x04
# CHK_RES_PASSED and CHK_RES_CONDPASS of srv_check_result.
_PASSED = (3, 4)
_UP = {"UP": True, "DRAIN": True, "no": True, "DOWN": False, "NOLB": False, "MAINT": False}
"""By the first word of a status; "no check" is taken for up, as HAProxy takes it."""

_ENDS_THE_LIST = "BACKEND"

Row = TypeVar("Row")


class _State(NamedTuple):
    """What is read of a row of ``show servers state``, as HAProxy writes it."""

    be_name: str
    srv_name: str
    srv_addr: str
    srv_admin_state: str
    srv_uweight: str
    srv_iweight: str
    srv_check_result: str
    srv_check_state: str
    srv_agent_state: str
    srv_port: str


class _Stat(NamedTuple):
    """What is read of a row of ``show stat``, as HAProxy writes it."""

    pxname: str
    svname: str
    qcur: str
    scur: str
    status: str
    weight: str
    act: str
    bck: str
    tracked: str


def read_one(text: str) -> str:
    """The answer to one command, "" where it succeeded; DrainError if it is cut off.

    An empty line ends each answer, be it of nothing else.
    """
    if text != "\n" and not text.endswith("\n\n"):
        raise DrainError("cut its answer off")
    return text.strip()


def read_servers(text: str, backend: str) -> dict[str, Server]:
    """The servers of a backend, from ``show servers state BACKEND;show stat -1 6 -1``.

    Both answers have to be whole and to name the same servers, DrainError otherwise.
    """
    states_text, between, stats_text = text.partition("\n\n")
    if not between or not stats_text.endswith("\n\n"):
        raise DrainError("cut its answer off")
    states = _by_name((row.srv_name, row) for row in _states(states_text, backend))
    *rows, total = _stats(stats_text[:-2], backend)
    stats = _by_name((row.svname, row) for row in rows)
    if states.keys() != stats.keys():
        named = ", ".join(sorted(states.keys() ^ stats.keys())[:3])
        raise DrainError(f"names different servers of {backend!r} in its two answers: {named}")
    servers = [_server(name, states[name], stats[name]) for name in stats]
    waiting = _waiting([(server, stats[server.name]) for server in servers], total)
    return {s.name: replace(s, idle=BACKUP) if s.name in waiting else s for s in servers}


def _states(text: str, backend: str) -> Iterator[_State]:
    version, *lines = text.split("\n")
    if not lines:
        raise DrainError(f"has no backend {backend!r}: {version[:80]}")
    if version != "1" or not lines[0].startswith("# "):
        raise DrainError(f"lists servers in an unknown format: {version[:80]!r}")
    for row in _rows(lines[0][2:].split(" "), (each.split(" ") for each in lines[1:])):
        state = _State(*_taken(row, _State._fields))
        if state.be_name != backend:
            raise DrainError(f"lists servers of {state.be_name[:80]!r}, not of {backend!r}")
        yield state


def _stats(text: str, backend: str) -> Iterator[_Stat]:
    """The rows of its servers, and last the one of the backend."""
    if not text.startswith("# "):
        raise DrainError(f"sends no statistics: {text[:80]!r}")
    try:
        header, *lines = csv.reader(text[2:].split("\n"), strict=True)
    except csv.Error as error:
        raise DrainError(f"sends statistics that cannot be read: {error}") from None
    closed = False
    for row in _rows(header, iter(lines)):
        stat = _Stat(*_taken(row, _Stat._fields))
        if stat.pxname != backend:
            continue
        if closed:
            raise DrainError(f"sends statistics that go on after the last row of {backend!r}")
        closed = stat.svname == _ENDS_THE_LIST
        yield stat
    if not closed:
        raise DrainError(f"sends statistics without the last row of {backend!r}")


def _rows(columns: Sequence[str], rows: Iterator[list[str]]) -> Iterator[Mapping[str, str]]:
    for row in rows:
        if len(row) != len(columns):
            raise DrainError(f"sends a row of {len(row)} fields below {len(columns)} columns")
        yield dict(zip(columns, row))


def _taken(row: Mapping[str, str], columns: Sequence[str]) -> Iterator[str]:
    if not row.keys() >= {*columns}:
        raise DrainError(f"sends no {', '.join(sorted({*columns} - row.keys()))}")
    return (row[column] for column in columns)


def _by_name(rows: Iterable[tuple[str, Row]]) -> dict[str, Row]:
    by_name: dict[str, Row] = {}
    for name, row in rows:
        if by_name.setdefault(name, row) is not row:
            raise DrainError(f"names server {name[:80]!r} twice")
    return by_name


def _server(name: str, state: _State, stat: _Stat) -> Server:
    status, *more = stat.status.split(" ")
    if status not in _UP:
        raise DrainError(f"gives server {name!r} an unknown status: {stat.status[:80]!r}")
    has_check = bool(_number(state, "srv_check_state") & _CHECK_ENABLED)
    has_agent = bool(_number(state, "srv_agent_state") & _CHECK_ENABLED)
    bits = _number(state, "srv_admin_state")
    withdrawn = _withdrawn(bits)
    # As ``set server ... weight`` takes it: 0% and 100% do in every backend, others not in those
    # whose algorithm is static. 100% is what the configuration says, be that another one by then.
    whole, weight = _number(state, "srv_iweight"), str(_number(state, "srv_uweight"))
    weight = "0%" if weight == "0" else "100%" if weight == str(whole) else weight
    return Server(
        name,
        withdrawn,
        up=_UP[status],
        sessions=_number(stat, "scur") + _number(stat, "qcur"),
        address=_address(state.srv_addr),
        port=_number(state, "srv_port"),
        checked=has_check or bool(stat.tracked),
        passing=not has_check or _number(state, "srv_check_result") in _PASSED,
        idle="" if withdrawn else _idle(state, stat, [status, *more], has_agent),
        # What it inherits comes back by itself, and is not to be forced upon it.
        state=f"{_withdrawn(bits & (_FORCED_MAINT | _FORCED_DRAIN)) or READY}:{weight}",
        weight=_number(state, "srv_uweight"),
        overridden_by=f"its agent check in {state.be_name}" if has_agent else "",
    )


def _idle(state: _State, stat: _Stat, status: Sequence[str], has_agent: bool) -> str:
    """Why no new client is sent to a server that is not withdrawn, but for a failing check.

    A weight of 0 by the agent shows in the weight alone, be the status "UP" or "no check".
    """
    if status[0] == "NOLB":
        return "stopping, as its check answers 404"
    if status[0] == "DOWN" and "(agent)" in status:
        return "down by its agent check"
    if status[0] == "DRAIN" and _number(state, "srv_uweight"):
        # It was drained between the two answers.
        return "drain"
    if _number(state, "srv_iweight") == _number(state, "srv_uweight") == 0:
        return "weight 0 in its configuration"
    if not (_number(state, "srv_uweight") and _number(stat, "weight")):
        return "weight 0" + (", by its agent check or by hand" if has_agent else "")
    return ""


def _waiting(servers: Sequence[tuple[Server, _Stat]], total: _Stat) -> set[str]:
    """The backups that would serve, and wait: configuration.txt, "option allbackups".

    As long as an active server can be used no backup is; then the first one is, or all. Which one
    of these no column says. It shows in the total weight, which is that of those in use.
    """
    backups = [(server, stat) for server, stat in servers if _is_backup(stat) and server.is_serving]
    if not backups or _number(total, "act"):
        return {server.name for server, _ in backups}
    (_, first), *others = backups
    all_serve = _number(total, "weight") > _number(first, "weight")
    return set() if all_serve else {server.name for server, _ in others}


def _is_backup(stat: _Stat) -> bool:
    if _number(stat, "act") + _number(stat, "bck") != 1:
        raise DrainError(f"sends server {stat.svname!r} that is not either active or a backup")
    return bool(_number(stat, "bck"))


def _number(row: _State | _Stat, column: str) -> int:
    text: str = getattr(row, column)
    if not re.fullmatch("[0-9]{1,18}", text):
        raise DrainError(f"sends a {column} that is no number: {text[:80]!r}")
    return int(text)


def _address(text: str) -> str:
    """ "-" stands for a server without an address, such as one behind a UNIX socket."""
    if text == "-":
        return ""
    try:
        ip_address(text)
    except ValueError:
        raise DrainError(f"sends a srv_addr that is no address: {text[:80]!r}") from None
    return text


def _withdrawn(bits: int) -> str:
    if bits & _MAINT_BITS:
        return MAINT
    return DRAIN if bits & _DRAIN_BITS else ""


TIMEOUT = 15.0
"""Seconds until a call is over, whatever HAProxy does meanwhile."""

_STATE = re.compile(f"({READY}|{DRAIN}|{MAINT})(?::([0-9]{{1,9}}%?))?")
# Backends and their servers, of all proxies: a frontend may bear the name of the backend.
_STATISTICS = "show stat -1 6 -1"

Answer = TypeVar("Answer")

LIMIT = 16 * 2**20
"""Bytes of the largest answer: 16 MB hold some 50,000 rows of HAProxy's statistics."""


class HaproxyBackend(Balancer):
    """The servers of one backend."""

    def __init__(self, address: str, backend: str, tls: Tls | None = None) -> None:
        """``tls`` is what an address of the scheme ``tls`` is asked with."""
        self._address = address
        self._backend = backend
        self._tls = tls

    def servers(self) -> Mapping[str, Server]:
        return self._servers(_deadline())

    def withdraw(self, server: str) -> None:
        deadline = _deadline()
        known = self._servers(deadline)
        # From maint, drain would be a step back.
        if server not in known or not known[server].withdrawn:
            self._set(server, DRAIN, deadline)

    def isolate(self, server: str) -> None:
        self._set(server, MAINT, _deadline())

    def restore(self, server: str, withdrawn: str = "") -> None:
        """States of before 0.11 tell no weight; the weight is left alone then.

        The weight comes first: a server that had none is not let in for a moment.
        """
        wanted = _STATE.fullmatch(withdrawn or READY)
        if not wanted:
            raise DrainError(f"{self._address}: {withdrawn!r} is no state of a server")
        state, weight = wanted.groups()
        deadline = _deadline()
        known = self._servers(deadline).get(server) if weight else None
        # Somebody else may have changed it, or a reload have forgotten it.
        if known and known.state.partition(":")[2] != weight:
            self._change(server, f"weight {weight}", deadline)
        self._set(server, state, deadline)

    def set_weight(self, server: str, weight: int) -> None:
        """A backend whose algorithm is static refuses it in HAProxy's own words."""
        deadline = _deadline()
        self._change(server, f"weight {weight}", deadline)
        now = self._servers(deadline).get(server)
        if now is None or now.weight != weight:
            shown = now.weight if now else "gone"
            place = f"{self._backend}/{server}"
            raise DrainError(f"{self._address}: {place} has the weight {shown}, not {weight}")

    def refuses_changes(self) -> str:
        """Asks to set the state of a server, and leaves the state out.

        HAProxy looks at the level of the socket first, then at backend and server, last at the
        state. Its complaint about the state proves the others for the server that comes first.
        """
        deadline = _deadline()
        known = self._servers(deadline)
        if not known:
            return f"{self._address}: backend {self._backend!r} has no server"
        place = f"{self._backend}/{min(known)}"
        answer = self._ask(f"set server {place} state", deadline)
        understood = "expects 'ready', 'drain' and 'maint'" in answer
        return "" if understood else f"{self._address}: {place}: {_explained(answer)}"

    def _set(self, server: str, state: str, deadline: float) -> None:
        self._change(server, f"state {state}", deadline)

    def _change(self, server: str, change: str, deadline: float) -> None:
        """``change`` is "state drain" or "weight 0%"; what can be seen then decides."""
        place, unanswered = f"{self._backend}/{server}", ""
        try:
            refusal = self._ask(f"set server {place} {change}", deadline)
        except DrainError as error:
            # The connection may have ended after it was done.
            refusal, unanswered = "", f" ({error})"
        if refusal:
            raise DrainError(f"{self._address}: {place}: {_explained(refusal)}")
        now = self._servers(deadline).get(server)
        if not _shows(now, change, bool(unanswered)):
            what, _, wanted = change.partition(" ")
            shown = (now.state if now else "not there:gone").split(":")[what == "weight"]
            raise DrainError(f"{self._address}: {place} is {shown}, not {wanted}{unanswered}")

    def _servers(self, deadline: float) -> dict[str, Server]:
        # On one connection both are answered by the same process, be another one starting.
        command = f"show servers state {self._backend};{_STATISTICS}"
        return self._read(command, deadline, lambda text: read_servers(text, self._backend))

    def _ask(self, command: str, deadline: float) -> str:
        return self._read(command, deadline, read_one)

    def _read(self, command: str, deadline: float, read: Callable[[str], Answer]) -> Answer:
        try:
            return read(ask(self._address, command, deadline, self._tls))
        except OSError as error:
            raise DrainError(f"{self._address}: HAProxy does not answer: {error}") from None
        except DrainError as error:
            raise DrainError(f"{self._address}: HAProxy {error}") from None


def _shows(server: Server | None, change: str, unanswered: bool) -> bool:
    """Whether a change that HAProxy did not refuse can be seen.

    An agent may have set another weight since. Where the configuration has changed, a weight that
    is given as a number may be its 100% by now.
    """
    if server is None:
        return False
    state, _, weight = server.state.partition(":")
    what, _, wanted = change.partition(" ")
    if what == "state":
        return state == wanted
    if wanted == str(server.weight):
        return True
    may_differ = server.overridden_by or not (unanswered or "0%" in (wanted, weight))
    return weight == wanted or bool(may_differ)


def _deadline() -> float:
    return clock.monotonic() + TIMEOUT


def _explained(refusal: str) -> str:
    first = refusal.split("\n")[0][:200] or "it says nothing"
    if "denied" not in first.lower():
        return first
    return f"{first} (the socket's level has to be admin)"


def ask(address: str, command: str, deadline: float, tls: Tls | None = None) -> str:
    """All that comes until the other side closes, asked at ``tcp://HOST:PORT``, at
    ``tls://HOST:PORT`` or at ``unix:///PATH``.

    ``deadline`` is in seconds of ``clock.monotonic``. Raises OSError where nobody answers, not in
    time, or with more than LIMIT; and where a certificate is not believed.
    """
    is_secured = address.startswith("tls:")
    with (
        _secured(address, deadline, tls or Tls()) if is_secured else _connected(address, deadline)
    ) as connection:
        connection.grant(deadline, LIMIT)
        connection.sendall(command.encode() + b"\n")
        reply = b"".join(iter(partial(connection.recv, PART), b""))
        return reply.decode("utf-8", "replace")


def shown_certificate(address: str, deadline: float, tls: Tls) -> bytes:
    """In DER, the certificate that is shown at ``tls://HOST:PORT``; OSError as of `ask`."""
    with _secured(address, deadline, tls) as connection:
        return connection.certificate()


def _secured(address: str, deadline: float, tls: Tls) -> TlsConnection:
    from edgetune.net.tls import secured

    # Before anybody is asked: a file that is missing is no trouble of the other side.
    context = tls.context()
    name = tls.server_name or _place(address)[0]
    return secured(_connected(address, deadline), context, name)


def _connected(address: str, deadline: float) -> Connection:
    if address.startswith("unix:"):
        return Connection(reach_path(address.partition("://")[2], deadline), deadline)
    return Connection(reach(*_place(address), deadline), deadline)


def _place(address: str) -> tuple[str, int]:
    host, _, port = address.partition("://")[2].rpartition(":")
    return host.strip("[]"), int(port)
