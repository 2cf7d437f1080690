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

from edgetune.base.errors import ServerError
from edgetune.net.traffic.drivers.bird import Bird
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


def test_no_part_of_an_answer_of_bird_is_a_whole_one(host: Announcer) -> None:
    for most in range(len(host.bird.answer("show protocols"))):
        host.bird.most = most
        assert not host.ask()["ok"], most


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
