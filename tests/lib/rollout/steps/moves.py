# SPDX-License-Identifier: Apache-2.0
"""Moves that scenarios of steps have beside those of tests/support/scenarios.py."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

from edgetune.base import clock
from edgetune.base.documents.head import Quarantine
from edgetune.base.documents.plan import Plan
from edgetune.base.durations import utc
from edgetune.base.errors import StoreError
from edgetune.base.freezes import Event
from edgetune.fleet.campaign.control import approve
from edgetune.net.databases import Database
from edgetune.net.metrics.samples import Limit
from edgetune.net.traffic import Server
from edgetune.report.steps.report_rollout import _waits
from edgetune.report.text import plan_text
from edgetune.rollout.evidence.soak import Soak
from edgetune.rollout.gates.approval import Approval, load_approval
from edgetune.rollout.gates.pause import Pause, pause_for, pauses_of, standing_pauses
from edgetune.rollout.hosts.bios import BiosJournal, load_journal
from edgetune.rollout.hosts.in_service import hosts_in_service, set_ready
from edgetune.rollout.ownership.kill_switch import RESUMED_KEY, STOP_KEY, stopped_by
from edgetune.rollout.ownership.lease import as_owner
from edgetune.rollout.ownership.owner import idle_time
from edgetune.rollout.record.heads import all_heads, unreadable_rollouts
from edgetune.rollout.record.rollout import load_plan, out_of_service, read_rollout
from edgetune.rollout.steps.apply_tuning import apply_tuning
from edgetune.rollout.steps.claim_pop import claim_pop
from edgetune.rollout.steps.plan_rollout import plan_rollout
from edgetune.rollout.steps.watch_drift import watch_drift
from tests.lib.rollout.steps.advice import Advice
from tests.support.builders import concluded, reading, write_yaml
from tests.support.exported import put_one
from tests.support.scenarios import Scenario, names_of
from tests.support.world import BiosWorld, shown, step_named

RESET_AFTER = 30.0


class Plans(Scenario):
    """Plans, and what is found before anything is begun."""

    def plans(self, options: dict[str, Any] | None) -> None:
        usual = {"tuning": "home_snoop", "seed": 7} if isinstance(self.world, BiosWorld) else {}
        asked = {"pop": "lab1", "tuning": "accept_queue", **usual, **(options or {})}
        self.result = shown(plan_rollout(self.world.context, **asked))

    def timer(self, parameters: Any) -> None:
        """StackStorm tells this of the timer of sample_running; of null it tells nothing."""

        def call(method: str, path: str, **more: Any) -> list[dict[str, Any]]:
            if parameters is None:
                raise StoreError("GET /rules: 403 Client Error: Forbidden")
            own = {"name": "sample_running", "pack": "edgetune", "enabled": True}
            return [{**own, "pack": "other"}, {**own, "trigger": {"parameters": parameters}}]

        self.world.context.stackstorm = SimpleNamespace(call=call)

    def plans_again(self, _: object) -> None:
        digest = self.result["plan"]
        self.result = shown(plan_rollout(self.world.context, plan=digest))
        assert self.result["plan"] == digest, self.where

    def plans_alike(self, options: dict[str, Any]) -> None:
        """Another plan with these options is the same one."""
        digest = self.result["plan"]
        self.plans(options)
        assert self.result["plan"] == digest, self.where

    def refused(self, why: str) -> None:
        """No plan is made, for this reason, and nothing is touched."""
        self._refused("plans", {}, {"RefusedError": why})
        assert (self.world.hosts.changing(), self.world.balancer.log) == ([], []), self.where

    def plan_tells(self, text: str) -> None:
        self.plans({})
        self._compare("the plan", self.result["text"], text)

    def everywhere(self, facts: dict[str, Any]) -> None:
        for path, value in facts.items():
            self.given({path: dict.fromkeys(self.world.hosts.boot, value)})

    def claimed(self, rollout: str) -> None:
        self.world.context.claims.take("lab1", rollout, 3600)

    def redis(self, limit: list[Any]) -> None:
        """Redis holds so many bytes, and has this policy."""
        own = Limit(*limit) if limit else None
        self.world.context.samples.limit = lambda: own  # type: ignore[method-assign]

    @property
    def found(self) -> dict[str, Any]:
        return {check["check"]: check["findings"] for check in self.result["checks"]}

    @property
    def load_balancer(self) -> Any:
        return self.found["load balancer"]

    @property
    def advised(self) -> dict[str, str]:
        """What each check found, with its advice."""
        return {
            name: "; ".join(f"{','.join(r['hosts'])}: {r['what']} -> {r['advice']}" for r in rows)
            for name, rows in self.found.items()
        }

    @property
    def checks(self) -> list[str]:
        return [*self.found]

    @property
    def means(self) -> dict[str, str]:
        return {check["check"]: check["means"] for check in self.result["checks"]}

    @property
    def compared(self) -> list[str]:
        """The hosts that the newest plan compares."""
        return sorted(self.result["test"] + self.result["control"])

    @property
    def visited(self) -> set[str]:
        """The hosts of all batches of the newest plan."""
        return {host for batch in self.made.every_batch for host in batch.hosts}

    @property
    def touched(self) -> set[str]:
        """Hosts that were asked for a change."""
        verbs = ("ready", "apply", "reboot")
        return {name for name, verb, _ in self.world.hosts.asked if verb in verbs}

    @property
    def planned(self) -> int:
        return len(self.compared)

    @property
    def made(self) -> Plan:
        return load_plan(self.world.context, self.result["plan"])

    @property
    def strata(self) -> dict[str, list[str]]:
        """Which hosts the newest plan compares with each other."""
        return {name: sorted(own.hosts) for name, own in self.made.strata.items()}

    @property
    def told_of_plan(self) -> str:
        """What the plan of the rollout tells, on one line."""
        return " ".join(plan_text(self.world.plan).split())

    def asks(self, name: str) -> list[str]:
        """For what a host was asked, in order."""
        return [verb for host, verb, _ in self.world.hosts.asked if host == name]

    @property
    def told(self) -> str:
        """The text of the newest result, on one line."""
        return " ".join(shown(self.result)["text"].replace("|", "").split())


class Firmware(Scenario):
    """The BIOS of hosts, and how they are reset."""

    _made: tuple[str, ...] = ()

    def tuning(self, tunings: dict[str, dict[str, str]]) -> None:
        for name, attributes in tunings.items():
            _write_tuning(self.world, name, attributes)

    def enter(self, options: dict[str, Any] | None) -> None:
        """Begin a rollout that changes hosts."""
        assert isinstance(self.world, BiosWorld)
        self.world.enter(**(options or {}))
        self._names = names_of(self.world)

    def complete(self, options: dict[str, Any]) -> None:
        assert isinstance(self.world, BiosWorld)
        assert not self.held, "somebody who was fenced out may be at work"
        self._made += (self.world.complete(**options),)

    def retire(self, number: int) -> None:
        self.world.rollout = self._made[number]
        self.take_over(None)
        self.roll_back(None)
        assert self.result["quarantined"] == {}, self.where

    def adopt(self, given: list[Any]) -> None:
        number, host = given
        self.world.rollout = self._made[number]
        self.step({"adopt_host": {"host": host}})

    def modes(self, mode: str) -> None:
        seen = {self.world.bmcs.mode(name) for name in self.world.hosts.boot}
        assert seen == {(mode, None)}, self.where

    def drift(self, expected: dict[str, list[str]]) -> None:
        found = watch_drift(self.world.context)["drift"]
        assert found.keys() == expected.keys(), self.where
        self._compare("drift", found, expected)

    @property
    def bios(self) -> dict[str, BiosJournal]:
        context, names = self.world.context, self.world.hosts.boot
        return {name: load_journal(context, "lab1", name) for name in names}

    def restart(self, host: str) -> None:
        self.world.hosts.restart(host, "GracefulRestart")
        self.world.hosts.reboot()

    def machines(self, _: object) -> None:
        """Hosts tell the machines that their BMCs have."""
        systems = self.world.bmcs.system.items()
        self.world.hosts.machine = {name: {"uuid": own, "serial": ""} for name, own in systems}

    def told_to_reboot(self, heeds: list[str]) -> None:
        """The first host of the batch, which heeds only these ways."""
        host = next(iter(self.world.at(self._batch)))
        self.world.hosts.heeds[host] = set(heeds)
        self.until("reboot_hosts")
        self.step("reboot_hosts")

    def check(self, expected: list[Any]) -> None:
        for waiting, failed in expected:
            self.looks_at("check_rebooted", waiting, failed)
            self.world.hosts.reboot()

    def later(self, expected: list[Any]) -> None:
        for each in expected:
            self.wait(RESET_AFTER + 1)
            self.check([each])

    def passes(self, times: int) -> None:
        for _ in range(times):
            self.wait(RESET_AFTER + 1)
            self.step("check_rebooted")
            self.world.hosts.reboot()

    def given_up(self, why: str) -> None:
        self.passes(9)
        assert self.result["failed"] == [self._names["HOST"]]
        self.then({f"of.{self._names['HOST']}.error": why})

    def hangs(self, expected: list[Any]) -> None:
        """Seconds to wait, how many are awaited then, and which failed."""
        for later, waiting, failed in expected:
            self.wait(later)
            self.looks_at("check_rebooted", waiting, failed)

    def garbage(self, is_said: bool) -> None:
        lie = "python3: not found"
        self.world.hosts.lies = lambda name, reply: lie if is_said else reply


def _write_tuning(world: Any, name: str, attributes: dict[str, str]) -> None:
    why = {"why": "It is wanted.", "source": "a test"}
    document = {
        "name": name,
        "version": "1.0.0",
        "summary": "Another value.",
        "intent": {"improve": "packet_drops"},
        "guards": [{"metric": "health_failed", "margin": 0.5}],
        "settings": [
            {"kind": "bios.attribute", "attribute": attribute, "value": value, **why}
            for attribute, value in attributes.items()
        ],
    }
    write_yaml(world.context.config.tunings[0] / f"{name}.yaml", document)


class Holds(Scenario):
    """Approvals, freezes and pauses."""

    def frozen(self, seconds: float) -> None:
        """The rollout has a freeze that began a minute ago and ends in so many seconds."""
        now = clock.wall()
        own = [{"name": "final", "start": now - 60, "end": now + seconds}]
        self.world.set_head(freezes=own)

    def closes(self, spans: Any) -> None:
        """The configuration has an event for each span, in seconds from now; or one at work."""
        now, known = clock.wall(), spans if isinstance(spans, list) else [[-60, spans]]
        events = [Event(f"event {n}", now + a, now + b) for n, (a, b) in enumerate(known) if b]
        self.config({"events": tuple(events)})
        self._names["END"] = utc(events[-1].end) if events else ""

    def unfrozen(self, _: object) -> None:
        assert "frozen" not in self.glance, self.where

    def stands(self, causes: list[str]) -> None:
        """The causes for which the PoP is paused."""
        standing = standing_pauses(pauses_of(self.world.context, "lab1"))
        self._compare("stands", [*standing], causes)

    def waited(self, seconds: float) -> None:
        """The batch waits for that long."""
        opened = as_owner(self.world.context, self.world.rollout)
        work = opened.batch(self._batch)
        assert work.wait
        work.wait = replace(work.wait, since=work.wait.since - seconds)
        opened.save_batch(work)

    @property
    def own(self) -> Pause | None:
        return pause_for(self.world.context, "lab1", "pause_after")

    @property
    def mentions(self) -> int:
        return self.glance.count("pause_after")

    def approve(self, by: str) -> None:
        self.result = approve(self.world.context, self._names["PLAN"], requested_by=by)

    def start(self, by: str) -> None:
        """Somebody begins the rollout of the plan."""
        world, plan = self.world, self._names["PLAN"]
        begun = claim_pop(world.context, plan=plan, requested_by=by, caller=by)
        world.rollout, world.epoch = begun["rollout"], begun["epoch"]
        self._names["ROLLOUT"] = world.rollout
        assert world.rollout in self.rollouts, self.where

    def end(self, _: object) -> None:
        """The rollout is taken back, and the PoP free."""
        self.mark("rolling_back rolled_back")
        self.let_go("lab1")

    @property
    def approval(self) -> Approval | None:
        return load_approval(self.world.context, self._names["PLAN"])

    @property
    def rollouts(self) -> list[str]:
        return [head.id for head in all_heads(self.world.context)]


class Switch(Scenario):
    """The kill switch, and values that its key is given by hand."""

    def values(self, texts: list[str]) -> None:
        """Each of these values stops, or else permits; ``before`` says what happened before."""
        before = self.move.get("before", "")
        for text in texts:
            if before == "resumed":
                self.store({STOP_KEY: "yes"})
                self.step("resume_all")
            elif before == "by hand":
                self.store({STOP_KEY: "true"})
                self.stopped(None)
            elif before:
                self.step({"stop_all": {"requested_by": "ana"}})
            self.store({STOP_KEY: text})
            if "permit" in self.move:
                assert not self.why_stopped, text
                continue
            self.stopped(None)
            if "resume" in self.move:
                self.step({"resume_all": {"requested_by": "bo"}})
                self.step("drain_hosts")

    def before(self, _: object) -> None:
        """Of ``values``, like those below."""

    permit = stop = resume = before

    def stopped(self, _: object) -> None:
        self._refused("step", "drain_hosts", {"RefusedError": "everything is stopped"})
        assert self.why_stopped, self.where

    @property
    def why_stopped(self) -> str:
        return stopped_by(self.world.context)

    def unread(self, texts: list[str]) -> None:
        """None of these is a permit; a resume makes one."""
        for text in texts:
            self.store({RESUMED_KEY: text, STOP_KEY: ""})
            self.stopped(None)
            self.step("resume_all")
            self.step("drain_hosts")

    def each_stopped(self, steps: list[str]) -> None:
        """Each step is stopped, and taken after a resume."""
        for step in steps:
            self.step({"stop_all": {"requested_by": "ana", "reason": "errors"}})
            self.keep(["balancer.log", "hosts.changing"])
            self._refused(
                "step", step, {"RefusedError": "everything is stopped (edgetune.stop_all: "}
            )
            self.unchanged(None)
            self.step("resume_all")
            self.step(step)
            self.reboot(None)

    def counted(self, call: list[str]) -> None:
        """From now on count how often a method is asked for that."""
        (path, wanted), self.counts = call, 0
        real = self._walk(path.split("."))

        def told(asked: str) -> Any:
            self.counts += asked == wanted
            return real(asked)

        self._replace(path, told)

    def deleted(self, key: str) -> None:
        with Database(self.world.config["records"]).transaction() as db:
            db.execute("DELETE FROM records WHERE key = ?", (key,))

    def copied(self, key: str) -> None:
        self._copy = {key: self.world.context.store.get(key) or ""}

    def paste(self, _: object) -> None:
        self.store(self._copy)

    def overwritten(self, values: dict[str, str]) -> None:
        """Whatever is put under these keys, somebody else puts this there at once."""
        put = self.world.context.store.put
        own = lambda key, value: put(key, values.get(key, value))  # noqa: E731
        self.world.context.store.put = own  # type: ignore[method-assign]


class Traffic(Scenario):
    """Load balancers, and hosts that leave and come back."""

    def exchange(self, names: list[str]) -> None:
        """The SSH addresses of two hosts, and nothing else."""
        one, other = names
        self.world.hosts.behind = {one: other, other: one}

    def never_told(self, name: str) -> None:
        def lies(told: str, reply: Any) -> Any:
            assert (told, reply["verb"]) != (name, "ready"), "a machine in service was told"
            return reply

        self.world.hosts.lies = lies

    def behind_nat(self, _: object) -> None:
        """The inventory vouches for hosts, which do not know by which address they are reached."""
        for number, name in enumerate(self.world.balancer.state, 1):
            own = f"203.0.113.{number}"
            self.inventory({f"lab1.hosts.{name}.server_address": own})
            self.world.balancer.addresses[name] = own

    def begin_planned(self, _: object) -> None:
        """The rollout of the newest plan is about to change its first host."""
        self.world.begin_planned(self.result["plan"])
        self._names = names_of(self.world)
        self.mark("baseline changing")

    def drains(self, told: str) -> None:
        """What is said each time, or null for anything."""
        said = self._drained()
        assert said
        for each in said:
            self._compare("what is told", each, told)

    def drains_on(self, _: object) -> None:
        """All batches of a rollback."""
        for batch in range(self.result["first_batch"], self.result["end_batch"]):
            self.batch(batch)
            self._drained()
            self.world.roll(batch)

    def _drained(self) -> list[str]:
        """Drain as the workflow does; what it said while it waited."""
        said: list[str] = []
        self.step("begin_drain")
        while self.result["next"] == "check_drained":
            assert len(said) < 20, said
            self.wait(self.result["retry_after"] / 8)
            self.step("check_drained")
            said.append(self.result["message"])
        return said[:-1]

    def hides(self, servers: dict[str, int]) -> None:
        """The load balancer's list lacks servers at a look, by its number, or with 0 at all."""
        whole, looks = self.world.balancer.servers, count(1)

        def told() -> Mapping[str, Server]:
            look = next(looks)
            return {n: own for n, own in whole().items() if servers.get(n) not in (0, look)}

        self.world.balancer.servers = told  # type: ignore[method-assign]

    def becomes_ready(self, hosts: list[str]) -> None:
        """These cannot be told that they are ready."""
        assert set_ready(as_owner(self.world.context, self.world.rollout), hosts, ready=True)

    def _untouched(self) -> list[str]:
        tuned = {host for batch in (0, 2) for host in self.world.plan.batches[batch].hosts}
        return [host for host in self.world.balancer.state if host not in tuned]

    def maintenance(self, numbers: list[int]) -> None:
        """So many of the hosts that no batch has changed."""
        for number in numbers:
            self.world.balancer.state[self._untouched()[number]] = "maint"

    def back(self, number: int) -> None:
        self.world.balancer.state[self._untouched()[number]] = "ready"

    def replaced(self, host: str) -> None:
        """There is a new machine in its place."""
        hosts = self.world.hosts
        hosts.tuned.discard(host)
        hosts.not_ready.discard(host)
        hosts.boot[host] = "new"
        hosts.epochs.pop(host, None)

    def cut_off(self, _: object) -> None:
        """The host is changed, and its answer is the last that it could not send."""
        (name,) = self.world.at(0)
        self.world.hosts.tuned.add(name)
        self.world.hosts.unreachable.add(name)
        assert self.world.step(apply_tuning, 0)["failed"] == [name]

    def reverts(self, hosts: dict[str, float]) -> None:
        """Hosts should take their change back in so many seconds."""
        self.record({name: {"reverts_at": clock.wall() + own} for name, own in hosts.items()})

    def in_service(self, name: str) -> bool:
        pop = self.world.context.inventory.pop("lab1")
        return name in hosts_in_service(pop, self.world.balancer.servers())

    @property
    def states(self) -> list[str]:
        """Those of the first host in both load balancers."""
        host, world = self._names["HOST"], self.world
        return [own.state[host] for own in (world.balancer, world.second)]  # type: ignore[attr-defined]

    @property
    def out_of_second(self) -> set[str]:
        states = self.world.second.state  # type: ignore[attr-defined]
        return {name for name, state in states.items() if state != "ready"}

    def clocks(self, seconds: float) -> None:
        """The wall clock is set by so many seconds."""
        assert self._clock
        self._clock.set(seconds)

    def process(self, boot: str) -> None:
        """What comes next is another process, on another boot or machine if it has a name."""
        assert self._clock
        self._clock.begin_process(boot)

    @property
    def expires_in(self) -> float:
        return float(self.world.context.claims.expiries(["lab1"])["lab1"])

    @property
    def idle_for(self) -> float:
        return idle_time(self.world.context, "lab1")

    @property
    def left(self) -> list[str]:
        """Hosts that are out of service by the record."""
        return sorted(
            out_of_service(read_rollout(self.world.context, self.world.rollout).batches())
        )

    @property
    def orphans(self) -> list[str]:
        told = step_named("rollout_status")(self.world.context, orphaned=True)
        return list(told["ids"])

    @property
    def out_for(self) -> dict[str, float]:
        """For how many seconds each host of the batch is out of service."""
        return {name: clock.wall() - own.out_at for name, own in self.of.items()}

    def _waits(self) -> list[tuple[str, str]]:
        """Since when and for what the batch waits, as a person reads it."""
        shown = step_named("rollout_status")(self.world.context, self.world.rollout)
        found = re.findall(r"  waits since (\S+ \S+Z): (.*)", shown["text"])
        (row,) = shown["rollouts"]
        told = "".join(f"waits since {since}: {why}" for since, why in found)
        assert row["waits"] == told
        reported = _waits(read_rollout(self.world.context, self.world.rollout))
        assert reported.endswith(found[0][1] if found else "") and bool(reported) == bool(found)
        return found

    @property
    def waits(self) -> list[str]:
        return [why for _, why in self._waits()]

    @property
    def waits_since(self) -> str:
        return self._waits()[0][0]

    @property
    def waits_for(self) -> float:
        """For how many seconds, as the record has it."""
        wait = self.world.batch(self._batch).wait
        assert wait
        return clock.wall() - wait.since

    @property
    def soaked(self) -> Any:
        """The groups that are compared."""
        return Soak(as_owner(self.world.context, self.world.rollout))._strata["lab"]

    def slow(self, health_ms: dict[str, float]) -> None:
        """The baseline was 1 ms everywhere; this is how long health checks take now."""
        now, names = clock.wall(), self.world.balancer.state
        self.world.set_head(baseline=[now - 1000, now - 900])
        for at, slow in ((now - 950, {}), (now, health_ms)):
            rows = [reading(name, at, health_p50_ms=slow.get(name, 1.0)) for name in names]
            self.world.context.samples.add("lab1", rows)

    @property
    def back_in(self) -> list[list[str]]:
        """The hosts of each batch of the rollback."""
        batches = range(self.result["first_batch"], self.result["end_batch"])
        return [list(self.world.at(batch)) for batch in batches]


class Records(Scenario):
    """Rollouts of other PoPs, and what is shown of all."""

    def there(self, pops: dict[str, dict[str, Any]]) -> None:
        for pop, own in pops.items():
            fields = dict(own)
            if "verdict" in fields:
                fields["verdict"] = concluded(*fields["verdict"])
            stuck = fields.pop("quarantined", {})
            hosts = {name: Quarantine("so", out_of_service=out) for name, out in stuck.items()}
            put_one(self.world, pop, **fields, quarantined=hosts)

    def claimed_ago(self, seconds: float) -> None:
        *before, last = self.world.head.history
        self.world.set_head(history=[*before, replace(last, at=last.at - seconds)])

    @property
    def unreadable(self) -> list[str]:
        return [own.id for own in unreadable_rollouts(self.world.context)]

    @property
    def shown(self) -> str:
        return self.world.status()

    @property
    def so_far(self) -> bool:
        """Whether a verdict of the present soak is told."""
        return "so far" in self.shown


class Moves(Plans, Firmware, Holds, Switch, Traffic, Records, Advice):
    """All of them."""
