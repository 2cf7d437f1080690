# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from edgetune.base.documents.inventory import Differences
from edgetune.base.errors import InputError
from edgetune.base.files import load_yaml
from edgetune.base.freezes import in_force
from edgetune.base.options import options_of
from edgetune.report import action
from edgetune.report.action import run_step, safe
from edgetune.rollout.context import Context
from edgetune.rollout.record.kept_inventory import pop_for_plan
from edgetune.rollout.steps.accept_inventory import accept_inventory
from edgetune.rollout.steps.diagnose_hosts import diagnose_hosts
from edgetune.rollout.steps.list_applied import list_applied
from edgetune.rollout.steps.plan_rollout import plan_rollout
from edgetune.site.config import Config, read_config
from edgetune.wings.congestion.rounds.steps.find_tuned_pops import find_tuned_pops
from edgetune.wings.congestion.rounds.steps.roll_back_congestion import roll_back_congestion
from tests.support import ROOT
from tests.support.world import EmptyWorld

GOOD = {"inventory": "/i.yaml", "ssh_key_file": "/k", "ssh_known_hosts": "/h"}


NUMBERS = [each.name for each in fields(Config) if each.type in ("int", "float")]
TEXTS = [each.name for each in fields(Config) if each.type in ("str", "Path")]


@pytest.mark.parametrize("key", NUMBERS)
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 1e300, 10**400, -(10**9)])
def test_a_number_that_nobody_means_names_its_key(key: str, number: float) -> None:
    with pytest.raises(InputError, match=rf"^configuration: {key}: ") as caught:
        read_config({**GOOD, key: number})
    assert len(str(caught.value)) < 100


@pytest.mark.parametrize("key", TEXTS)
def test_a_text_that_nobody_means_names_its_key(key: str) -> None:
    for text in ("x" * 10_000_000, "a\0b", "a\x1b[2J", "\ud800"):
        with pytest.raises(InputError, match=rf"^configuration: {key}: ") as caught:
            read_config({**GOOD, key: text})
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 2300


TIMES = [each.name for each in options_of(Config) if each.is_time]


@pytest.mark.parametrize("key", TIMES)
@pytest.mark.parametrize("given", ["25h30m", "91800", 91800, 91800.0])
def test_a_time_is_given_as_people_write_it_or_in_seconds(key: str, given: Any) -> None:
    long = {} if key == "claim_ttl" else {"claim_ttl": "30d"}
    assert getattr(read_config({**GOOD, **long, key: given}), key) == 91800


def test_freezes_are_windows_of_a_week_and_days_of_a_calendar() -> None:
    config = read_config(
        {
            **GOOD,
            "freezes": [{"name": "night", "start": "22:00", "end": "06:00"}],
            "events": [{"name": "final", "from": "2026-07-19", "to": "2026-07-19"}],
        }
    )
    assert [each.name for each in config.closed] == ["night", "final"]
    assert in_force(config.closed, 1_784_462_400.0) == [("final", 1_784_505_600.0)]
    assert read_config({**GOOD, "freezes": [], "events": None}).closed == ()


DEFAULTS = {
    name: own["default"]
    for name, own in load_yaml(ROOT / "config.schema.yaml").items()
    if "default" in own
}


@pytest.mark.parametrize("config", [{}, None, DEFAULTS], ids=["empty", "none", "defaults"])
@pytest.mark.parametrize("periodic", [False, None, True])
def test_without_any_configuration_a_person_is_told_and_a_timer_waits(
    config: Any, periodic: bool | None
) -> None:
    def sample_hosts(context: Any) -> dict[str, Any]:
        raise AssertionError("nothing is done")

    ok, result = run_step(sample_hosts, config, periodic)
    told = result["message" if periodic else "error"]
    assert told.startswith("/opt/stackstorm/configs/edgetune.yaml: is not there, or not registered")
    assert told.endswith("then run: st2ctl reload --register-configs")
    assert ok is bool(periodic)
    if periodic:
        assert (result["samples"], result["missing"], result["drift"]) == (0, [], {})
    else:
        assert result["reason"] == "unconfigured"


def _sees(context: Any, **answer: Any) -> dict[str, Any]:
    context.known_inventory.pop(answer.pop("pop", "lab1"))
    return {"message": "seen", "text": Differences("seen\n", ()), "failed": [], **answer}


def test_an_answer_says_that_a_broken_inventory_was_not_read(tmp_path: Path) -> None:
    """What has to go on goes on with what is kept; an old address is not acted on in silence."""
    world = EmptyWorld(tmp_path)
    path = Path(world.config["inventory"])
    ok, result = run_step(_sees, world.config)
    assert (ok, result["message"], result["text"]) == (True, "seen", "seen\n")
    broken = path.read_text() + "pops: {"
    path.write_text(broken)
    told = f"{path}: line "
    assert run_step(_sees, world.config)[1]["error"].startswith(told)
    path.write_text(broken[:-7])
    pop_for_plan(Context(world.config), "lab1")
    path.write_text(broken)
    ok, result = run_step(_sees, world.config)
    note = rf"the inventory is as it was kept \d+s ago: {re.escape(told)}.*"
    assert ok and re.fullmatch(f"seen; {note}", result["message"])
    assert re.fullmatch(f"NOTE: {note}\nseen\n", result["text"])
    for more in ({"pop": "lab7"}, {"error": "no", "failed": ["e000"]}):
        ok, result = run_step(_sees, world.config, **more)
        assert not ok and re.search(note, f"{result['error']}; {result.get('message')}")
    # What takes back goes on, too.
    for step, given in ((list_applied, {"tuning": "accept_queue"}), (roll_back_congestion, {})):
        _, result = run_step(step, world.config, pop="lab1", **given)
        assert re.search(note, f"{result.get('error')}; {result.get('message')}"), step.__name__
        assert not str(result.get("error", "")).startswith(told)
    # A person that asks for hosts is told of the file alone.
    ok, result = run_step(diagnose_hosts, world.config, pop="lab1")
    assert not ok and result["error"].startswith(told)


@pytest.mark.parametrize(
    ("step", "field"),
    [(plan_rollout, "plan"), (accept_inventory, "pop"), (find_tuned_pops, "pop")],
    ids=lambda own: getattr(own, "__name__", own),
)
def test_an_empty_text_is_not_taken_for_none(tmp_path: Path, step: Any, field: str) -> None:
    """A program with a variable that is not set would have all PoPs, or a plan nobody saw."""
    world = EmptyWorld(tmp_path)
    for nothing in ("", "  ", "\n"):
        told = run_step(step, world.config, **{field: nothing})
        reason = f"parameter: {field}: is empty: leave it out, or say which"
        assert told == (False, {"error": reason, "reason": "input"})
    assert world.context.store.list("edgetune") == {}


def _first(context: Any, **answer: Any) -> dict[str, Any]:
    return {"message": "one", "next": "_second", "failed": [], "done": 1, **answer}


def _second(context: Any, **answer: Any) -> dict[str, Any]:
    return {"message": "two", "next": "_third", "failed": [], "hosts": ["e001"]}


def _third(context: Any, **answer: Any) -> dict[str, Any]:
    return {"message": "three", "next": "", "failed": ["e002"], "error": "no", "done": 3}


def test_steps_that_follow_at_once_are_taken_in_the_same_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ok, result = run_step(_first, GOOD, then=(_second, _third))
    told = {"message": "one; two; three", "next": "", "failed": ["e002"], "done": 3}
    assert (ok, result) == (False, {**told, "error": "_third: no"})
    # A rollback quarantines a host and goes on with the others.
    _, result = run_step(_first, GOOD, then=(_second,), error="e003: no way")
    assert (result["error"], result["message"]) == ("e003: no way", "one; two")
    # None follows one that failed or names another.
    for answer in ({"failed": ["e001"]}, {"next": "_fourth"}, {"next": ""}):
        ok, result = run_step(_first, GOOD, then=(_second, _third), **answer)
        assert (result["message"], ok) == ("one", not answer.get("failed"))
    # What took long leaves the rest to other tasks.
    monkeypatch.setattr(action, "AT_ONCE", -1.0)
    _, result = run_step(_first, GOOD, then=(_second, _third))
    assert (result["message"], result["next"]) == ("one", "_second")


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ({"message": "2 drained"}, "2 drained"),
        ({"message": "x", "error": "e001: no", "failed": ["e001"]}, "e001: no"),
        ({"message": "\u00b1 {{ 1 }}"}, "\\xb1 { { 1 }}"),
    ],
)
def test_a_task_prints_what_it_did_and_gives_parameters_their_defaults(
    answer: dict[str, Any], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, result = run_step(lambda context, pop="all": {**answer, "pop": pop}, GOOD, pop=None)
    assert (result["pop"], capsys.readouterr().out) == ("all", f"{line}\n")


@pytest.mark.parametrize("periodic", [None, True])
@pytest.mark.parametrize(
    "given",
    [{"ssh_key_file": "/k"}, {"coordination": "redis://other/0"}, {"inventry": "/i"}],
)
def test_a_wrong_configuration_is_an_error_of_one_line_also_for_a_timer(
    given: dict[str, Any], periodic: bool | None
) -> None:
    ok, result = run_step(lambda context: {}, {**DEFAULTS, **given}, periodic)
    assert (ok, result["reason"]) == (False, "input")
    assert result["error"] == "configuration: inventory: is missing"


def test_what_a_device_says_is_no_template() -> None:
    odd = ["{{ 1 + 1 }}", "{{{7*7}}", "{{{{x", "{{%", {"x": "{% raw %}"}, "<% ctx() %>", "{#", 3]
    text = str(safe({"a{{b}}": odd}))
    assert not any(mark in text for mark in ("{{", "{%", "<%", "{#"))
