# SPDX-License-Identifier: Apache-2.0
"""A host that announces an address by BIRD, seen from the host and from a router that hears it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from edgetune.errors import ServerError
from edgetune.traffic.drivers.bird import Bird
from tests.support.agent_root import AgentRoot, until
from tests.support.birds import (
    CONSTANTS,
    GRACEFUL,
    HAS_BIRD,
    IN_SERVICE,
    OTHER,
    PAIR,
    PLAIN,
    SOCKET,
    Before,
    ExaBgp,
    FakeBird,
    Router,
    ask,
    exabgp,
    running_exabgp,
    running_router,
)
from tests.support.load_balancers._on_hosts import InProcess
from tests.support.steered import Steered

WAIT = 30
PLAIN6, GRACEFUL6 = "anycast6", "anycast6_leaving"
PAIRS = [PAIR, f"{PLAIN6}/{GRACEFUL6}"]
DRAINED = "define EDGETUNE_DRAINED = 1;\n"
FIELDS: dict[str, Any] = {
    "protocols": [PAIR],
    "peers": [],
    "wait": WAIT,
    "file": f"/{CONSTANTS}",
    "socket": f"/{SOCKET}",
}


class Announcer(Steered):
    """A host with a BIRD in memory."""

    def __init__(self, folder: Path) -> None:
        super().__init__(AgentRoot(folder), "bird", **{**FIELDS, "protocols": PAIRS})
        self.root.write(CONSTANTS, IN_SERVICE)
        self.bird = FakeBird(folder / SOCKET, folder / CONSTANTS)
        self.bird.state.update({PLAIN6: "up", GRACEFUL6: "down"})

    @property
    def on(self) -> set[str]:
        """The enabled protocols that announce an address."""
        own = (PLAIN, GRACEFUL, PLAIN6, GRACEFUL6)
        return {name for name in own if self.bird.state[name] == "up"}


@pytest.fixture
def host() -> Iterator[Announcer]:
    # The path of a socket has 107 characters at most.
    with tempfile.TemporaryDirectory() as folder:
        made = Announcer(Path(folder))
        with closing(made.bird):
            yield made


def test_the_community_comes_first_and_the_withdrawal_last(host: Announcer) -> None:
    seen = host.told("withdraw")
    assert (seen["withdrawn"], seen["leaving"], seen["up"]) == ("graceful", True, True)
    assert host.on == {PLAIN, GRACEFUL, PLAIN6, GRACEFUL6}
    assert host.root.read(CONSTANTS) == IN_SERVICE
    seen = host.told("isolate")
    assert (seen["withdrawn"], seen["leaving"]) == ("withdrawn", False)
    assert not host.on and host.bird.state[OTHER] == "up"
    assert host.root.read(CONSTANTS) == DRAINED
    assert host.told("restore")["withdrawn"] == ""
    assert host.on == {PLAIN, PLAIN6}
    assert host.root.read(CONSTANTS) == IN_SERVICE
    assert {line.split()[0] for line in host.bird.told} == {"show", "enable", "disable"}


def test_an_address_is_never_announced_without_the_community_on_the_way(host: Announcer) -> None:
    def changes(do: str, word: str = "") -> list[str]:
        host.bird.told.clear()
        host.told(do, word)
        told = [line.split() for line in host.bird.told if '"' not in line]
        return [" ".join(words) for words in told if words[0] in ("enable", "disable")]

    host.told("withdraw")
    order = [PLAIN, PLAIN6, GRACEFUL, GRACEFUL6]
    assert changes("isolate") == [f"disable {name}" for name in order]
    order = [GRACEFUL, GRACEFUL6, PLAIN, PLAIN6]
    assert changes("restore", "graceful") == [f"enable {name}" for name in order]
    last = changes("restore")
    plain, graceful = last.index(f"enable {PLAIN}"), last.index(f"disable {GRACEFUL}")
    assert plain < graceful, "the address was away for a moment"


def test_what_a_person_has_disabled_is_announced_in_no_way_and_stays_so(host: Announcer) -> None:
    host.bird.state[PLAIN6] = "down"
    assert host.told()["withdrawn"] == "", "the other address is served"
    for do in ("withdraw", "withdraw"):
        host.told(do)
        assert host.on == {PLAIN, GRACEFUL}
    host.told("isolate")
    # The next boot has both disabled, by the constant.
    host.root.new_boot_id()
    host.told("restore")
    assert host.on == {PLAIN}
    host.told("restore")
    assert host.on == {PLAIN}


@pytest.mark.parametrize(
    ("do", "then"), [("withdraw", "withdraw"), ("isolate", "isolate"), ("isolate", "withdraw")]
)
def test_an_order_that_was_cut_off_anywhere_is_finished_and_taken_back(
    host: Announcer, do: str, then: str
) -> None:
    """What it left half done is no former state to come back to."""
    host.told(do)
    after = host.on
    for heard in range(len(host.bird.told)):
        host.told("restore")
        assert host.on == {PLAIN, PLAIN6}, heard
        host.bird.patience = heard
        assert not host.ask(do)["ok"], heard
        host.bird.patience = 1 << 20
        host.told(then)
        assert host.on == after or do != then, heard
    host.told("restore")
    assert host.on == {PLAIN, PLAIN6}


def test_a_host_is_leaving_for_as_long_as_the_inventory_says(host: Announcer) -> None:
    def leaving(uptime: int) -> bool:
        host.root.write("proc/uptime", f"{uptime}.00 0\n")
        return bool(host.told("withdraw")["leaving"])

    assert [leaving(uptime) for uptime in (100, 129, 130)] == [True, True, False]
    # As the first order left it that ended between the two addresses.
    host.bird.state[GRACEFUL6] = "down"
    assert host.told()["withdrawn"] == "", "one address is still served"
    assert [leaving(uptime) for uptime in (130, 159, 160)] == [True, True, False]


def test_what_was_enabled_by_hand_is_announced_as_the_others_are(host: Announcer) -> None:
    host.bird.state[PLAIN6] = "down"
    for do in ("withdraw", "isolate"):
        host.told(do)
    host.bird.state[PLAIN6] = "up"
    assert host.told("restore", "graceful")["withdrawn"] == "graceful"
    assert host.on == {PLAIN, GRACEFUL, PLAIN6, GRACEFUL6}


def test_a_host_that_somebody_withdrew_wholly_serves_when_it_is_asked_to(host: Announcer) -> None:
    host.bird.state.update({PLAIN: "down", PLAIN6: "down"})
    assert host.told("isolate")["withdrawn"] == "withdrawn"
    assert host.told("restore", "withdrawn")["withdrawn"] == "withdrawn"
    assert host.root.read(CONSTANTS) == IN_SERVICE, "a person's own withdrawal ends with a boot"
    host.told("restore")
    assert host.on == {PLAIN, PLAIN6}


def test_a_host_that_no_router_hears_does_not_serve(host: Announcer) -> None:
    assert host.told(peers=["router1"])["up"]
    host.bird.established = False
    assert not host.told()["up"]
    assert not host.told(peers=["router1"])["up"]
    assert "no protocol router9" in host.refused("look", peers=["router9"])


@pytest.mark.parametrize(
    ("bird", "constants", "why"),
    [
        ({"denies": True}, IN_SERVICE, "obeys nothing: Access denied"),
        ({}, "", "edgetune.conf with the line 'define EDGETUNE_DRAINED = 0;' is not there"),
        ({}, IN_SERVICE.replace("0;", "0; define MORE = 1;"), "has to be one line"),
        ({"includes": False}, IN_SERVICE, "does not include"),
    ],
)
def test_a_host_that_would_not_obey_says_so_before_and_changes_nothing(
    host: Announcer, bird: dict[str, bool], constants: str, why: str
) -> None:
    assert host.told()["refuses"] == ""
    vars(host.bird).update(bird)
    host.root.write(CONSTANTS, constants)
    if not constants:
        (host.root.path / CONSTANTS).unlink()
    before = dict(host.bird.state)
    assert why in host.told()["refuses"]
    for do in ("withdraw", "isolate"):
        assert why in host.refused(do)
    assert host.bird.state == before
    assert not host.root.exists("var/lib/edgetune/drain-bird.json")


def test_a_file_that_contradicts_the_present_state_is_told(host: Announcer) -> None:
    host.root.write(CONSTANTS, DRAINED)
    assert "a boot would withdraw it" in host.told()["refuses"]


def test_no_part_of_an_answer_of_bird_is_a_whole_one(host: Announcer) -> None:
    for most in range(len(host.bird.answer("show protocols"))):
        host.bird.most = most
        assert not host.ask()["ok"], most


def test_an_answer_that_comes_line_by_line_is_read_to_its_end(host: Announcer) -> None:
    host.bird.by_lines = True
    assert host.told()["up"], "the session is in the last line but one"


def test_a_bird_or_a_protocol_that_is_gone_is_no_host_out_of_service(host: Announcer) -> None:
    orders = ("look", "withdraw", "isolate", "restore")
    for do in orders:
        assert "no protocol web, web_leaving" in host.refused(do, protocols=["web/web_leaving"])
    host.bird.close()
    (host.root.path / SOCKET).unlink()
    for do in orders:
        assert "BIRD does not answer" in host.refused(do)


def test_names_are_names(host: Announcer) -> None:
    for text in ("anycast", "anycast/", "a b/c", "anycast/x; configure", ""):
        reply = host.ask("withdraw", protocols=[text])
        assert reply["error"]["field"] == "fields.protocols[0]" and host.bird.told == []


def test_a_host_that_is_still_announced_is_not_taken_for_isolated(host: Announcer) -> None:
    """The driver asks once more, and believes no half of it."""
    agents = InProcess({"e000": host.root})
    fields = {**FIELDS, "protocols": ",".join(PAIRS), "peers": "", "wait": "0s"}
    driver = Bird(agents, **fields)
    driver.withdraw("e000")
    host.bird.denies = True
    with pytest.raises(ServerError, match="e000: isolate: .*Access denied"):
        driver.isolate("e000")
    host.bird.denies = False
    driver.isolate("e000")
    assert driver.servers()["e000"].withdrawn == "withdrawn"


# --- real BIRDs, and a router that hears them


needs_bird = pytest.mark.skipif(not HAS_BIRD, reason="needs root and bird2")


@pytest.fixture
def heard() -> Iterator[tuple[Router, Steered]]:
    with tempfile.TemporaryDirectory() as folder:
        roots = {name: Path(folder, name) for name in ("e000", "e001")}
        with running_router(Path(folder), roots) as router, _on(router) as host:
            yield router, host


@pytest.fixture
def noted() -> Iterator[tuple[ExaBgp, Steered]]:
    with tempfile.TemporaryDirectory() as folder:
        roots = {"e000": Path(folder, "e000")}
        with running_exabgp(Path(folder), roots) as router, _on(router) as host:
            yield router, host


@contextmanager
def _on(router: Router) -> Iterator[Steered]:
    """The host e000, whose agent talks to a real BIRD."""
    root = router.roots["e000"]
    with closing(Before(root / SOCKET, router.sockets["e000"])):
        yield Steered(AgentRoot(root), "bird", **FIELDS)


def _session_began(router: Router) -> datetime:
    """When the session began. BIRD reckons it from two clocks anew: it moves by a millisecond."""
    protocols = ask(router.sockets["e000"], "show protocols").splitlines()
    (since,) = (line.split()[4] for line in protocols if "router1" in line)
    return datetime.fromisoformat(f"2026-01-01T{since}")


@needs_bird
@pytest.mark.processes
def test_a_router_sees_the_community_then_the_withdrawal_and_no_session_ends(
    heard: tuple[Router, Steered],
) -> None:
    router, host = heard
    began = _session_began(router)
    assert host.told("withdraw")["withdrawn"] == "graceful"
    assert until(lambda: router.paths() == {"e000": True, "e001": False})
    host.told("isolate")
    assert until(lambda: router.paths() == {"e001": False})
    host.told("restore")
    assert until(lambda: router.paths() == {"e000": False, "e001": False})
    assert abs(_session_began(router) - began) < timedelta(milliseconds=50)


@pytest.mark.skipif(not (HAS_BIRD and exabgp("exabgp")), reason="needs root, bird2 and exabgp")
@pytest.mark.processes
def test_another_speaker_hears_the_community_then_the_withdrawal(
    noted: tuple[ExaBgp, Steered],
) -> None:
    """Each once, and nothing else: a session that ended would withdraw all at once."""
    router, host = noted
    began = _session_began(router)
    host.told("withdraw")
    assert until(lambda: router.paths() == {"e000": True})
    host.told("isolate")
    assert until(lambda: router.paths() == {})
    host.told("restore")
    assert until(lambda: router.paths() == {"e000": False})
    assert [word for _, word in router.heard()] == ["plain", "65535:0", "withdrawn", "plain"]
    assert abs(_session_began(router) - began) < timedelta(milliseconds=50)


@needs_bird
@pytest.mark.processes
def test_a_bird_that_starts_announces_nothing_until_the_host_is_restored(
    heard: tuple[Router, Steered],
) -> None:
    router, host = heard
    host.told("isolate")
    router.stop("e000")
    router.start("e000")
    # It may end a conversation while it starts.
    assert until(lambda: host.ask().get("result", {}).get("up"))
    assert host.told()["withdrawn"] == "withdrawn"
    assert router.paths() == {"e001": False}
    host.told("restore")
    router.wait_until_heard()
    # To configure BIRD would bring back what a person disabled, so the agent never does it.
    for command in (f"disable {OTHER}", "configure"):
        ask(router.sockets["e000"], command)
    told = ask(router.sockets["e000"], "show protocols").splitlines()
    assert next(line.split()[3] for line in told if OTHER in line) == "up"
