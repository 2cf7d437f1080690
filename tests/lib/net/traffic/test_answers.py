# SPDX-License-Identifier: Apache-2.0
"""What HAProxy answers is believed whole or not at all; recorded from HAProxy 2.6.12."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from edgetune.base.errors import DrainError
from edgetune.net.traffic import Server, haproxy_backend
from edgetune.net.traffic.drivers.haproxy import Haproxy
from edgetune.net.traffic.haproxy_backend import read_one, read_servers
from tests.support import FIXTURES
from tests.support.answering import Answering
from tests.support.cases import rows
from tests.support.examples import examples
from tests.support.programs import needs_ipv6

CASES = Path(__file__).with_name("cases") / "answers.yaml"

RECORDED = FIXTURES / "haproxy"
EDGES = (RECORDED / "edges.txt").read_text()
QUEUE = (RECORDED / "queue.txt").read_text()
READY, DRAIN, MAINT = "ready:100%", "drain:100%", "maint:100%"
NO_WEIGHT = {"idle": "weight 0 in its configuration", "state": "ready:0%"}
TRUTH = {
    own.name: replace(own, weight=int(own.name != "e007"))
    for own in [
        Server("e000", "", True, 0, "192.0.2.1", 80, checked=False, state=READY),
        Server("e001", "", True, 0, "127.0.0.1", 18480, state=READY),
        Server("e002", "maint", False, 0, "2001:db8::3", 80, checked=False, state=MAINT),
        Server("e003", "drain", True, 0, "192.0.2.4", 80, checked=False, state=DRAIN),
        Server("e004", "maint", False, 0, "192.0.2.5", 80, checked=False, state=MAINT),
        Server("e005", "", False, 0, "127.0.0.1", 18481, passing=False, state=READY),
        Server("e006", "", True, 0, "", 0, checked=False, state=READY),
        Server("e007", "", True, 0, "127.0.0.1", 18482, checked=False, **NO_WEIGHT),
    ]
}


def _is_refused(text: str) -> bool:
    try:
        read_servers(text, "edges")
    except DrainError:
        return True
    return False


def test_a_whole_answer_is_read() -> None:
    read = read_servers(EDGES, "edges")
    assert read == TRUTH
    serving = [name for name, server in read.items() if server.is_serving]
    assert serving == ["e000", "e001", "e006"], "not withdrawn, not down, and of a weight"
    drained = EDGES.replace("no check,1,1,0,", "DRAIN,1,1,0,", 1)
    between = read_servers(drained, "edges")["e000"]
    assert (between.withdrawn, between.idle, between.is_serving) == ("", "drain", False)
    (server,) = read_servers(QUEUE, "queue").values()
    assert server.sessions == 4
    assert ",e000,3,3,1,1," in QUEUE, "three wait, one is served"


@pytest.mark.parametrize(
    ("bits", "withdrawn"),
    [
        # Forced, inherited, from the configuration, and for want of a name's address.
        *((bit | more, "maint") for bit in (0x01, 0x02, 0x04, 0x20) for more in (0, 0x08)),
        (0x08, "drain"),
        (0x10, "drain"),
        (0x40, ""),
    ],
)
def test_every_kind_of_maintenance_and_drain_is_one(bits: int, withdrawn: str) -> None:
    text = EDGES.replace("e000 192.0.2.1 2 0 ", f"e000 192.0.2.1 2 {bits} ")
    assert read_servers(text, "edges")["e000"].withdrawn == withdrawn


def test_an_answer_that_was_cut_anywhere_is_refused() -> None:
    assert [cut for cut in range(len(EDGES)) if not _is_refused(EDGES[:cut])] == []


def test_a_short_answer_to_one_command_is_refused() -> None:
    assert read_one("\n") == ""
    assert read_one("No such server.\n\n") == "No such server."
    for cut in ("", "No such ser", "No such server.\n"):
        with pytest.raises(DrainError, match="cut its answer off"):
            read_one(cut)


LINES = EDGES.split("\n")
OUR_STATES = [n for n, line in enumerate(LINES) if " edges " in line]
OUR_STATS = [n for n, line in enumerate(LINES) if line.startswith("edges,")]


@pytest.mark.parametrize("number", [*OUR_STATES, *OUR_STATS])
def test_a_row_that_is_missing_or_there_twice_is_refused(number: int) -> None:
    for lines in (LINES[:number] + LINES[number + 1 :], LINES[: number + 1] + LINES[number:]):
        assert _is_refused("\n".join(lines))


ODD = ["", "-", "x", "-1", "1.5", "0x1", "1e3", " 1", "\u0661", "nan", "9" * 19, "9" * 200_000]


# pytest escapes a backslash once more each time that it collects, as mutmut has it do.
@pytest.mark.parametrize("odd", ODD, ids=lambda odd: ascii(odd[:20]).replace("\\", ""))
def test_a_number_that_is_none_is_refused(odd: str) -> None:
    state, stat = LINES[OUR_STATES[0]].split(" "), LINES[OUR_STATS[0]].split(",")
    changed = []
    for place in (6, 7, 8, 14, 18):
        changed.append((LINES[OUR_STATES[0]], " ".join([*state[:place], odd, *state[place + 1 :]])))
    for place in (2, 4, 18, 19, 20):
        changed.append((LINES[OUR_STATS[0]], ",".join([*stat[:place], odd, *stat[place + 1 :]])))
    assert [new for old, new in changed if not _is_refused(EDGES.replace(old, new))] == []


@pytest.mark.parametrize(
    ("old", "new"),
    rows(CASES, "another_format_is_refused"),
)
def test_another_format_is_refused(old: str, new: str) -> None:
    assert old in EDGES
    assert _is_refused(EDGES.replace(old, new, 1))


def test_text_of_a_sick_host_is_no_row() -> None:
    """HAProxy shows what a failed check said; some characters end a line for Python alone."""
    said = '"sick, ""very"" sick\nedges,e000,0"'
    assert read_servers(EDGES.replace("Connection refused", said), "edges") == TRUTH
    said = "sick\x0b\x0c\x1c\x85\u2028edges"
    assert read_servers(EDGES.replace("Connection refused", said), "edges") == TRUTH


# The machine of a test may stand still for longer than a health check of Hypothesis waits.
@examples(400, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_changed_answer_is_refused_or_read_as_it_stands(data: st.DataObject) -> None:
    """Fields of a row of ours that are read decide; all others may be anything."""
    text = data.draw(st.sampled_from([_cut, _spliced, _without_lines, _swapped]))(data)
    try:
        found = read_servers(text, "edges")
    except DrainError:
        return
    # The number between backend and name is not read.
    shown = {name for name in TRUTH if re.search(rf" edges [^ \n]* {name} ", text)}
    assert found == {name: server for name, server in TRUTH.items() if name in shown}
    assert shown == {name for name in TRUTH if f"\nedges,{name}," in text}


def _cut(data: st.DataObject) -> str:
    first, second = sorted(data.draw(st.tuples(*2 * [st.integers(0, len(EDGES))])))
    return EDGES[:first] + EDGES[second:]


def _spliced(data: st.DataObject) -> str:
    """Garbage between two rows, or instead of one."""
    number = data.draw(st.integers(0, len(LINES) - 1))
    garbage = data.draw(st.text(max_size=40))
    return "\n".join([*LINES[:number], garbage, *LINES[number + data.draw(st.integers(0, 1)) :]])


def _without_lines(data: st.DataObject) -> str:
    gone = data.draw(st.sets(st.integers(0, len(LINES) - 1), max_size=6))
    return "\n".join(line for number, line in enumerate(LINES) if number not in gone)


def _swapped(data: st.DataObject) -> str:
    numbers = st.integers(0, len(LINES) - 1)
    lines, one, other = list(LINES), data.draw(numbers), data.draw(numbers)
    lines[one], lines[other] = lines[other], lines[one]
    return "\n".join(lines)


def driver_of(server: Answering, host: str = "127.0.0.1") -> Haproxy:
    return Haproxy(f"tcp://{host}:{server.port}", "edges")


@pytest.fixture
def answering() -> Iterator[Callable[..., Answering]]:
    started: list[Answering] = []

    def start(*how: object) -> Answering:
        started.append(Answering(*how))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for each in started:
        each.close()


def _endless(sock: socket.socket, asked: str) -> None:
    while True:
        sock.sendall(b"edges,e000,0,0\n" * 4096)


def _whole_but_open(sock: socket.socket, asked: str) -> None:
    sock.sendall(EDGES.encode())
    sock.recv(1)


@pytest.mark.parametrize(
    ("act", "timeout", "says"),
    [
        (_whole_but_open, 0.5, "HAProxy does not answer: its whole answer did not come"),
        (_endless, 600, "its answer is longer than 2 MB"),
    ],
)
def test_a_whole_answer_ends_with_its_connection_and_has_a_bound(
    answering: Callable[..., Answering],
    monkeypatch: pytest.MonkeyPatch,
    act: object,
    timeout: float,
    says: str,
) -> None:
    monkeypatch.setattr(haproxy_backend, "TIMEOUT", timeout)
    monkeypatch.setattr(haproxy_backend, "LIMIT", 2 * 2**20)
    with pytest.raises(DrainError, match=says):
        driver_of(answering(act)).servers()


@needs_ipv6
def test_a_load_balancer_is_reached_over_ipv6(answering: Callable[..., Answering]) -> None:
    whole = answering(lambda sock, asked: sock.sendall(EDGES.encode()), socket.AF_INET6)
    assert driver_of(whole, "[::1]").servers() == TRUTH


@pytest.mark.parametrize("place", ["127.0.0.1:99999", "127.0.0.1:0", f"{'a' * 70}:1"])
def test_an_address_that_cannot_be_one_is_a_drain_error(place: str) -> None:
    with pytest.raises(DrainError, match="HAProxy does not answer: "):
        Haproxy(f"tcp://{place}", "edges").servers()


def _setting(said: str, then: str = EDGES) -> Callable[[socket.socket, str], None]:
    def say(sock: socket.socket, asked: str) -> None:
        sock.sendall((said if asked.startswith("set ") else then).encode())

    return say


DENIED = "Permission denied\n\n"


@pytest.mark.parametrize(
    ("said", "then", "do", "given", "problem"),
    [
        # Drained by us or by somebody else, e003 is; e000 is not, be its setting confirmed.
        *((said, EDGES, "restore", ("e003", "drain"), "") for said in ("", "\n")),
        *(
            (said, EDGES, "withdraw", ("e000",), "edges/e000 is ready, not drain")
            for said in ("", "\n")
        ),
        ("\n", EDGES, "withdraw", ("e999",), "edges/e999 is not there, not drain"),
        ("\n", EDGES[:-1], "isolate", ("e003",), "HAProxy cut its answer off"),
        (DENIED, EDGES, "isolate", ("e003",), "edges/e003: Permission denied .*has to be admin"),
        (DENIED, EDGES, "restore", ("e000", "ready:0%"), "edges/e000: Permission denied"),
        ("", EDGES, "restore", ("e000", "ready:50"), r"100%, not 50 \(.*cut its answer off\)"),
        ("\n", EDGES, "restore", ("e000", "ready:0%"), "edges/e000 is 100%, not 0%"),
        ("\n", EDGES, "set_weight", ("e000", 2), "edges/e000 has the weight 1, not 2"),
        ("", EDGES, "set_weight", ("e000", 1), ""),
        ("Backend is using a static LB\n\n", EDGES, "set_weight", ("e000", 2), "static LB"),
        *(
            ("\n", EDGES, "restore", ("e000", state), f"'{state}' is no state of a server")
            for state in ("ready:-1", "ready:", "ready:5 state maint")
        ),
    ],
)
def test_what_can_be_seen_decides_whether_a_state_was_set(
    answering: Callable[..., Answering],
    said: str,
    then: str,
    do: str,
    given: tuple[object, ...],
    problem: str,
) -> None:
    server = answering(_setting(said, then))
    with pytest.raises(DrainError, match=problem) if problem else nullcontext():
        getattr(driver_of(server), do)(*given)
    # A refusal is not looked after.
    assert said != DENIED or server.asked[-1].startswith("set server")


def test_a_weight_is_put_back_before_the_server_is_let_in_and_only_if_it_differs(
    answering: Callable[..., Answering],
) -> None:
    """What HAProxy took for done may be 100% by a new configuration."""
    server = answering(_setting("\n"))
    driver_of(server).restore("e000", "ready:50")
    driver_of(server).restore("e000", "ready:100%")
    driver_of(server).restore("e007", "ready:0%")
    assert [asked for asked in server.asked if asked.startswith("set ")] == [
        "set server edges/e000 weight 50",
        "set server edges/e000 state ready",
        "set server edges/e000 state ready",
        "set server edges/e007 state ready",
    ]


def test_whether_changes_are_refused_is_asked_without_a_change(
    answering: Callable[..., Answering],
) -> None:
    # What is no complaint about the state proves nothing.
    for said in (DENIED, "\n", "Unknown command\n\n"):
        server = answering(_setting(said))
        refusal = driver_of(server).refuses_changes()
        assert f"edges/e000: {said.strip() if said == DENIED else ''}" in refusal
        assert server.asked[-1] == "set server edges/e000 state"
