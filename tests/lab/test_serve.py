# SPDX-License-Identifier: Apache-2.0
"""`edgetune serve`: triggers from timers, sensors and ended executions become executions."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from edgetune.report.action import safe
from edgetune.rollout.guard import Guard
from edgetune.rollout.ownership.lease import as_owner
from edgetune.rollout.record.rollout import read_rollout
from edgetune.rollout.steps.check_health import check_health
from lab import cli
from lab.runner import Engine, MetadataError, Pack
from lab.runner.inbox import Inbox, ServedError
from lab.runner.story import StoryTeller
from lab.serve import RuleBook, Switches
from lab.serve.criteria import criterion
from lab.serve.log import Log, News
from lab.serve.sensors import Sensor, SensorKeeper, load_sensors, start
from lab.serve.server import Server
from lab.serve.timers import CRON_TIMER, INTERVAL_TIMER, timer
from tests.support import ROOT
from tests.support.builders import as_samples, reading
from tests.support.cases import cases
from tests.support.waiting import is_running, wait_for_end, wait_until
from tests.support.world import World

CASES = Path(__file__).parent / "cases"
ACTIONS = ROOT / "tests" / "fixtures" / "runner_pack"

TRIGGER = """
    name: unwell
    payload_schema:
      type: object
      properties:
        id: {type: string, required: true}
        hosts: {type: array, items: {type: string}}
        epoch: {type: integer}
      additionalProperties: false
"""
SENSOR = """
    class_name: Watch
    entry_point: watch.py
    enabled: true
    poll_interval: 1
"""
WATCH = """
    from st2reactor.sensor.base import PollingSensor

    class Watch(PollingSensor):
        def setup(self):
            self.sensor_service.get_logger("watch").info("config %s", self.config["greeting"])

        def poll(self):
            polls = int(self.sensor_service.get_value("polls") or 0) + 1
            self.sensor_service.set_value("polls", polls)
            self.sensor_service.dispatch("probe.unwell", {"id": f"found {polls}"}, trace_tag="x")

        def cleanup(self):
            print("cleaned up", flush=True)

        def add_trigger(self, trigger): ...
        def update_trigger(self, trigger): ...
        def remove_trigger(self, trigger): ...
"""
EVERY_MINUTE = {"type": INTERVAL_TIMER, "parameters": {"unit": "seconds", "delta": 60}}
UNWELL = {"type": "probe.unwell"}
ENDED = {"type": "core.st2.generic.actiontrigger"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A pack with actions and a trigger."""
    root = tmp_path / "pack"
    shutil.copytree(ACTIONS, root)
    shutil.rmtree(root / "sensors")
    write(root / "triggers" / "unwell.yaml", TRIGGER)
    return root


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(textwrap.dedent(text), encoding="utf-8")


class Site:
    """A pack, and the home of a server of it."""

    def __init__(self, root: Path, home: Path) -> None:
        self.root, self.home = root, home

    def rule(self, name: str, trigger: Any, **given: Any) -> None:
        """A rule that echoes, unless told otherwise; JSON is YAML."""
        echo = {"ref": "core.echo", "parameters": {"message": name}}
        rule = {"name": name, "enabled": True, "trigger": trigger, "action": echo, **given}
        plain = {key: item for key, item in rule.items() if item is not None}
        write(self.root / "rules" / f"{name}.yaml", json.dumps(plain))

    def serve(self, *always: str, **more: Any) -> Served:
        return Served(self.root, self.home, *always, **more)


class Served:
    """A server of a pack whose clock stands still, and which keeps its lines."""

    def __init__(
        self,
        root: Path,
        home: Path,
        *always: str,
        every: float | None = None,
        config: dict[str, Any] | None = None,
        news: bool = False,
    ) -> None:
        self.now = datetime(2026, 3, 1, tzinfo=timezone.utc)
        self.stream = io.StringIO()
        self.home = home
        self.switches = Switches(home, always)
        self.book = RuleBook(Pack(root))
        log = Log(self.stream, lambda: self.now)
        if news:
            log = News(self.stream, lambda: self.now, StoryTeller({}))
        self.engine = Engine(Pack(root), config or {"greeting": "hi", "count": 1}, home, log)
        self.inbox = Inbox(home)
        self.keepers: list[SensorKeeper] = []
        self.server = Server(
            self.engine,
            self.book,
            self.switches,
            self.keepers,
            self.inbox,
            log,
            lambda: self.now,
            every,
        )

    def tick(self, seconds: float = 0) -> list[str]:
        """Let time pass; returns kind and text of the lines that were new, ids left out."""
        self.now += timedelta(seconds=seconds)
        self.server.tick()
        while self.server.busy:
            time.sleep(0.01)
        lines = [line.split(maxsplit=1)[1] for line in self.stream.getvalue().splitlines()]
        self.stream.truncate(self.stream.seek(0))
        return [" ".join(word for word in line.split() if len(word) != 24) for line in lines]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    with Inbox(tmp_path).served():
        yield tmp_path


@pytest.fixture
def site(root: Path, home: Path) -> Site:
    return Site(root, home)


class TestCriteria:
    @pytest.mark.parametrize("case", cases(CASES / "criteria.yaml"))
    def test_operators(self, case: dict[str, Any], request: pytest.FixtureRequest) -> None:
        operator = request.node.callspec.id.split()[0]
        asked = criterion("trigger.x.y#2", {"type": operator, "pattern": case["pattern"]})
        assert asked.matches({"x": {"y": case["fits"]}})
        assert not asked.matches({"x": {"y": case["misfits"]}})

    def test_what_is_missing_is_none_and_what_cannot_be_compared_is_named(self) -> None:
        missing = criterion("trigger.x.y", {"type": "nexists", "pattern": True})
        assert missing.matches({"x": "text"})
        compared = criterion("trigger.x", {"type": "gt", "pattern": 3})
        with pytest.raises(ValueError, match=r"criteria\.trigger\.x: '>' not supported"):
            compared.matches({})

    def test_nothing_is_asked_of_an_empty_payload(self, site: Site) -> None:
        """As on StackStorm, where even `nexists` does not hold then."""
        site.rule("asks", ENDED, criteria={"trigger.id": {"type": "nexists", "pattern": True}})
        site.rule("takes", ENDED)
        rules = RuleBook(Pack(site.root)).rules
        assert not rules["asks"].matches({})
        assert rules["asks"].matches({"status": "failed"})
        assert rules["takes"].matches({})


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


class TestTimers:
    def test_an_interval_keeps_its_grid(self) -> None:
        minutes = timer(INTERVAL_TIMER, {"unit": "minutes", "delta": 5}, utc("2026-03-01 00:00:07"))
        assert minutes.next_after(utc("2026-03-01 00:00:07")) == utc("2026-03-01 00:05:07")
        assert minutes.next_after(utc("2026-03-01 00:31:00")) == utc("2026-03-01 00:35:07")

    @pytest.mark.parametrize("case", cases(CASES / "cron.yaml"))
    def test_cron(self, case: dict[str, Any]) -> None:
        given = {"timezone": "UTC", **case}
        times, moment = given.pop("times"), utc(given.pop("after", "2026-03-04 10:10:10.500"))
        for expected in times:
            following = timer(CRON_TIMER, given, moment).next_after(moment)
            assert following == utc(expected)
            moment = following

    def test_what_never_comes_is_none(self) -> None:
        never = timer(CRON_TIMER, {"month": 2, "day": 30}, utc("2026-03-01"))
        assert never.next_after(utc("2026-03-01")) is None


@pytest.mark.parametrize("case", cases(CASES / "bad_rules.yaml"))
def test_a_rule_that_cannot_be_served_is_named_at_the_start(
    site: Site, case: dict[str, Any]
) -> None:
    given = {"trigger": UNWELL, "enabled": False, **case}
    says = given.pop("says")
    site.rule("bad", **given)
    with pytest.raises(MetadataError) as refused:
        RuleBook(Pack(site.root))
    assert str(refused.value).startswith(f"{site.root}/rules/bad.yaml: ")
    assert says in str(refused.value)


class TestServer:
    @pytest.mark.parametrize("case", cases(CASES / "served.yaml"))
    def test_lines_of_a_server(self, site: Site, case: dict[str, Any]) -> None:
        for name, given in case["rules"].items():
            site.rule(name, **given)
        served = site.serve(*case.get("serve", []), **case.get("how", {}))
        for step in case["steps"]:
            for trigger, payload in step.get("posts", []):
                served.inbox.post(trigger, payload)
            lines = served.tick(step.get("after", 0))
            shown = sorted(line for line in lines if not line.startswith("execution"))
            told = sorted(step["lines"])
            assert len(shown) == len(told) and all(map(str.startswith, shown, told)), shown
            fired = [line for line in shown if "->" in line]
            assert sum("succeeded" in line for line in lines) >= len(fired)

    def test_who_hurries_waits_for_the_last_execution_and_nobody_else_does(
        self, site: Site
    ) -> None:
        site.rule("one", EVERY_MINUTE)
        site.rule("two", EVERY_MINUTE)
        ends, started = threading.Event(), []
        served = site.serve("two", every=5)
        served.engine.execute = lambda execution: started.append(ends.wait(60))  # type: ignore[method-assign, assign]
        for seconds in (5, 5, 5, 60, 60):
            served.now += timedelta(seconds=seconds)
            served.server.tick()
        assert served.server.busy == 3
        ends.set()
        assert "rule two -> core.echo" in [served.tick(), served.tick(5)][1]
        assert started == [True] * 4

    def test_a_person_switches_rules_while_it_serves(self, site: Site) -> None:
        site.rule("off", EVERY_MINUTE, enabled=False)
        served = site.serve()
        rule = served.book.rule("probe.off")
        assert served.tick(60) == []
        Switches(site.home).set(rule, True)
        assert "rule off -> core.echo" in served.tick(60)
        Switches(site.home).set(rule, False)
        assert served.tick(60) == []
        assert "rule off -> core.echo" in site.serve("off").tick(60)

    def test_parameters_are_rendered_with_the_payload_which_moves_no_cursor(
        self, site: Site
    ) -> None:
        asked = {
            "count": "{{ trigger.epoch }}",
            "names": "{{ trigger.hosts | to_json_string }}",
            "text": "{{ trigger.id }} by {{ action_context.rule.name }}",
        }
        site.rule("count", UNWELL, action={"ref": "probe.echo", "parameters": asked})
        served = site.serve()
        found: list[Any] = []
        served.engine.execute = lambda execution: found.append(execution.parameters)  # type: ignore[method-assign]
        payload = {"id": "{{ 1 }}\x1b[2Ja\nb", "epoch": 7, "hosts": ["e1", "e2"]}
        served.inbox.post("probe.unwell", payload)
        served.server.tick()
        assert "\x1b" not in served.stream.getvalue()
        assert served.stream.getvalue().count("\n") == 2
        served.tick()
        given = {"count": 7, "names": ["e1", "e2"], "text": "{{ 1 }}\x1b[2Ja\nb by count"}
        assert found == [given]

    def test_news_are_of_rollouts_that_change_their_state(self, tmp_path: Path) -> None:
        world, stream = World(tmp_path), io.StringIO()
        news = News(stream, lambda: datetime.now(timezone.utc), StoryTeller(world.config))
        world.mark("baseline")
        news.look()
        news.look()
        (line,) = stream.getvalue().splitlines()
        assert line.split(maxsplit=1)[1] == "rollout   lab1 baseline: measuring the baseline"

    @pytest.mark.processes
    def test_an_execution_that_ended_elsewhere_is_a_trigger(self, site: Site) -> None:
        """As recover_left wants it: by action and status, of whoever started it."""
        site.rule(
            "left",
            ENDED,
            criteria={
                "trigger.action_ref": {"type": "in", "pattern": ["probe.returns"]},
                "trigger.status": {"type": "in", "pattern": ["failed", "timeout"]},
            },
            action={
                "ref": "core.echo",
                "parameters": {"message": "{{ trigger.execution_id }} {{ trigger.status }}"},
            },
        )
        served = site.serve()
        elsewhere = Engine(Pack(site.root), {"greeting": "hi", "count": 1}, site.home)
        elsewhere.run("core.echo", {"message": "of no interest"})
        elsewhere.run("echo", {"token": "tops3cret"})
        posted = [json.loads(file.read_text()) for file in (site.home / "serve").glob("*.json")]
        tokens = {one["payload"]["parameters"].get("token") for one in posted}
        assert tokens == {None, "********"}
        elsewhere.run("returns", {"what": "nothing"})
        assert served.tick() == []
        elsewhere.run("returns", {"what": "failure"})
        assert served.tick()[:2] == [
            "trigger core.st2.generic.actiontrigger probe.returns failed",
            "rule left -> core.echo",
        ]

    def test_it_tends_its_sensors_and_ends_them(self, site: Site) -> None:
        served, kept = site.serve(), Kept()
        served.keepers.append(kept.keeper)
        kept.started[0].code = 1
        served.tick()
        served.tick(2.5)
        assert len(kept.started) == 2
        served.server.stop()
        assert kept.started[1].done == ["terminated", "killed"]
        assert served.engine.canceled.is_set()


class TestInbox:
    def test_only_the_one_server_is_told_what_came_in_its_time(self, tmp_path: Path) -> None:
        inbox = Inbox(tmp_path)
        inbox.post("probe.unwell", {})
        assert list(tmp_path.iterdir()) == []
        (tmp_path / "serve").mkdir()
        inbox.post("probe.unwell", {"id": "for one that was killed"})
        with inbox.served():
            assert list(inbox.take()) == []
            with pytest.raises(ServedError), Inbox(tmp_path).served():
                raise AssertionError
            inbox.post("probe.unwell", {"id": "a"})
            assert list(inbox.take()) == [("probe.unwell", {"id": "a"})]


class Script:
    """A process that ends when it is told to."""

    def __init__(self) -> None:
        self.code: int | None = None
        self.done: list[str] = []

    def poll(self) -> int | None:
        return self.code

    def terminate(self) -> None:
        self.done.append("terminated")

    def wait(self, timeout: float) -> int:
        if "killed" not in self.done:
            raise subprocess.TimeoutExpired("script", timeout)
        return -9

    def kill(self) -> None:
        self.done.append("killed")


class Kept:
    """A keeper, the processes that it started, and what it noted."""

    def __init__(self) -> None:
        self.started: list[Script] = []
        self.notes: list[str] = []
        sensor = Sensor("watch", "probe", "Watch", "watch.py", 1)
        self.keeper = SensorKeeper(sensor, self.start, lambda kind, text: self.notes.append(text))
        self.keeper.tend(0)

    def start(self) -> Script:
        self.started.append(Script())
        return self.started[-1]

    def ends(self, code: int, now: float) -> None:
        self.started[-1].code = code
        self.keeper.tend(now)


class TestSensorKeeper:
    def test_a_sensor_that_fails_is_started_twice_again_and_then_left(self) -> None:
        kept = Kept()
        kept.ends(1, 1)
        for now in (3.4, 3.5, 3.6):
            kept.keeper.tend(now)
        assert len(kept.started) == 2
        kept.ends(1, 4)
        for now in (8.9, 9.0):
            kept.keeper.tend(now)
        assert len(kept.started) == 3
        kept.ends(1, 10)
        kept.keeper.tend(1000)
        assert len(kept.started) == 3
        assert kept.notes == [
            "watch started",
            "watch failed (exit 1), again in 2.5 s",
            "watch started",
            "watch failed (exit 1), again in 5 s",
            "watch started",
            "watch failed again (exit 1) and is LEFT FOR GOOD",
        ]

    def test_ten_seconds_of_running_earn_new_tries_and_one_that_ends_by_itself_gets_none(
        self,
    ) -> None:
        kept = Kept()
        for now in range(0, 100, 20):
            kept.ends(1, now + 1)
            kept.keeper.tend(now + 4)
            kept.keeper.tend(now + 14)
        assert len(kept.started) == 6
        kept.ends(0, 101)
        kept.keeper.tend(1000)
        assert len(kept.started) == 6

    @pytest.mark.processes
    def test_an_exception_ends_the_process_and_nothing_else(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        source = tmp_path / "watch.py"
        write(source, WATCH.replace("polls = ", "polls = 1 / 0 or "))
        sensor = Sensor("watch", "probe", "Watch", str(source), 1)
        process = start(sensor, {"greeting": "hi"}, tmp_path)
        process.wait(60)
        assert process.poll() == 1
        out, err = capfd.readouterr()
        assert out == ""
        assert "cleaned up" in err
        assert err.endswith("ZeroDivisionError: division by zero\n")


def test_a_sensor_hurries_and_is_never_slower(root: Path) -> None:
    write(root / "sensors" / "watch.yaml", SENSOR.replace("poll_interval: 1", "poll_interval: 30"))
    write(root / "sensors" / "watch.py", WATCH)
    assert [load_sensors(Pack(root), every)[0].poll_interval for every in (None, 2, 60)] == [
        *(30, 2, 30)
    ]


def test_the_pack_itself_is_served() -> None:
    pack = Pack(ROOT)
    book = RuleBook(pack)
    assert set(book.rules) == {file.stem for file in (ROOT / "rules").glob("*.yaml")}
    assert set(book.payload_schemas) == {
        f"edgetune.{file.stem}" for file in (ROOT / "triggers").glob("*.yaml")
    }
    assert {sensor.name for sensor in load_sensors(pack)} == {
        file.stem for file in (ROOT / "sensors").glob("*.yaml")
    }
    assert book.rule("recover_left").enabled
    assert not book.rule("edgetune.roll_back_degraded").enabled


def world_with_a_sick_host(folder: Path) -> World:
    """The first batch was changed, and its host answers slowly since."""
    folder.mkdir()
    world = World(folder)
    world.mark("baseline")
    world.mark("changing")
    world.roll(0)
    world.step(check_health, 0)
    opened, now = as_owner(world.context, world.rollout), time.time()
    opened.head.baseline = [now - 1000, now - 900]
    opened.save()
    (sick,) = world.plan.batches[0].hosts
    for at, latency in ((now - 950, 1.0), (now, 900.0), (time.time(), 900.0)):
        rows = [
            reading(host, at, health_failed=0, health_p50_ms=latency if host == sick else 1.0)
            for host in world.balancer.state
        ]
        world.context.samples.add("lab1", rows)
    return world


@pytest.mark.processes
def test_the_guard_finds_a_sick_host_and_its_rule_rolls_back(home: Path) -> None:
    world = world_with_a_sick_host(home / "world")
    served = Served(ROOT, home, "roll_back_degraded")
    started: list[Any] = []
    served.engine.execute = started.append  # type: ignore[method-assign]
    (guard,) = (one for one in load_sensors(Pack(ROOT)) if one.name == "rollout_guard")
    process = start(guard, world.config, home)
    wait_until(lambda: any((home / "serve").glob("*.json")))
    process.terminate()
    process.wait(60)
    assert process.poll() == 0
    served.tick()
    (execution,) = started
    assert execution.action.ref == "edgetune.roll_back_pop"
    assert execution.parameters["rollout"] == world.rollout
    assert execution.parameters["epoch"] == read_rollout(world.context, world.rollout).head.epoch
    assert execution.parameters["requested_by"] == "rule edgetune.roll_back_degraded"
    assert "answers in 900 ms, 1.0 ms is usual" in execution.parameters["reason"]


class TestGuardRules:
    """What the guard finds goes through its rule to the action, which does nothing twice."""

    @pytest.fixture
    def world(self, tmp_path: Path) -> World:
        (tmp_path / "world").mkdir()
        world = World(tmp_path / "world", interval=10)
        world.mark("baseline")
        world.mark("changing")
        return world

    def load(self, world: World, usual: float, silent: str = "") -> None:
        """Each host receives 100 packets a second; one has been silent for a minute."""
        opened, now = as_owner(world.context, world.rollout), time.time()
        opened.head.usual_load = usual
        opened.save()
        rows = [
            {
                "host": host,
                "time": now - age,
                "boot_id": "b",
                "uptime": 1000 - age,
                "counters": {"rx_packets": 100 * (1000 - age)},
                "gauges": {},
            }
            for age in range(200, -1, -10)
            for host in world.balancer.state
            if age > 60 or host != silent
        ]
        world.context.samples.add("lab1", as_samples(rows))

    def polls(
        self, world: World, home: Path, rule: str, times: int = 1, by: Guard | None = None
    ) -> list[str]:
        """What the actions say that a rule starts when the guard polls."""
        served = Served(ROOT, home, rule, config=world.config)
        book = served.book.rules
        ran: list[Any] = []
        execute = served.engine.execute
        served.engine.execute = lambda one: (ran.append(one), execute(one))[1]  # type: ignore[method-assign,func-returns-value]
        found = list((by or Guard(print)).look(world.context))
        for _ in range(times):
            for trigger, payload in found:
                served.inbox.post(f"edgetune.{trigger}", safe(payload))
            lines = served.tick()
            assert not [line for line in lines if "dropped" in line or "failed" in line], lines
        return [one.payload["message"] for one in ran if one.action.ref == book[rule].action]

    @pytest.mark.processes
    def test_a_surge_pauses_and_its_end_resumes(self, world: World, home: Path) -> None:
        self.load(world, usual=300.0)
        why = "surge, by rule edgetune.pause_surge: lab1 carries 2.7 times its usual load; "
        first, second = self.polls(world, home, "pause_surge", times=2)
        assert first.startswith(f"lab1 is paused ({why}")
        assert second.startswith(f"lab1 is paused already ({why}")
        assert self.polls(world, home, "pause_surge") == []
        assert self.polls(world, home, "resume_surge") == []
        self.load(world, usual=500.0)
        first, second = self.polls(world, home, "resume_surge", times=2)
        assert first.startswith(f"lab1 goes on (rule edgetune.resume_surge); it was paused ({why}")
        assert second == "lab1 is not paused"
        assert self.polls(world, home, "resume_surge") == []

    @pytest.mark.processes
    def test_a_lost_host_pauses_and_is_told_once_where_the_rollout_was_asked_for(
        self, world: World, home: Path
    ) -> None:
        one = Guard(print)
        self.load(world, usual=0.0, silent="e003")
        assert self.polls(world, home, "tell_lost_host") == []
        first, second = self.polls(world, home, "stop_lost_host", times=2)
        why = "lost_host, by rule edgetune.stop_lost_host: no sample of e003 for 1m"
        assert first.startswith(f"lab1 is paused ({why}")
        assert second.startswith(f"lab1 is paused already ({why}")
        opened = as_owner(world.context, world.rollout)
        opened.head.channel = "edge"
        opened.save()
        (said,) = self.polls(world, home, "tell_lost_host", by=one)
        assert "lab1: no sample of e003 for 1m" in said
        # Told once more while it is paused, and then for an hour no more.
        assert self.polls(world, home, "tell_lost_host", by=one) == []


class TestCommand:
    @pytest.fixture
    def home(self, tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("EDGETUNE_HOME", str(tmp_path))
        monkeypatch.setenv("EDGETUNE_PACK", str(root))
        monkeypatch.delenv("EDGETUNE_CONFIG", raising=False)
        (tmp_path / "edgetune.yaml").write_text("greeting: hi\n")
        Site(root, tmp_path).rule("heed", UNWELL, enabled=False)
        return tmp_path

    def test_rules_are_listed_and_switched(
        self, home: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for verb, state in (("list", "disabled"), ("enable", "enabled"), ("disable", "disabled")):
            if verb != "list":
                assert cli.main(["rule", verb, "probe.heed"]) == 0
            assert cli.main(["rule", "list"]) == 0
            words = capsys.readouterr().out.split()
            assert words == ["heed", state, "unwell", "->", "echo"]

    def test_an_unknown_rule_and_a_second_server_are_one_line(
        self, home: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for words in ("serve --enable hede", "rule enable hede", "serve"):
            with Inbox(home).served():
                assert cli.main(words.split()) == 2
            error = 'edgetune: unknown rule "hede" (did you mean heed?)'
            if words == "serve":
                error = f"edgetune: `edgetune serve` runs already on {home}"
            assert capsys.readouterr().err.splitlines()[0] == error

    @pytest.mark.processes
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
    def test_from_sensor_to_execution_and_to_the_end(
        self, home: Path, root: Path, number: signal.Signals
    ) -> None:
        once = SENSOR.replace("poll_interval: 1", "poll_interval: 600")
        write(root / "sensors" / "watch.yaml", once)
        write(root / "sensors" / "watch.py", WATCH)
        process = self.serve(home)
        lines = lines_until(process, "execution")
        sensors = children_of(process.pid)
        # Of a group of its own: Ctrl-C in a terminal is for the server, which ends it.
        assert [os.getpgid(int(sensor)) for sensor in sensors] == [int(sensors[0])]
        process.send_signal(number)
        process.communicate(timeout=60)
        if number == signal.SIGKILL:
            wait_for_end(sensors)
        assert not is_running(sensors[0])
        assert process.returncode == (-9 if number == signal.SIGKILL else 0)
        assert lines[0] == "serving   rules that are on: heed\n"
        assert lines[1] == "sensor    watch started\n"
        assert lines[2].endswith('{"id": "found 1"}\n')
        assert lines[3].startswith("rule      heed -> core.echo ")
        assert "succeeded" in lines[4]
        said = (home / "errors").read_text()
        assert said == "sensor.Watch.watch: INFO     config hi\ncleaned up\n"
        assert (home / "serve").exists() == (number == signal.SIGKILL)

    @pytest.mark.processes
    def test_a_second_signal_kills_what_runs(self, home: Path, root: Path) -> None:
        given = {"seconds": 600, "marker": str(home / "pids")}
        Site(root, home).rule("heed", UNWELL, action={"ref": "probe.wait", "parameters": given})
        process = self.serve(home)
        lines_until(process, "serving")
        Inbox(home).post("probe.unwell", {"id": "a"})
        wait_until((home / "pids").exists)
        process.send_signal(signal.SIGTERM)
        assert "running actions are left to finish" in lines_until(process, "ending")[-1]
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
        assert "probe.wait" in out
        assert "canceled after" in out
        wait_for_end((home / "pids").read_text().split())
        assert not (home / "serve").exists()

    def serve(self, home: Path) -> subprocess.Popen[str]:
        with (home / "errors").open("wb") as stderr:
            return subprocess.Popen(
                [sys.executable, "-m", "lab.cli", "serve", "--verbose", "--enable", "all"],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )


def lines_until(process: subprocess.Popen[str], kind: str) -> list[str]:
    """What a server prints, without the time, up to the first line of a kind."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.split(maxsplit=1)[1])
        if line.split()[1] == kind:
            return lines
    raise AssertionError(lines)


def children_of(process: int) -> list[str]:
    return Path(f"/proc/{process}/task/{process}/children").read_text().split()
