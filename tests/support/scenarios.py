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
import json
import re
import threading
from collections.abc import Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

import pytest
import yaml

from edgetune import RECORD_SCHEMA
from edgetune.base import clock, errors
from edgetune.base.documents.reading import encoded
from edgetune.rollout.hosts.bios import load_journal
from edgetune.rollout.ownership.lease import as_owner
from edgetune.rollout.ownership.owner import is_orphaned
from edgetune.rollout.store.claims import Claim
from tests.support.bmcs import RESETS
from tests.support.builders import as_samples, concluded
from tests.support.cases import table
from tests.support.virtual_clock import VirtualClock
from tests.support.world import BiosWorld, Died, EmptyWorld, World, changing, shown, step_named


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
    loaded: dict[str, Any] = table(path, _Once)
    return loaded


class Scenario:
    """Plays moves upon a world, in batch 0 until another one is named."""

    def __init__(
        self,
        world: EmptyWorld,
        clock: VirtualClock | None = None,
        patch: pytest.MonkeyPatch | None = None,
    ) -> None:
        self.world, self._clock, self._patch = world, clock, patch
        self.result: Any = {}
        self._batch = 0
        self._moment = threading.RLock()
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
            # Of two load balancers each tells its moments in a thread of its own.
            with self._moment:
                if self.world.moments.at is not at:
                    self.world.moments.at(moment)
                    return
                for known, move in moments.items():
                    if re.fullmatch(_pattern(known), moment):
                        self.world.moments.at = lambda what: None
                        for verb, value in move.items():
                            getattr(self, verb)(value)
                        return

        self.world.moments.at = at

    def during(self, calls: dict[str, dict[str, Any]]) -> None:
        """Somebody else takes a move just before the first call of a method, or the n-th."""
        for call, move in calls.items():
            path, _, number = call.partition(" ")
            self._replace(path, self._interrupted(path, int(number or 1), move))

    def _interrupted(self, path: str, number: int, move: dict[str, Any]) -> Callable[..., Any]:
        real, left = self._walk(path.split(".")), [number]

        def call(*given: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                for verb, value in move.items():
                    getattr(self, verb)(value)
            return real(*given, **more)

        return call

    def breaks(self, methods: dict[str, dict[str, str] | None]) -> None:
        """Methods, or functions of the library, raise an error; with null methods work again."""
        for path, refusal in methods.items():
            *way, name = path.split(".")
            if refusal is None:
                delattr(self._walk(way), name)
            else:
                ((kind, told),) = refusal.items()
                text = told if isinstance(told, list) else [told]
                self._replace(path, _raising(getattr(errors, kind)(*text)))

    def away(self, doubles: dict[str, dict[str, str]]) -> None:
        """Whatever a double is asked for raises an error."""
        for path, refusal in doubles.items():
            ((kind, text),) = refusal.items()
            self._replace(path, _Away(getattr(errors, kind)(text)))

    def tells(self, methods: dict[str, Any]) -> None:
        """Methods tell these values from now on."""
        for path, value in methods.items():
            self._replace(path, lambda *given, value=value, **more: value)

    def returns(self, functions: dict[str, Any]) -> None:
        """Functions of the library tell these values."""
        self.patch({name: lambda *a, v=value, **k: v for name, value in functions.items()})

    def forbids(self, keys: str) -> None:
        """The store takes no such keys any more."""
        put = self.world.context.store.put

        def limited(key: str, value: str) -> None:
            if re.fullmatch(_pattern(keys), key):
                raise errors.StoreError("403")
            put(key, value)

        self.world.context.store.put = limited  # type: ignore[method-assign]

    def asleep(self, move: dict[str, Any]) -> None:
        """Somebody else takes a move while a step sleeps."""
        self.later_on({0: move})

    def later_on(self, moves: dict[float, dict[str, Any]]) -> None:
        """Somebody else takes moves while a step sleeps, once so many seconds have passed."""
        assert self._clock
        clock, began, left = self._clock, self._clock.passed, dict(moves)

        def slept() -> None:
            for seconds in [own for own in left if clock.passed - began > own]:
                for verb, value in left.pop(seconds).items():
                    getattr(self, verb)(value)

        clock.then = slept

    def _replace(self, path: str, method: Any) -> None:
        *way, name = path.split(".")
        if way[0] != "rollout" and (hasattr(self.world, way[0]) or hasattr(self, way[0])):
            setattr(self._walk(way), name, method)
        else:
            self.patch({path: method})

    def patch(self, values: dict[str, Any]) -> None:
        """Names of modules of the library have these values."""
        assert self._patch
        for name, value in values.items():
            self._patch.setattr(f"edgetune.{name}", value)

    def inventory(self, fields: dict[str, Any]) -> None:
        """The inventory has these fields; null takes one away."""
        path = Path(self.world.config["inventory"])
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        for place, value in fields.items():
            *way, last = place.split(".")
            found = document["pops"]
            for name in way:
                found = found.setdefault(name, {})
            _put(found, last, value)
        self.world.change_inventory(document)

    def lies(self, answers: dict[str, dict[str, Any]]) -> None:
        """Answers of hosts to verbs have other fields."""

        def lie(name: str, reply: Any) -> Any:
            told = answers.get(f"{name} {reply['verb']}", {})
            return {**reply, "result": {**reply["result"], **told}}

        self.world.hosts.lies = lie

    def overtaken(self, more: dict[str, Any] | None) -> None:
        """Somebody else takes the rollout over."""
        step_named("take_over_rollout")(self.world.context, self.world.rollout, **(more or {}))

    def claim(self, seconds: float) -> None:
        """The PoP is claimed anew for so long."""
        claims, after = self.world.context.claims, self.world.epoch if self.held else None
        more = {} if after is None else {"after": after}
        self.world.epoch = claims.take("lab1", self.world.rollout, seconds, **more).epoch

    def let_go(self, pop: str | None) -> None:
        """The claim of a PoP has run out."""
        claims, name = self.world.context.claims, pop or "lab1"
        if held := claims.holder(name):
            claims.release(name, held)

    def idle(self, seconds: float) -> None:
        """Nobody has kept the claim for that long."""
        left = self.world.context.config.claim_ttl - seconds
        self.world.context.claims.renew("lab1", Claim(self.world.rollout, self.world.epoch), left)

    def beside(self, fields: dict[str, Any]) -> None:
        """There is another rollout, whose head has these fields and else those of ours."""
        own = {"schema": RECORD_SCHEMA, **encoded(self.world.head), **fields}
        self.store({f"edgetune.rollout.{own['id']}": json.dumps(own)})

    def as_recorded(self, _: object) -> None:
        """What goes on now is in the epoch of the record."""
        self.world.epoch = self.world.head.epoch

    def begin(self, planned: dict[str, Any] | None) -> None:
        """Another rollout begins, and is about to change hosts."""
        folder = Path(self.world.config["inventory"]).parent
        self.world.begin(folder, **(planned or {}))
        self._names, self._batch = names_of(self.world), 0
        self.mark("baseline changing")

    def soak(self, more: dict[str, float]) -> None:
        """The soak of a world with samples, as ``Soaking.soak`` says."""
        self.world.soak(**more)  # type: ignore[attr-defined]

    def verdict(self, decision: str) -> None:
        """The newest look decided so."""
        self.world.set_head(verdict=concluded(decision) if decision else None)

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

    def begin_back(self, more: dict[str, Any]) -> None:
        """A rollback begins, of some hosts only."""
        self.result = self.world.mark("rolling_back", **more)
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

    def all_batches(self, number: int) -> None:
        """So many batches to the end, with their checks of health."""
        self.world.roll_all({"first_batch": 0, "end_batch": number})

    def all_of(self, states: str) -> None:
        """Enter these states, one after the other, with all their batches to the end."""
        for state in states.split():
            self.world.roll_all(self.world.mark(state))

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
            self._compare(f"{name} of the result", shown(self.result)[name], expected)

    def lacks(self, fields: dict[str, str]) -> None:
        """Fields of what the newest step gave back, and what is not in them."""
        for name, text in fields.items():
            seen = shown(self.result)[name] if name in self.result else self._seen(name)
            assert text not in seen, f"{self.where}: {seen}"

    def ranges(self, facts: dict[str, list[float]]) -> None:
        """Facts of the world, of a list the last, above one bound and not above the other."""
        for path, (low, high) in facts.items():
            seen = self._seen(path)
            seen = seen[-1] if isinstance(seen, list) else seen
            assert low < seen <= high, f"{self.where}: {path} is {seen}"

    def keep(self, facts: list[str]) -> None:
        self._kept = {path: _plain(self._seen(path)) for path in facts}

    def unchanged(self, _: object) -> None:
        """What was kept is as it was."""
        seen = {path: _plain(self._seen(path)) for path in self._kept}
        assert seen == self._kept, self.where

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
            self._compare(path, self._seen(path), expected)

    def _seen(self, path: str) -> Any:
        way, *words = path.split()
        seen = self._walk(way.split("."))
        return seen(*words) if callable(seen) else seen

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
    def holder(self) -> Claim | None:
        return self.world.context.claims.holder("lab1")

    @property
    def orphaned(self) -> bool:
        return is_orphaned(self.world.context, self.world.head)

    def times(self, verb: str, name: str) -> int:
        """How often a host was asked for something."""
        return self.world.hosts.told(verb).count(name)

    def many(self, step: str) -> int:
        """How many hosts of the batch are at a step."""
        return list(self.world.at(self._batch).values()).count(step)

    @property
    def serving(self) -> int:
        """How many hosts of the batch serve."""
        servers = self.world.balancer.servers()
        return sum(servers[name].is_serving for name in self.world.at(self._batch))

    @property
    def reverts_in(self) -> dict[str, float]:
        """In how many seconds each host of the batch takes its change back by itself."""
        hosts = self.world.batch(self._batch).hosts
        return {name: own.reverts_at - clock.wall() for name, own in hosts.items()}

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
    def verbs(self) -> set[str]:
        """What hosts were asked for."""
        return {verb for _, verb, _ in self.world.hosts.asked}

    @property
    def glance(self) -> str:
        """The status of all rollouts, on one line."""
        return " ".join(self.world.status().split())

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


class _Away:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return _raising(self._error)


def _raising(error: Exception) -> Callable[..., Any]:
    def call(*given: Any, **more: Any) -> Any:
        raise error

    return call


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
    """A rollout that changes hosts, planned as ``plan`` in the first move says, on a ``site``."""
    return changing(folder, **first.pop("plan", {}), site=first.pop("site", {}))


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
