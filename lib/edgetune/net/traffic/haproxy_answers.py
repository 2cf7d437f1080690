# SPDX-License-Identifier: Apache-2.0
"""What HAProxy answers, read whole or not at all (management.txt, 9.1 "CSV format", 9.3)."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_address
from typing import NamedTuple, TypeVar

from edgetune.base.errors import DrainError
from edgetune.net.traffic.driver import BACKUP, Server

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
    states = _by_name((own.srv_name, own) for own in _states(states_text, backend))
    *rows, total = _stats(stats_text[:-2], backend)
    stats = _by_name((own.svname, own) for own in rows)
    if states.keys() != stats.keys():
        named = ", ".join(sorted(states.keys() ^ stats.keys())[:3])
        raise DrainError(f"names different servers of {backend!r} in its two answers: {named}")
    servers = [_server(name, states[name], stats[name]) for name in stats]
    waiting = _waiting([(own, stats[own.name]) for own in servers], total)
    return {own.name: replace(own, idle=BACKUP) if own.name in waiting else own for own in servers}


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
    found: dict[str, Row] = {}
    for name, row in rows:
        if found.setdefault(name, row) is not row:
            raise DrainError(f"names server {name[:80]!r} twice")
    return found


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
    backups = [(own, stat) for own, stat in servers if _is_backup(stat) and own.is_serving]
    if not backups or _number(total, "act"):
        return {own.name for own, _ in backups}
    (_, first), *others = backups
    all_serve = _number(total, "weight") > _number(first, "weight")
    return set() if all_serve else {own.name for own, _ in others}


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
