# SPDX-License-Identifier: Apache-2.0
"""Scenarios as data: moves upon a world of doubles, and what is seen of it after each.

A scenario is a list of moves. The fields of a move are taken in the order in which they stand; each
is a method below, or of a subclass. Names of hosts stand for those of the plan: ``HOST`` is the
first batch, ``SHAM`` the first that changes nothing, ``ONE``, ``TWO`` and ``THREE`` the first batch
of three, ``OTHER`` is in none of them. ``...`` within a text stands for any text.

A path such as ``hosts.unreachable`` leads from the world to a fact of a double; with words behind
it, as in ``bmcs.sent_to HOST reset``, to what a method tells.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgetune import clock, errors
from edgetune.rollout.bios_journal import load_journal
from edgetune.rollout.lease import as_owner
from tests.support.bmcs import RESETS
from tests.support.builders import as_samples
from tests.support.virtual_clock import VirtualClock
from tests.support.world import BiosWorld, Died, EmptyWorld, World, changing, step_named


class _Once(yaml.SafeLoader):
    """Refuses a field that stands twice in one move: only the last of them would be taken."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        fields = [key.value for key, _ in node.value]
        twice = {name for name in fields if fields.count(name) > 1}
        assert not twice, f"{node.start_mark}: twice in one move: {twice}"
        return super().construct_mapping(node, deep)


def scenarios(test: str, name: str = "") -> list[Any]:
    """The scenarios beside a test file, in the YAML file of its name or of another."""
    path = Path(test).with_name(f"{name or Path(test).stem.partition('_')[2]}.yaml")
    return [pytest.param(moves, id=sentence) for sentence, moves in read_scenarios(path).items()]


def read_scenarios(path: Path) -> dict[str, Any]:
    """A file of scenarios."""
    loaded: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), _Once)  # noqa: S506
    return loaded


class Scenario:
    """Plays moves upon a world, in batch 0 until another one is named."""

    def __init__(self, world: EmptyWorld, clock: VirtualClock | None = None) -> None:
        self.world, self._clock = world, clock
        self.result: Any = {}
        self._batch = 0
        self._names = names_of(world)

    def play(self, moves: list[dict[str, Any]]) -> None:
        """Take each move, and fail with the first that is not as it says."""
        for number, move in enumerate(moves, 1):
            self.move = self._meant(move)
            fields = [*self.move.items()]
            for index, (verb, value) in enumerate(fields):
                follows = fields[index + 1] if index + 1 < len(fields) else ("", None)
                self.where = f"move {number}, {verb}"
                if follows[0] == "raises":
                    self._refused(verb, value, follows[1])
                elif verb not in ("raises", "with"):
                    getattr(self, verb)(value)

    def _refused(self, verb: str, value: Any, refusal: dict[str, str]) -> None:
        ((name, text),) = refusal.items()
        kind = Died if name == "Died" else getattr(errors, name)
        with pytest.raises(kind, match=_pattern(text) or None):
            getattr(self, verb)(value)

    # What a move does.

    def given(self, facts: dict[str, Any]) -> None:
        """Facts of the doubles: fields of a mapping, all of anything else; null empties."""
        for path, value in facts.items():
            *way, last = path.split(".")
            self._set(self._walk(way), last, value)

    def config(self, options: dict[str, Any]) -> None:
        """The configuration has these options from now on."""
        self.world.context.config = replace(self.world.context.config, **options)

    def head(self, fields: dict[str, Any]) -> None:
        """The head of the record has these fields, as if some step had written them."""
        opened = as_owner(self.world.context, self.world.rollout)
        for name, value in fields.items():
            setattr(opened.head, name, value)
        opened.save()

    def record(self, hosts: dict[str, dict[str, Any]]) -> None:
        """The record of the batch has these fields of hosts."""
        opened = as_owner(self.world.context, self.world.rollout)
        work = opened.batch(self._batch)
        for name, fields in hosts.items():
            for field, value in fields.items():
                setattr(work.hosts[name], field, value)
        opened.save_batch(work)

    def store(self, records: dict[str, str]) -> None:
        """Somebody writes these texts into the store."""
        for key, text in records.items():
            self.world.context.store.put(key, text)

    def when(self, moments: dict[str, dict[str, Any]]) -> None:
        """At the first of such moments a move is taken, by somebody else."""

        def at(moment: str) -> None:
            for known, move in moments.items():
                if re.fullmatch(_pattern(known), moment):
                    self.world.moments.at = lambda what: None
                    for verb, value in move.items():
                        getattr(self, verb)(value)

        self.world.moments.at = at

    def die(self, _: object) -> None:
        """The process that is at work is gone."""
        raise Died

    def wait(self, seconds: float) -> None:
        assert self._clock
        self._clock.wait(seconds)

    def age(self, seconds: float) -> None:
        self.world.age(self._batch, seconds)

    def batch(self, number: int) -> None:
        self._batch = number

    def mark(self, state: str) -> None:
        """Enter a state, or several; a rollback goes on with its first batch."""
        for each in state.split():
            self.result = self.world.mark(each)
        if state == "rolling_back":
            self._batch = self.result["first_batch"]

    def until(self, step: str) -> None:
        self.world.roll(self._batch, until=step_named(step))

    def roll(self, batches: list[int] | None) -> None:
        """These batches the whole way, or the present one."""
        for batch in [self._batch] if batches is None else batches:
            self.world.roll(batch)

    def roll_on(self, _: object) -> None:
        """All batches of the state that was entered last."""
        for batch in range(self.result["first_batch"], self.result["end_batch"]):
            self.world.roll(batch)

    def roll_back(self, more: dict[str, Any] | None) -> None:
        self.result = self.world.roll_back(**(more or {}))

    def take_over(self, more: dict[str, Any] | None) -> None:
        self.result = self.world.take_over(**(more or {}))

    def step(self, named: str | dict[str, Any]) -> None:
        """A step, or ``{step: parameters}``; the usual ones need not be given."""
        ((name, more),) = named.items() if isinstance(named, dict) else ((named, {}),)
        function = step_named(name)
        wanted = inspect.signature(function).parameters
        world = self.world
        usual = {"rollout": world.rollout, "epoch": world.epoch, "batch": self._batch}
        own = {k: v for k, v in {**usual, "pop": "lab1"}.items() if k in wanted}
        optional = {k for k in own if wanted[k].default is not inspect.Parameter.empty}
        own = {k: v for k, v in own.items() if k not in optional}
        self.result = function(world.context, **{**own, **more})

    def load(self, rates: list[float]) -> None:
        """Each host takes that many packets a second, one rate a minute, until now."""
        now, world, packets = clock.wall(), self.world, 0.0
        for index, rate in enumerate([*rates, 0.0]):
            at = now - 60.0 * (len(rates) - index)
            counted = {"uptime": 1000.0 + 60 * index, "counters": {"rx_packets": packets}}
            taken = [
                {"host": name, "time": at, "boot_id": "b", "gauges": {}, **counted}
                for name in world.balancer.state
            ]
            world.context.samples.add("lab1", as_samples(taken))
            packets += 60 * rate

    def reboot(self, _: object) -> None:
        """Whoever was told to reboot does so."""
        self.world.hosts.reboot()

    def forget(self, _: object) -> None:
        self.world.balancer.forget()

    # What is seen then.

    def gives(self, fields: dict[str, Any]) -> None:
        """Fields of what the newest step gave back."""
        for name, expected in fields.items():
            self._compare(f"{name} of the result", self.result[name], expected)

    def looks_at(self, step: str, waiting: int, failed: list[str]) -> None:
        """A step, how many hosts are awaited then, and which failed."""
        self.step(step)
        self.gives({"waiting": waiting, "failed": failed})

    def sent(self, expected: list[str]) -> None:
        """The resets that reached the machine of the first host."""
        self._compare("sent", self.world.bmcs.sent_to(self._names["HOST"], "reset"), expected)

    def at(self, steps: dict[str, str]) -> None:
        """How far each host of the batch is."""
        seen = self.world.at(self._batch)
        assert seen == steps, f"{self.where}: {seen}, and not {steps}"

    def quarantined(self, why: dict[str, str]) -> None:
        """All hosts in quarantine, each with its reason."""
        seen = {name: own.reason for name, own in self.world.head.quarantined.items()}
        assert seen.keys() == why.keys(), f"{self.where}: {seen}"
        self._compare("quarantined", seen, why)

    def then(self, facts: dict[str, Any]) -> None:
        """Facts of the world: fields of a mapping, all of anything else."""
        for path, expected in facts.items():
            way, *words = path.split()
            seen = self._walk(way.split("."))
            self._compare(path, seen(*words) if callable(seen) else seen, expected)

    def asked(self, verb: str, field: str) -> list[Any]:
        """A field of all requests of a verb to hosts."""
        return [own[field] for _, told, own in self.world.hosts.asked if told == verb]

    def resets_asked(self, field: str) -> list[Any]:
        """A field of all requests for a reset."""
        return [own[field] for _, told, own in self.world.bmcs.asked if told == "reset"]

    @property
    def of(self) -> dict[str, Any]:
        """What the record has of each host of the batch."""
        return dict(self.world.batch(self._batch).hosts)

    @property
    def held(self) -> bool:
        """Whether the PoP is claimed."""
        return self.world.context.claims.holder("lab1") is not None

    @property
    def taken(self) -> int:
        """How often somebody else took the rollout over."""
        return self.world.head.epoch - self.world.epoch

    @property
    def asked_bmcs(self) -> list[str]:
        """Whose BMC was asked for anything, in order."""
        return [name for name, _, _ in self.world.bmcs.asked]

    @property
    def journals(self) -> dict[str, int]:
        """How many entries there are for the BIOS of each host."""
        context, names = self.world.context, self.world.hosts.boot
        return {name: len(load_journal(context, "lab1", name).entries) for name in names}

    @property
    def out(self) -> set[str]:
        """Who is withdrawn from the traffic."""
        return {name for name, state in self.world.balancer.state.items() if state != "ready"}

    @property
    def restored(self) -> set[str]:
        return set(self.world.hosts.told("restore"))

    @property
    def in_full(self) -> str:
        """The status of the rollout, on one line."""
        shown = step_named("rollout_status")(self.world.context, self.world.rollout)
        return " ".join(shown["text"].split())

    def _compare(self, what: str, seen: Any, expected: Any) -> None:
        if isinstance(seen, Set) and isinstance(expected, list):
            expected = sorted(expected)
        seen = _plain(seen)
        if isinstance(expected, dict) and expected and isinstance(seen, dict):
            for key, each in expected.items():
                self._compare(f"{what}, {key}", seen.get(key), each)
        elif isinstance(expected, list) and isinstance(seen, list) and len(seen) == len(expected):
            for number, (own, each) in enumerate(zip(seen, expected)):
                self._compare(f"{what}, {number}", own, each)
        elif isinstance(expected, str) and isinstance(seen, str):
            fits = re.fullmatch(_pattern(expected), seen, re.DOTALL)
            assert fits, f"{self.where}: {what} is {seen!r}, and not {expected!r}"
        else:
            assert seen == expected, f"{self.where}: {what} is {seen!r}, and not {expected!r}"

    def _walk(self, way: list[str]) -> Any:
        found: Any = self.world if not way or hasattr(self.world, way[0]) else self
        for name in way:
            found = _part(found, name)
        return found

    def _set(self, owner: Any, name: str, value: Any) -> None:
        now = _part(owner, name)
        if isinstance(now, dict) and value is not None:
            for key, each in value.items():
                _put(now, tuple(key.split()) if " " in key else key, each)
        elif isinstance(now, (dict, set)):
            now.clear()
            now.update(value or {})
        else:
            setattr(owner, name, type(now)(value) if isinstance(now, Set) else value)

    def _meant(self, told: Any) -> Any:
        """What was told with the names of the hosts that are meant."""
        if isinstance(told, dict):
            return {self._meant(key): self._meant(each) for key, each in told.items()}
        if isinstance(told, list):
            return [self._meant(each) for each in told]
        return re.sub(r"\b[A-Z]{3,}\b", self._name, told) if isinstance(told, str) else told

    def _name(self, word: re.Match[str]) -> str:
        return self._names.get(word[0], word[0])


def _part(whole: Any, name: str) -> Any:
    if isinstance(whole, Mapping):
        return whole[name]
    return whole[int(name)] if isinstance(whole, (list, tuple)) else getattr(whole, name)


def names_of(world: EmptyWorld) -> dict[str, str]:
    """What the names of hosts stand for."""
    plan = getattr(world, "plan", None)
    if plan is None:
        return {}
    changed = [batch.hosts for batch in plan.batches if batch.batch_type == "change"]
    shams = [batch.hosts for batch in plan.batches if batch.batch_type == "sham"]
    three = next((hosts for hosts in changed if len(hosts) == 3), ())
    known = {"HOST": changed[0][0], "SHAM": shams[0][0] if shams else ""}
    known.update(zip(("ONE", "TWO", "THREE"), three))
    others = [name for name in world.balancer.state if name not in known.values()]
    return {**known, "OTHER": others[0], "ROLLOUT": world.rollout, "PLAN": plan.digest}


def _put(facts: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        facts.pop(key, None)
    else:
        facts[key] = set(value) if isinstance(facts.get(key), set) else value


def _plain(value: Any) -> Any:
    if isinstance(value, Set):
        return sorted(value)
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def _pattern(text: str) -> str:
    return ".*".join(map(re.escape, text.split("...")))


def begun(first: dict[str, Any], folder: Path) -> World:
    """A rollout that changes hosts, planned as ``plan`` in the first move says."""
    return changing(folder, **first.pop("plan", {}))


def play(moves: list[dict[str, Any]], folder: Path, clock: VirtualClock | None = None) -> None:
    """Play moves upon such a rollout."""
    Scenario(begun(moves[0], folder), clock).play(moves)


def bios_scenario(
    first: dict[str, Any], folder: Path, site: dict[str, Any], plan: dict[str, Any]
) -> BiosWorld:
    """A world of BMCs whose rollout changes hosts; ``site``, ``plan`` and ``resets``, those that
    each BMC offers, may stand in the first move."""
    made = BiosWorld(folder, **first.pop("site", site))
    made.bmcs.resets.update(dict.fromkeys(made.bmcs.resets, first.pop("resets", RESETS)))
    made.enter(**first.pop("plan", plan))
    return made
