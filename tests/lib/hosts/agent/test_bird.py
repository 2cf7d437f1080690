# SPDX-License-Identifier: Apache-2.0
"""A host that announces an address by BIRD, seen from the host and from a router that hears it."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Callable

import pytest

from edgetune.errors import ServerError
from edgetune.hosts.agent.dispatch import answer
from edgetune.traffic.drivers.bird import Bird
from tests.support.agent_root import AgentRoot, request
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

WAIT = 30
PLAIN6, GRACEFUL6 = "anycast6", "anycast6_leaving"
PAIRS = [PAIR, f"{PLAIN6}/{GRACEFUL6}"]
DRAINED = "define EDGETUNE_DRAINED = 1;\n"


class Announcer:
    """A host, its BIRD, and what its agent answers."""

    def __init__(self, folder: Path) -> None:
        self.root = AgentRoot(folder)
        self.root.write(CONSTANTS, IN_SERVICE)
        self.bird = FakeBird(folder / SOCKET, folder / CONSTANTS)
        self.bird.state.update({PLAIN6: "up", GRACEFUL6: "down"})

    def ask(self, do: str = "look", word: str = "", **more: Any) -> dict[str, Any]:
        fields = {"protocols": PAIRS, "peers": [], "wait": WAIT, **more}
        fields = {"file": f"/{CONSTANTS}", "socket": f"/{SOCKET}", **fields}
        asked = {"by": "bird", "fields": fields, "do": do, "withdrawn": word, "ports": [80]}
        asked["epoch"] = 1
        return answer(str(self.root.path), request("drain", **asked))

    def told(self, do: str = "look", word: str = "", **more: Any) -> dict[str, Any]:
        reply = self.ask(do, word, **more)
        assert reply["ok"], reply
        found: dict[str, Any] = reply["result"]
        return found

    def refused(self, do: str, **more: Any) -> str:
        reply = self.ask(do, **more)
        assert not reply["ok"], reply
        return str(reply["error"]["message"])

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


def test_an_address_is_never_announced_without_the_community_on_the_way(host: Announcer) -> None:
    host.told("withdraw")
    host.bird.told.clear()
    host.told("isolate")
    changes = [line.split()[1] for line in host.bird.told if line.startswith("disable any")]
    assert changes == [PLAIN, PLAIN6, GRACEFUL, GRACEFUL6]
    host.bird.told.clear()
    host.told("restore", "graceful")
    changes = [line.split()[1] for line in host.bird.told if line.startswith("enable ")]
    assert changes == [GRACEFUL, GRACEFUL6, PLAIN, PLAIN6]
    host.bird.told.clear()
    host.told("restore")
    changes = [line for line in host.bird.told if line.split()[0] in ("enable", "disable")]
    plain = changes.index(f"enable {PLAIN}")
    assert plain < changes.index(f"disable {GRACEFUL}"), "the address was away for a moment"


def test_bird_is_told_to_enable_and_disable_and_nothing_else(host: Announcer) -> None:
    for do in ("withdraw", "isolate", "restore"):
        host.told(do)
    assert {line.split()[0] for line in host.bird.told} == {"show", "enable", "disable"}


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


def test_a_withdrawal_that_was_cut_off_is_no_former_state(host: Announcer) -> None:
    host.told("withdraw")
    host.bird.state[PLAIN] = "down"
    host.told("isolate")
    assert not host.on
    host.told("restore")
    assert host.on == {PLAIN, PLAIN6}


@pytest.mark.parametrize("do", ["withdraw", "isolate"])
def test_an_order_that_was_cut_off_anywhere_is_finished_by_the_next(
    host: Announcer, do: str
) -> None:
    host.told(do)
    after = host.on
    for heard in range(len(host.bird.told)):
        host.told("restore")
        host.bird.patience = heard
        assert not host.ask(do)["ok"], heard
        host.bird.patience = 1 << 20
        host.told(do)
        assert host.on == after, heard


def test_what_an_isolation_that_was_cut_off_withdrew_comes_back(host: Announcer) -> None:
    host.told("isolate")
    for heard in range(len(host.bird.told)):
        host.told("restore")
        host.bird.patience = heard
        assert not host.ask("isolate")["ok"], heard
        host.bird.patience = 1 << 20
        host.told("withdraw")
        host.told("restore")
        assert host.on == {PLAIN, PLAIN6}, heard


def test_what_is_announced_with_the_community_late_has_its_time_too(host: Announcer) -> None:
    host.root.write("proc/uptime", "100.00 0\n")
    host.told("withdraw")
    # As the first order left it that ended between the two addresses.
    host.bird.state[GRACEFUL6] = "down"
    assert host.told()["withdrawn"] == "", "one address is still served"
    for uptime, leaving in ((130, True), (159, True), (160, False)):
        host.root.write("proc/uptime", f"{uptime}.00 0\n")
        assert host.told("withdraw")["leaving"] is leaving


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


def test_a_host_is_leaving_for_as_long_as_the_inventory_says(host: Announcer) -> None:
    host.root.write("proc/uptime", "100.00 0\n")
    host.told("withdraw")
    for uptime, leaving in ((129, True), (130, False)):
        host.root.write("proc/uptime", f"{uptime}.00 0\n")
        assert host.told("withdraw")["leaving"] is leaving


def test_a_host_that_no_router_hears_does_not_serve(host: Announcer) -> None:
    assert host.told(peers=["router1"])["up"]
    host.bird.established = False
    assert not host.told()["up"]
    assert not host.told(peers=["router1"])["up"]
    assert "no protocol router9" in host.refused("look", peers=["router9"])


def _deny(host: Announcer) -> None:
    host.bird.denies = True


def _forget_file(host: Announcer) -> None:
    (host.root.path / CONSTANTS).unlink()


def _other_file(host: Announcer) -> None:
    host.root.write(CONSTANTS, "define EDGETUNE_DRAINED = 0; define MORE = 1;\n")


def _no_include(host: Announcer) -> None:
    host.bird.includes = False


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_deny, "obeys nothing: Access denied"),
        (_forget_file, "edgetune.conf with the line 'define EDGETUNE_DRAINED = 0;' is not there"),
        (_other_file, "has to be one line"),
        (_no_include, "does not include"),
    ],
)
def test_a_host_that_would_not_obey_says_so_before_and_changes_nothing(
    host: Announcer, spoil: Callable[[Announcer], None], why: str
) -> None:
    assert host.told()["refuses"] == ""
    spoil(host)
    before = dict(host.bird.state)
    assert why in host.told()["refuses"]
    for do in ("withdraw", "isolate"):
        assert why in host.refused(do)
    assert host.bird.state == before
    assert not host.root.exists("var/lib/edgetune/drain-bird.json")


def test_a_file_that_contradicts_the_present_state_is_told(host: Announcer) -> None:
    host.root.write(CONSTANTS, DRAINED)
    assert "a boot would withdraw it" in host.told()["refuses"]


def test_a_protocol_that_is_not_there_is_named(host: Announcer) -> None:
    for do in ("look", "withdraw", "isolate", "restore"):
        assert "no protocol web, web_leaving" in host.refused(do, protocols=["web/web_leaving"])


def test_no_part_of_an_answer_of_bird_is_a_whole_one(host: Announcer) -> None:
    for most in range(len(host.bird.answer("show protocols"))):
        host.bird.most = most
        assert not host.ask()["ok"], most


def test_an_answer_that_comes_line_by_line_is_read_to_its_end(host: Announcer) -> None:
    host.bird.by_lines = True
    seen = host.told()
    assert seen["up"], "the session is in the last line but one"


def test_a_bird_that_is_gone_is_no_host_out_of_service(host: Announcer) -> None:
    host.bird.close()
    (host.root.path / SOCKET).unlink()
    for do in ("look", "withdraw", "isolate", "restore"):
        assert "BIRD does not answer" in host.refused(do)


@pytest.mark.parametrize("text", ["anycast", "anycast/", "a b/c", "anycast/x; configure", ""])
def test_names_are_names(host: Announcer, text: str) -> None:
    reply = host.ask("withdraw", protocols=[text])
    assert reply["error"]["field"] == "fields.protocols[0]"
    assert json.dumps(host.bird.told) == "[]"


def test_a_host_that_is_still_announced_is_not_taken_for_isolated(host: Announcer) -> None:
    """The driver asks once more, and believes no half of it."""
    agents = InProcess({"e000": host.root})
    fields = {"peers": "", "file": f"/{CONSTANTS}", "socket": f"/{SOCKET}", "wait": "0s"}
    driver = Bird(agents, protocols=",".join(PAIRS), **fields)
    driver.withdraw("e000")
    host.bird.denies = True
    with pytest.raises(ServerError, match="e000: isolate: .*Access denied"):
        driver.isolate("e000")
    host.bird.denies = False
    driver.isolate("e000")
    assert driver.servers()["e000"].withdrawn == "withdrawn"


# --- real BIRDs, and a router that hears them


@pytest.fixture
def heard() -> Iterator[tuple[Router, Announcer]]:
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        roots = {name: folder / name for name in ("e000", "e001")}
        with running_router(folder, roots) as router, _on(router) as host:
            yield router, host


@pytest.fixture
def noted() -> Iterator[tuple[ExaBgp, Announcer]]:
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        with running_exabgp(folder, {"e000": folder / "e000"}) as router, _on(router) as host:
            yield router, host


@contextmanager
def _on(router: Router) -> Iterator[Announcer]:
    """The host e000, whose agent talks to a real BIRD."""
    host = Announcer.__new__(Announcer)
    host.root = AgentRoot(router.roots["e000"])
    with closing(Before(router.roots["e000"] / SOCKET, router.sockets["e000"])):
        yield host


def _until(condition: Callable[[], object]) -> None:
    ends = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.02)


def _session_began(router: Router) -> datetime:
    """When the session began. BIRD reckons it from two clocks anew: it moves by a millisecond."""
    protocols = ask(router.sockets["e000"], "show protocols").splitlines()
    (since,) = (line.split()[4] for line in protocols if "router1" in line)
    return datetime.fromisoformat(f"2026-01-01T{since}")


@pytest.mark.skipif(not HAS_BIRD, reason="needs root and bird2")
@pytest.mark.processes
def test_a_router_sees_the_community_then_the_withdrawal_and_no_session_ends(
    heard: tuple[Router, Announcer],
) -> None:
    router, host = heard
    began = _session_began(router)
    assert host.told("withdraw", protocols=[PAIR])["withdrawn"] == "graceful"
    _until(lambda: router.paths() == {"e000": True, "e001": False})
    host.told("isolate", protocols=[PAIR])
    _until(lambda: router.paths() == {"e001": False})
    host.told("restore", protocols=[PAIR])
    _until(lambda: router.paths() == {"e000": False, "e001": False})
    assert abs(_session_began(router) - began) < timedelta(milliseconds=50)


@pytest.mark.skipif(not (HAS_BIRD and exabgp("exabgp")), reason="needs root, bird2 and exabgp")
@pytest.mark.processes
def test_another_speaker_hears_the_community_then_the_withdrawal(
    noted: tuple[ExaBgp, Announcer],
) -> None:
    """Each once, and nothing else: a session that ended would withdraw all at once."""
    router, host = noted
    began = _session_began(router)
    host.told("withdraw", protocols=[PAIR])
    _until(lambda: router.paths() == {"e000": True})
    host.told("isolate", protocols=[PAIR])
    _until(lambda: router.paths() == {})
    host.told("restore", protocols=[PAIR])
    _until(lambda: router.paths() == {"e000": False})
    assert [word for _, word in router.heard()] == ["plain", "65535:0", "withdrawn", "plain"]
    assert abs(_session_began(router) - began) < timedelta(milliseconds=50)


@pytest.mark.skipif(not HAS_BIRD, reason="needs root and bird2")
@pytest.mark.processes
def test_a_bird_that_starts_announces_nothing_until_the_host_is_restored(
    heard: tuple[Router, Announcer],
) -> None:
    router, host = heard
    host.told("isolate", protocols=[PAIR])
    router.stop("e000")
    router.start("e000")
    _until(lambda: host.told(protocols=[PAIR])["up"])
    assert host.told(protocols=[PAIR])["withdrawn"] == "withdrawn"
    assert router.paths() == {"e001": False}
    host.told("restore", protocols=[PAIR])
    router.wait_until_heard()


@pytest.mark.skipif(not HAS_BIRD, reason="needs root and bird2")
@pytest.mark.processes
def test_to_configure_bird_would_bring_back_what_a_person_disabled(
    heard: tuple[Router, Announcer],
) -> None:
    """Why the agent never does it."""
    router, _ = heard
    ask(router.sockets["e000"], f"disable {OTHER}")
    ask(router.sockets["e000"], "configure")
    told = ask(router.sockets["e000"], "show protocols").splitlines()
    assert next(line.split()[3] for line in told if OTHER in line) == "up"
