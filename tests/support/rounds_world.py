# SPDX-License-Identifier: Apache-2.0
"""A PoP whose congestion control is tuned: its clients, its hosts and the clock are in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timezone
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

from edgetune.agent.vocabulary.prefixes import number_of
from edgetune.base import clock
from edgetune.base.documents.congestion import ROUND
from edgetune.base.documents.rounds import Decisions, Rounds
from edgetune.base.errors import SourceError
from edgetune.base.freezes import DAYS, Freeze
from edgetune.net.databases import Database
from edgetune.net.result import HostResult
from edgetune.site.inventory import Pop
from edgetune.wings.congestion.rounds import round as round_module
from edgetune.wings.congestion.rounds import work
from edgetune.wings.congestion.rounds.steps.push_configuration import push_configuration
from edgetune.wings.congestion.rounds.steps.select_prefixes import select_prefixes
from edgetune.wings.congestion.rounds.work import RoundResult, open_rounds, read_known
from edgetune.wings.congestion.rows import MEASURES, PrefixRows, make_rows
from tests.support.builders import LOGGED, inventory_document, write_yaml
from tests.support.scenarios import Scenario
from tests.support.virtual_clock import VirtualClock
from tests.support.world import EmptyWorld, Hosts

FIRST = 5_880_000
"""The round in which a world begins."""

QUICK: Mapping[str, Any] = {
    "window": 4,
    "sockets": 1,
    "stay": 4,
    "warmup": 1,
    "new": 20,
    "slowest": 0.5,
    "held_out": 0.4,
    "alpha": 0.5,
    "looks": 168,
}
USUAL = {"sockets": 10.0, "goodput": 5e5, "rtt_ms": 40.0, "min_rtt_ms": 30.0, "bytes_acked": 9e5}


class CongestionHosts(Hosts):
    """Hosts that take configurations as the agent does. ``refusing`` says why some do not,
    ``mute`` are out of reach, and of those that are ``late`` the answer is lost. Each has an epoch
    of its own for congestion control, and takes back what nobody renews."""

    def __init__(self, moments: Any) -> None:
        super().__init__(moments)
        self.standing_there: dict[str, dict[str, Any]] = {}
        self.refusing: dict[str, str] = {}
        self.changes: dict[str, dict[str, Any]] = {}
        self.mute: set[str] = set()
        self.late: set[str] = set()
        self.ends: dict[str, float] = {}
        self.heard: list[tuple[str, int, int]] = []
        self.newest_epoch: dict[str, int] = {}

    def ask(
        self, hosts: Any, verb: str, request: Any, timeout: float = 0, patience: float = 0
    ) -> dict[str, HostResult]:
        if verb != "congestion":
            return super().ask(hosts, verb, request, timeout, patience)
        return {host.name: self._take(host.name, request(host)) for host in hosts}

    def _take(self, name: str, request: Mapping[str, Any]) -> HostResult:
        json.dumps(request)
        own, epoch = request["configuration"], request["epoch"]
        self.heard.append((name, own["number"], len(own["prefixes"])))
        if name in self.mute:
            return HostResult(name, error="timed out", reason="unreachable")
        if epoch < self.newest_epoch.get(name, 0):
            return HostResult(name, error=f"epoch {epoch} is older", reason="refused")
        with self._moments.around(f"{name} congestion"):
            self.newest_epoch[name] = epoch
            if own["prefixes"] and name in self.refusing:
                return HostResult(name, error=self.refusing[name], reason="refused")
            before = self.standing_there.get(name)
            if own["prefixes"] and before and own["number"] < before["number"]:
                return HostResult(name, error="a later one stands here", reason="refused")
            self.standing_there.pop(name, None)
            if own["prefixes"]:
                self.standing_there[name] = own
                self.ends[name] = clock.wall() + own["ttl"]
        if name in self.late:
            return HostResult(name, error="its answer did not come in time", reason="unreachable")
        kept = self.standing_there.get(name, {})
        told = {"number": kept.get("number", 0), "checksum": kept.get("checksum", "")}
        more = {"prefixes": len(kept.get("prefixes", [])), "kept": True, "skipped": {}}
        data = {**told, **more, "seconds_left": 1.0, "boot_id": "b", **self.changes.get(name, {})}
        return HostResult(name, data=data)

    def expire(self, now: float) -> None:
        """As the keeper of each does; ``ends`` has epoch seconds."""
        for name in [name for name in self.standing_there if self.ends[name] < now]:
            del self.standing_there[name]

    def forget(self, name: str) -> None:
        """As a boot does: it has nothing of ours afterwards."""
        self.standing_there.pop(name, None)

    def treated(self) -> dict[str, list[str]]:
        """What stands on each host."""
        return {
            name: [each["prefix"] for each in own["prefixes"]]
            for name, own in self.standing_there.items()
        }

    def numbers(self) -> dict[str, int]:
        return {name: own["number"] for name, own in self.standing_there.items()}


class Sockets:
    """A source of sockets; ``rates`` has bytes a second by prefix, ``away`` why it tells nothing.

    ``again`` is the share that is sent again, by prefix.
    """

    def __init__(self) -> None:
        self.rates: dict[str, float] = {}
        self.again: dict[str, float] = {}
        self.away = ""
        self.behind = 0
        self.read_rounds: list[int] = []

    def newest(self, now: float) -> int:
        return int(now // ROUND) - self.behind

    def read(self, pop: Pop, number: int, least: int) -> PrefixRows:
        if self.away:
            raise SourceError(self.away)
        self.read_rounds.append(number)
        known = sorted(self.rates, key=number_of)
        columns: dict[str, list[object]] = {name: [] for name in MEASURES}
        for prefix in known:
            again = self.again.get(prefix, 0.01)
            own = {"delivery_rate": self.rates[prefix], "bytes_sent": 1e6}
            row = {**USUAL, **own, "bytes_retransmitted": again * 1e6}
            for name in MEASURES:
                columns[name].append(row[name])
        return make_rows("lab1: a test", number, [number_of(own) for own in known], columns)


class RoundsWorld(EmptyWorld):
    """Four hosts. Half of 40 prefixes are slow, and some of the slow ones are held out."""

    hosts: CongestionHosts

    def __init__(self, folder: Path, hosts: int = 4, **entry: Any) -> None:
        super().__init__(folder)
        self.folder, self._hosts = folder, hosts
        self.hosts = CongestionHosts(self.moments)
        self.context.fleet = self.hosts  # type: ignore[assignment]
        self.write_entry({"thresholds": {**QUICK}, "canary": "e002", **entry})
        self.sockets = Sockets()
        self.salt = "salt"
        self.slow = [f"203.0.{i}.0/24" for i in range(20)]
        self.fast = [f"198.51.{i}.0/24" for i in range(20)]
        self.sockets.rates = {
            **{own: 1e4 * (1 + i / 100) for i, own in enumerate(self.slow)},
            **dict.fromkeys(self.fast, 1e6),
        }
        self.clock = VirtualClock(FIRST * ROUND + 100.0, look=0.0)

    def write_entry(self, entry: Mapping[str, Any] | None) -> None:
        """Have the inventory say this of the PoP."""
        document = inventory_document(hosts=self._hosts)
        document["pops"]["lab1"]["metrics"] = LOGGED
        if entry is not None:
            document["pops"]["lab1"]["congestion"] = {**entry}
        write_yaml(self.folder / "inventory.yaml", document)
        self.context.__dict__.pop("inventory", None)

    @property
    def now(self) -> float:
        return self.clock.wall()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """The clock is that of the world, and the source, too."""
        opened = mock.patch.object(round_module, "open_source", lambda *given: self.sockets)
        salt = mock.patch.object(work.secrets, "token_hex", lambda size: self.salt)
        with opened, salt, clock.use(self.clock):
            yield

    def round(self, later: float = ROUND) -> RoundResult:
        """One run of the workflow, so many seconds after the one before."""
        self.clock.wait(later)
        with self.at_work():
            told = select_prefixes(self.context, "lab1")
            if told["next"]:
                assert told["next"] == "push_configuration"
                told = push_configuration(self.context, "lab1")
        return told

    def rounds(self, many: int) -> list[RoundResult]:
        return [self.round() for _ in range(many)]

    def do(self, step: Any, **given: Any) -> Any:
        with self.at_work():
            return step(self.context, pop="lab1", **given)

    def more_slow(self) -> None:
        """Five more prefixes are slow from now on, so that another configuration is wanted."""
        self.sockets.rates.update(dict.fromkeys(self.fast[:5], 9e3))
        self.sockets.rates.update(dict.fromkeys(self.slow[15:], 2e6))

    @property
    def decided(self) -> Decisions:
        found = read_known(self.context, "lab1")
        assert found
        return found

    @property
    def kept(self) -> Rounds:
        found = open_rounds(self.context.config).get("lab1")
        assert found
        return found

    @property
    def chosen(self) -> Mapping[str, Any]:
        """By prefix, as the selection has it."""
        return {own["prefix"]: own for own in json.loads(self.kept.selection)["chosen"]}


class RoundsMoves(Scenario):
    """Moves of a PoP whose congestion control is tuned."""

    world: RoundsWorld

    def __init__(self, world: Any, *more: Any, **own: Any) -> None:
        super().__init__(world, *more, **own)
        is_tuned = isinstance(world, RoundsWorld) and world.sockets.read_rounds
        self._held_out = held_out(world) if is_tuned else set()

    def entry(self, entry: dict[str, Any] | None) -> None:
        """The entry of the PoP, beside quick thresholds and the canary; null takes it out."""
        if entry is not None:
            thresholds = {**QUICK, **entry.get("thresholds", {})}
            entry = {"canary": "e002", **entry, "thresholds": thresholds}
        self.world.write_entry(entry)

    def round(self, later: float | None) -> None:
        self.result = self.world.round(ROUND if later is None else later)

    def rounds(self, many: int) -> None:
        self.result = self.world.rounds(many)[-1]

    def rounds_of(self, later: list[float]) -> None:
        """Rounds, each of which gives what is seen then."""
        for each in later:
            self.round(each)

    def as_selected(self, _: object) -> None:
        assert_as_selected(self.world)

    def more_slow(self, _: object) -> None:
        """Five more prefixes are slow from now on, so that another configuration is wanted."""
        self.world.more_slow()

    def all_slow(self, _: object) -> None:
        """What is slow is chosen, and nothing else."""
        assert set(self.world.chosen) == set(self.world.slow), self.where

    def told(self, many: int | None) -> None:
        """The source tells of so many prefixes alone; null of all again."""
        if many is None:
            self.world.sockets.rates = self._rates
        else:
            self._rates = self.world.sockets.rates
            self.world.sockets.rates = dict([*self._rates.items()][:many])

    def catches_up(self, many: int) -> None:
        """All that is slow is treated in the end, never so many more than in the round before."""
        before = self.treated
        for _ in range(8):
            assert self.world.round()["failed"] == [], self.where
            assert_as_selected(self.world)
            assert len(self.treated - before) <= many, self.where
            before = self.treated
        assert set(self.world.chosen) == set(self.world.slow), self.where

    def harm(self, _: object) -> None:
        """What is treated gets slower by it."""
        treated = sorted(set(self.world.chosen) - held_out(self.world))
        slower = {prefix: 3e3 * (1 + n / 100) for n, prefix in enumerate(treated)}
        self.world.sockets.rates.update(slower)

    def sql(self, statements: list[str]) -> None:
        """Somebody writes into the database."""
        with Database(self.world.config["coordination"]).transaction() as db:
            for each in statements:
                db.execute(each)

    @property
    def treated(self) -> set[str]:
        """What stands on all hosts alike."""
        found = [{*own} for own in self.world.hosts.treated().values()] or [set()]
        assert all(own == found[0] for own in found), self.where
        return found[0]

    @property
    def treats(self) -> int:
        return len(self.treated)

    @property
    def holds_out(self) -> bool:
        """Whether all are held out that were at first."""
        return held_out(self.world) >= self._held_out

    def frozen(self, _: object) -> None:
        """The configuration has a freeze of all times."""
        self.config({"freezes": (Freeze("finals", DAYS, 0, 0, timezone.utc),)})

    @property
    def failed(self) -> set[str]:
        return set(self.result["failed"])

    @property
    def done(self) -> set[str]:
        return set(self.result["done"])

    @property
    def reads(self) -> int:
        """How many rounds were read from the source."""
        return len(self.world.sockets.read_rounds)

    @property
    def rows(self) -> int:
        return len(self.world.kept.rows)

    @property
    def many(self) -> int:
        """How many prefixes are chosen."""
        return len(self.world.chosen)

    @property
    def fast_chosen(self) -> int:
        return len(set(self.world.chosen) - set(self.world.slow))

    @property
    def heard_of(self) -> set[int]:
        """The configurations that hosts heard of."""
        return {number for _, number, _ in self.world.hosts.heard}

    @property
    def treating(self) -> set[str]:
        """Hosts that treat anything."""
        return set(self.world.hosts.treated())

    def later(self, seconds: float) -> None:
        """Time passes in which nothing is done."""
        self.world.clock.wait(seconds)

    def select(self, later: float) -> None:
        """The first half of a round, so many seconds later."""
        self.world.clock.wait(later)
        self.result = self.world.do(select_prefixes)

    def do(self, named: dict[str, dict[str, Any]]) -> None:
        """A step of rounds, with its parameters."""
        for name, more in named.items():
            step = getattr(import_module(f"edgetune.wings.congestion.rounds.steps.{name}"), name)
            self.result = self.world.do(step, **more)


def treating(folder: Path, **entry: Any) -> RoundsWorld:
    """A world whose hosts treat prefixes."""
    world = RoundsWorld(folder, **entry)
    world.rounds(4)
    assert world.hosts.treated()
    return world


def held_out(world: RoundsWorld) -> set[str]:
    return {prefix for prefix, own in world.chosen.items() if own["held_out"]}


def assert_as_selected(world: RoundsWorld) -> None:
    """Every host treats what was chosen and is not held out, and nothing else."""
    wanted = sorted(set(world.chosen) - held_out(world))
    treated = {name: sorted(own) for name, own in world.hosts.treated().items()}
    assert treated == dict.fromkeys(("e000", "e001", "e002", "e003"), wanted)


def names(hosts: Sequence[tuple[str, int, int]]) -> list[str]:
    return [name for name, _, _ in hosts]
