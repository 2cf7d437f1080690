# SPDX-License-Identifier: Apache-2.0
"""The HAProxy driver against a real HAProxy."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Callable

import pytest

from edgetune.base.errors import DrainError
from edgetune.net.traffic.drivers.haproxy import Haproxy
from edgetune.rollout.hosts.in_service import put_back, state_of, why_out
from tests.support.answering import Answering
from tests.support.load_balancers import SERVERS
from tests.support.named_services import Service, hold, request, services, who_gets
from tests.support.real_haproxy import CLIENTS, RealHaproxy, needs_haproxy, running

pytestmark = needs_haproxy


def test_servers_tell_whether_they_are_checked_and_where_they_are() -> None:
    """In any state: a server in maintenance is not checked now, and still has its check."""
    checked = ["checked 127.0.0.1:9 check inter 60s", "followed 127.0.0.1:9 track other/checked"]
    servers = [*checked, "trusted [::1]:9", "local unix@/nowhere", "paused 127.0.0.1:9 check"]
    # Nothing listens at this one, and its first check comes after minutes.
    options = ["option httpchk", "server e000 127.0.0.1:1 check inter 300s fastinter 300s"]
    with running([("other", [f"server {own}" for own in servers]), ("edges", options)]) as haproxy:
        driver, edges = haproxy.driver("other"), haproxy.driver()
        driver.isolate("paused")
        driver.withdraw("trusted")
        edges.isolate("e000")
        edges.restore("e000")
        found, server = driver.servers(), edges.servers()["e000"]
    assert (server.is_serving, server.passing) == (True, False)
    told = [name for name, each in found.items() if each.checked]
    assert told == ["checked", "followed", "paused"]
    assert (found["trusted"].address, found["local"].address) == ("::1", "")


def test_a_static_algorithm_says_why_it_takes_no_weight() -> None:
    servers = ["server e000 127.0.0.1:9 weight 100", "server e001 127.0.0.1:9 weight 100"]
    with running([("static", ["balance static-rr", *servers]), ("edges", servers)]) as haproxy:
        static, edges = haproxy.driver("static"), haproxy.driver()
        with pytest.raises(DrainError, match="static LB algorithm"):
            static.set_weight("e000", 120)
        assert static.servers()["e000"].weight == 100
        edges.set_weight("e000", 120)
        assert (edges.servers()["e000"].weight, edges.servers()["e000"].state) == (120, "ready:120")
        with pytest.raises(DrainError, match="between 0 and 256"):
            edges.set_weight("e000", 257)
        edges.set_weight("e000", 100)
        assert edges.servers()["e000"].state == "ready:100%"


AGENT = 'agent-check agent-port AGENT agent-inter 50ms agent-send "ask\\n"'
CHECK = "check inter 50ms fall 1 rise 1"
HTTP = ["option httpchk GET /health", "http-check disable-on-404"]
HEAVY = ["default-server weight 100"]


@dataclass(frozen=True)
class State:
    """Of four servers ``gets`` (by their last digits) get requests. ``servers`` are their options
    by digit, ``agent`` what an agent of them answers, ``health`` what the check of e000 gets."""

    gets: str
    asked: Sequence[str] = ()
    servers: Mapping[int, str] = field(default_factory=dict)
    options: Sequence[str] = ()
    agent: str = ""
    health: int = 200
    why: str = ""


def _set(server: int, what: str) -> str:
    return f"set server edges/e{server:03d} {what}"


NO_ACTIVE = [_set(2, "state drain"), _set(3, "weight 0")]
TRACKS, NO_WEIGHT = {0: "track other/o"}, "weight 0 in its configuration"
BACKUPS = {0: "backup", 1: "backup"}
BY_AGENT = {0: AGENT, 1: CHECK, 2: CHECK, 3: CHECK}
FIVE = {0: "weight 256 slowstart 600s", 1: "weight 1", 2: "weight 1", 3: "weight 1"}
UNEVEN = {0: "backup weight 10", 1: "backup weight 200"}
ZERO, DRAINED = [_set(0, "weight 0")], [_set(0, "state drain")]
BY_IT = "weight 0, by its agent"
STATES = {
    "as it begins": State("0123"),
    "weight 0": State("123", ZERO, why="weight 0"),
    "weight 0, and back": State("0123", [*ZERO, _set(0, "weight 100%")]),
    "half the weight": State("0123", [_set(0, "weight 50")], options=HEAVY),
    "weight 0 in the configuration": State("123", (), {0: "weight 0"}, why=NO_WEIGHT),
    "weight 0 of a static algorithm": State("123", ZERO, {}, ["balance static-rr"], why="weight 0"),
    "weight 0 of a server that is checked": State("123", ZERO, {0: CHECK}, HTTP, why="weight 0"),
    "weight 0 of all": State("", [_set(i, "weight 0") for i in range(4)], why="weight 0"),
    "drain": State("123", DRAINED),
    "maint": State("123", [_set(0, "state maint")]),
    "disabled": State("123", servers={0: "disabled"}),
    "a drain of what is tracked": State("123", ["set server other/o state drain"], TRACKS),
    "a maint of what is tracked": State("123", ["set server other/o state maint"], TRACKS),
    "a failing check": State("123", (), {0: CHECK}, HTTP, health=503),
    "a failing check, and weight 0": State("123", ZERO, {0: CHECK}, HTTP, "", 503, "weight 0"),
    "a check that disables": State("123", (), {0: CHECK}, HTTP, health=404, why="404"),
    "an agent's 0%": State("123", (), {0: AGENT}, agent="0%", why=BY_IT),
    "an agent's up 0%": State("123", (), BY_AGENT, HTTP, "up 0%", why=BY_IT),
    "an agent's 75%": State("0123", (), {0: AGENT}, HEAVY, "75%"),
    "an agent's 75% of a weight that is 1": State("123", (), {0: AGENT}, agent="75%", why=BY_IT),
    "an agent's drain": State("123", (), {0: AGENT}, agent="drain"),
    "an agent's maint": State("123", (), {0: AGENT}, agent="maint"),
    "an agent's down": State("123", (), {0: AGENT}, agent="down", why="down by its agent check"),
    "an agent's up ready": State("0123", (), {0: AGENT}, agent="up ready"),
    "a backup": State("123", servers={0: "backup"}, why="backup"),
    "a backup with one active server": State("3", NO_ACTIVE[:1], BACKUPS, why="backup"),
    "backups, and no active server": State("0", NO_ACTIVE, BACKUPS),
    "backups with allbackups": State("01", NO_ACTIVE, BACKUPS, ["option allbackups"]),
    "backups of which the second is heavier": State("0", NO_ACTIVE, UNEVEN),
    "the same with allbackups": State("01", NO_ACTIVE, UNEVEN, ["option allbackups"]),
    "backups of which the first is drained": State("1", [*NO_ACTIVE, *DRAINED], BACKUPS),
    "backups of which the first has weight 0": State(
        "1", NO_ACTIVE + ZERO, BACKUPS, why="weight 0"
    ),
    "slowstart": State("0123", [_set(0, "state maint"), _set(0, "state ready")], FIVE),
}


class Running:
    """A HAProxy whose servers are services, with the driver that a test asks."""

    def __init__(self, haproxy: RealHaproxy, behind: Mapping[str, Service], agent: list[str]):
        self.haproxy, self.behind, self.agent = haproxy, behind, agent
        self.driver = haproxy.driver()
        self.clients = haproxy.folder / "clients"

    @property
    def serving(self) -> set[str]:
        return {name for name, own in self.driver.servers().items() if own.is_serving}

    def shows(self, gets: str) -> bool:
        """Whether these get requests, and are told to serve."""
        names = {f"e{int(digit):03d}" for digit in gets}
        return self.serving == names == who_gets(self.clients, SERVERS)


@contextmanager
def begun(state: State) -> Iterator[Running]:
    words = [state.agent]
    agent = Answering(lambda sock, asked: sock.sendall(f"{words[0]}\n".encode()))
    with services(dict.fromkeys(SERVERS, "127.0.0.1")) as behind:
        behind["e000"].health = lambda: state.health
        servers = [
            f"server {name} {behind[name].place} {state.servers.get(number, '')}"
            for number, name in enumerate(SERVERS)
        ]
        lines = [line.replace("AGENT", str(agent.port)) for line in [*state.options, *servers]]
        other = ("other", [f"server o {behind['e001'].place} check"])
        with running([("edges", lines), other], CLIENTS) as haproxy:
            for command in state.asked:
                assert haproxy.ask(command) == "\n"
            yield Running(haproxy, behind, words)
    agent.close()


def until(condition: Callable[[], object]) -> None:
    ends = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.02)


@pytest.mark.parametrize("state", STATES.values(), ids=list(STATES))
def test_who_is_told_to_serve_gets_requests_and_nobody_else_before_and_after(state: State) -> None:
    """Servers that are put back stand as before, though somebody has set other weights since."""
    with begun(state) as world:
        until(lambda: world.shows(state.gets))
        found = world.driver.servers()
        assert state.why in found["e000"].idle and state.why in why_out(found["e000"])
        before = {name: state_of(own) for name, own in found.items()}
        if {"ready", "drain", "maint"} & {*state.agent.split()}:
            return  # whatever is set, the agent undoes it within 50 ms
        for name in SERVERS:
            world.driver.withdraw(name)
            world.driver.isolate(name)
        assert world.serving == who_gets(world.clients, SERVERS) == set()
        if not state.agent:
            world.haproxy.ask(_set(0, "weight 100%"))
            world.haproxy.ask(_set(3, "weight 0%"))
        for name in SERVERS:
            put_back(world.driver, name, before[name])
        until(lambda: world.shows(state.gets))
        after = {name: state_of(own) for name, own in world.driver.servers().items()}
        assert state.agent or after == before


def test_what_a_server_inherits_from_a_tracked_one_is_not_forced_upon_it() -> None:
    with begun(STATES["a drain of what is tracked"]) as world:
        before = state_of(world.driver.servers()["e000"])
        world.driver.isolate("e000")
        put_back(world.driver, "e000", before)
        world.haproxy.ask("set server other/o state ready")
        until(lambda: world.shows("0123"))


def test_a_record_of_before_tells_no_weight_and_none_is_set() -> None:
    with begun(STATES["weight 0"]) as world:
        for word in ("drain", "maint", "ready"):
            world.driver.isolate("e000")
            put_back(world.driver, "e000", word)
            assert state_of(world.driver.servers()["e000"]).endswith(f"{word}:0%")


def test_a_full_server_serves_and_what_it_has_queued_counts() -> None:
    held = "use-server e000 if { path_beg /held }"
    with begun(State("123", servers={0: "maxconn 1"}, options=[held])) as world:
        for _ in range(3):
            hold(world.clients, "/held")
        until(lambda: world.driver.servers()["e000"].sessions == 3)
        assert world.driver.servers()["e000"].is_serving
        world.behind["e000"].release.set()
        until(lambda: world.shows("0123"))


COOKIES = {number: f"cookie {name}" for number, name in enumerate(SERVERS)}
STICKY = {
    "cookie": State("0123", (), COOKIES, ["cookie S insert"]),
    "table": State(
        "0123", options=["stick-table type string len 9 size 9", "stick on req.cook(S)"]
    ),
}


@pytest.mark.parametrize("how", ["weight 0", "state drain"])
@pytest.mark.parametrize("state", STICKY.values(), ids=list(STICKY))
def test_clients_of_before_come_to_a_server_without_new_ones_until_it_is_isolated(
    state: State, how: str
) -> None:
    """Its sessions tell. Requests are no proof that it serves: new clients go elsewhere."""
    with begun(state) as world:
        own = request(world.clients, "/", "S=e000")
        assert world.haproxy.ask(f"set server edges/{own} {how}") == "\n"
        assert world.serving == who_gets(world.clients, SERVERS) == {*SERVERS} - {own}
        assert request(world.clients, "/", "S=e000") == own
        hold(world.clients, "/held", "S=e000")
        until(lambda: world.driver.servers()[own].sessions == 1)
        world.driver.isolate(own)
        assert request(world.clients, "/", "S=e000") != own
        assert world.driver.servers()[own].sessions == 1


@pytest.mark.parametrize("how", ["drain", "maint"])
def test_an_agent_that_says_ready_lets_a_withdrawn_server_in_and_no_other_word_does(
    how: str,
) -> None:
    """HAProxy does not tell what an agent says, but that it is asked; ``disable agent`` ends it."""
    with begun(State("0123", (), {0: AGENT}, HEAVY, "up")) as world:
        told = world.driver.servers()
        assert told["e000"].overridden_by == "its agent check in edges"
        assert not told["e001"].overridden_by
        trusting = Haproxy(world.haproxy.address(), "edges", agent_checks="permitted")
        assert not trusting.servers()["e000"].overridden_by
        for word in ("up", "100%", "up 75%", "maxconn:30", "down", "up 100%"):
            world.agent[0] = word
            world.haproxy.ask(_set(0, f"state {how}"))
            time.sleep(0.2)
            assert world.driver.servers()["e000"].withdrawn == how, word
        for word in ("ready", "up ready"):
            world.haproxy.ask(_set(0, f"state {how}"))
            world.agent[0] = word
            until(lambda: world.shows("0123"))
        world.haproxy.ask("disable agent edges/e000")
        world.haproxy.ask(_set(0, f"state {how}"))
        time.sleep(0.2)
        shown_then = world.driver.servers()["e000"]
        assert (shown_then.withdrawn, shown_then.overridden_by) == (how, "")
