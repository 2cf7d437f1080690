# SPDX-License-Identifier: Apache-2.0
"""The checks of the pack's files can fail: each on a small document with one thing wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgetune.errors import InputError
from edgetune.files import load_yaml
from tests.support import ROOT
from tests.support.metadata.actions import action_problems
from tests.support.metadata.aliases import alias_problems
from tests.support.metadata.events import rule_problems, sensor_problems
from tests.support.metadata.policies import policy_problems
from tests.support.metadata.schemas import PACK, PARAMETERS, TRIGGER
from tests.support.metadata.values import REMOVED, Document, Known, altered, name_problems, shape

Case = tuple[str, Any, str]

RUN = """
from edgetune.asking import ask

class Ask(Action):
    def run(self, **parameters: Any) -> Result:
        return run_step(ask, self.config, **parameters)
"""
STEP = """
def ask(
    context: Context, host: str, tries: int = 3, names: Sequence[str] = (), *, inside: bool = False
) -> dict[str, Any]: ...
"""
SENSOR_CODE = """
class Watch(PollingSensor):
    def setup(self): ...
    def poll(self):
        self.sensor_service.dispatch(trigger="edgetune.seen", payload={})
    def cleanup(self): ...
    def add_trigger(self, trigger): ...
    def update_trigger(self, trigger): ...
    def remove_trigger(self, trigger): ...
"""
ACTION: Document = {
    "name": "ask",
    "description": "Ask a host.",
    "enabled": True,
    "runner_type": "python-script",
    "entry_point": "ask.py",
    "parameters": {
        "host": {"type": "string", "description": "A.", "required": True, "position": 0},
        "tries": {"type": "integer", "description": "A.", "default": 3, "position": 1},
        "names": {"type": "array", "description": "A.", "default": [], "items": {"type": "string"}},
        "timeout": {"default": 60},
    },
    "output_schema": {
        "type": "object",
        "properties": {"answer": {"type": "string", "description": "A."}},
        "additionalProperties": False,
    },
}
TRIGGER_TYPE: Document = {
    "name": "seen",
    "description": "Something was seen.",
    "payload_schema": {
        "type": "object",
        "properties": {"host": {"type": "string", "description": "A."}},
        "additionalProperties": False,
    },
}
SENSOR: Document = {
    "class_name": "Watch",
    "entry_point": "watch.py",
    "description": "Looks.",
    "enabled": True,
    "poll_interval": 5,
}
RULE: Document = {
    "name": "ask_seen",
    "description": "Ask.",
    "enabled": False,
    "trigger": {"type": "edgetune.seen"},
    "criteria": {"trigger.host": {"type": "startswith", "pattern": "e"}},
    "action": {"ref": "edgetune.ask", "parameters": {"host": "{{ trigger.host }}", "tries": 1}},
}
POLICY: Document = {
    "name": "one_ask",
    "description": "One at a time.",
    "enabled": True,
    "resource_ref": "edgetune.ask",
    "policy_type": "action.concurrency.attr",
    "parameters": {"threshold": 1, "action": "cancel", "attributes": ["host"]},
}
ALIAS: Document = {
    "name": "edgetune_ask",
    "description": "Ask.",
    "enabled": True,
    "action_ref": "edgetune.ask",
    "formats": [{"display": "ask <host>", "representation": ["ask {{ host }}"]}],
    "immutable_parameters": {"tries": 2},
    "ack": {"format": "Asking {{ execution.parameters.host }}."},
    "result": {"format": "{{ execution.result.result.answer }}"},
}
KNOWN = Known({"edgetune.ask": ACTION}, {"edgetune.seen": TRIGGER_TYPE})


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    files = {
        "actions/ask.py": RUN,
        "lib/edgetune/asking.py": STEP,
        "sensors/watch.py": SENSOR_CODE,
    }
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text(text, encoding="utf-8")
    return tmp_path


def seen(problems: list[str], expected: str) -> None:
    assert any(expected in problem for problem in problems), problems


def test_good_documents_have_no_problems(pack: Path) -> None:
    assert action_problems(ACTION, pack) == []
    assert shape(TRIGGER_TYPE, TRIGGER) == []
    assert sensor_problems(SENSOR, pack, KNOWN) == []
    assert rule_problems(RULE, KNOWN) == []
    assert policy_problems(POLICY, KNOWN.actions) == []
    assert alias_problems(ALIAS, KNOWN.actions) == []


ACTION_CASES: list[Case] = [
    ("entrypoint", "ask.py", "'entrypoint' was unexpected"),
    ("description", REMOVED, "'description' is a required property"),
    ("description", "Ask a host", "description: 'Ask a host' does not match"),
    ("enabled", "yes", "enabled: 'yes' is not of type 'boolean'"),
    ("enabled", REMOVED, "'enabled' is a required property"),
    ("runner_type", "python", "runner_type: 'python' is none of"),
    ("entry_point", "../ask.py", "entry_point: '../ask.py' must be a plain path"),
    ("entry_point", "/ask.py", "entry_point: '/ask.py' must be a plain path"),
    ("entry_point", "aks.py", "entry_point: there is no file actions/aks.py"),
    ("entry_point", "out.py", "entry_point: actions/out.py leaves the pack"),
    ("runner_type", "orquesta", "entry_point: 'ask.py' must end in .yaml"),
    ("parameters.host.type", ["string", "null"], "parameters.host.type: ['string', 'null'] is not"),
    ("parameters.host.type", REMOVED, "parameters.host.type: is missing"),
    ("parameters.host.description", REMOVED, "parameters.host.description: is missing"),
    ("parameters.host.format", "ipv4", "'format' was unexpected"),
    ("parameters.host.const", "e000", "'const' was unexpected"),
    ("parameters.host.examples", ["e000"], "'examples' was unexpected"),
    ("parameters.host.required", ["a"], "parameters.host.required: ['a'] is not of type"),
    ("parameters.names.items.required", [], "parameters.names.items.required: [] is not of type"),
    ("parameters.host.exclusiveMinimum", True, "'minimum' is a dependency"),
    ("parameters.host.default", "e000", "parameters.host: is required and has a default"),
    ("parameters.host.position", 1, "positions must be 0, 1, ... each once, not [1, 1]"),
    ("parameters.host.position", REMOVED, "positions must be 0, 1, ... each once, not [1]"),
    ("parameters.tries.position", 2, "positions must be 0, 1, ... each once, not [0, 2]"),
    ("parameters.host.immutable", True, "parameters.host: is immutable, so it needs a default"),
    ("parameters.tries.default", "many", "parameters.tries.default: 'many' is not of type"),
    ("parameters.tries.minimum", 4, "parameters.tries.default: 3 is less than the minimum"),
    ("parameters.names.default", [1], "parameters.names.default.0: 1 is not of type 'string'"),
    ("parameters.the-host", {"type": "string"}, "'the-host' does not match any of the regexes"),
    ("parameters.timeout", REMOVED, "parameters.timeout: needs a default"),
    ("parameters.timeout.default", "60 s", "parameters.timeout.default: '60 s' is not of type"),
    ("parameters.timeout.minimum", 1, "parameters.timeout.minimum: cannot be overridden"),
    ("parameters.log_level", {"default": "LOUD"}, "parameters.log_level.default: 'LOUD' is not"),
    ("parameters.by", {"type": "string", "description": "A."}, "parameters.by: the step has none"),
    ("parameters.tries", REMOVED, "parameters: the step wants tries"),
    ("parameters.tries.default", 4, "parameters.tries: default is 4, in the step 3"),
    ("parameters.tries.type", "number", "parameters.tries: is of type number, in the step int"),
    ("parameters.host.required", False, "parameters.host: is not required, but has no default"),
    ("output_schema", REMOVED, "'output_schema' is a required property"),
    ("output_schema.additionalProperties", REMOVED, "'additionalProperties' is a required"),
    ("output_schema.properties", {}, "output_schema.properties: {} "),
    ("output_schema.properties.answer.type", REMOVED, "properties.answer: 'type' is a required"),
]


@pytest.mark.parametrize(("path", "value", "expected"), ACTION_CASES)
def test_broken_action(pack: Path, path: str, value: Any, expected: str) -> None:
    (pack / "actions" / "out.py").symlink_to(__file__)
    seen(action_problems(altered(ACTION, path, value), pack), expected)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "class Ask(Action):\n    def run",
            "def run",
            "exactly one class must have `run`, not none",
        ),
        (
            "\nclass Ask",
            "\nclass Other:\n    def run(self): ...\nclass Ask",
            "must have `run`, not Other, Ask",
        ),
        ("run_step(ask,", "run_step(tell,", "`run` must call run_step with a step that"),
        ("import ask", "import ask as tell", "`run` must call run_step with a step that"),
        ("host: str", "host: str = ''", "parameters.host: is required, but has a default in"),
        ("host: str", "host", "parameters.host: is of type string, in the step of none"),
        ("tries: int = 3", "tries: int = True", "parameters.tries: default is 3, in the step True"),
        ("= ()", "= ('e1',)", "parameters.names: default is [], in the step ('e1',)"),
        ("*, inside", "inside", "parameters: the step wants inside"),
        ("def ask", "def asks", "`run` must call run_step with a step that"),
    ],
)
def test_a_step_that_differs(pack: Path, old: str, new: str, expected: str) -> None:
    for file, text in (("actions/ask.py", RUN), ("lib/edgetune/asking.py", STEP)):
        (pack / file).write_text(text.replace(old, new), encoding="utf-8")
    seen(action_problems(ACTION, pack), expected)


def test_what_a_step_takes_beyond_its_names_are_options_of_a_rollout(pack: Path) -> None:
    step = STEP.replace("inside: bool = False", "**options: Any").replace("*, ", "")
    (pack / "lib/edgetune/asking.py").write_text(step, encoding="utf-8")
    soak = {"type": "string", "description": "A."}
    assert action_problems(altered(ACTION, "parameters.soak", soak), pack) == []
    seen(action_problems(altered(ACTION, "parameters.sock", soak), pack), "the step has none")


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("clas_name", "Watch", "'clas_name' was unexpected"),
        ("entry_point", "look.py", "there is no file sensors/look.py"),
        ("class_name", "Look", "class_name: Look is not in watch.py"),
        ("poll_interval", 0, "poll_interval: 0 is less than the minimum"),
        ("poll_interval", REMOVED, "poll_interval: the class has no method run"),
    ],
)
def test_broken_sensor(pack: Path, path: str, value: Any, expected: str) -> None:
    seen(sensor_problems(altered(SENSOR, path, value), pack, KNOWN), expected)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("edgetune.seen", "edgetune.sene", "dispatches unknown trigger edgetune.sene"),
        ("def cleanup", "def clean", "the class has no method cleanup"),
        ("def poll", "def look", "the class has no method poll"),
    ],
)
def test_broken_source_of_a_sensor(pack: Path, old: str, new: str, expected: str) -> None:
    (pack / "sensors" / "watch.py").write_text(SENSOR_CODE.replace(old, new), encoding="utf-8")
    seen(sensor_problems(SENSOR, pack, KNOWN), expected)


TIMER = {"type": "core.st2.IntervalTimer"}
RULE_CASES: list[Case] = [
    ("crtieria", {}, "'crtieria' was unexpected"),
    ("enabled", REMOVED, "'enabled' is a required property"),
    ("enabled", True, "enabled: a rule that changes machines must ship disabled"),
    ("trigger.type", "edgetune.sene", "trigger.type: there is no trigger 'edgetune.sene'"),
    ("trigger.parameters", {"unit": "days"}, "trigger.parameters: Additional properties"),
    ("trigger", TIMER, "trigger.parameters: 'unit' is a required property"),
    ("trigger", {**TIMER, "parameters": {"unit": "ages", "delta": 1}}, "'ages' is not one of"),
    ("criteria", {"trigger.hots": {"type": "eq", "pattern": 1}}, "criteria.trigger.hots: is not"),
    ("criteria", {"host": {"type": "eq", "pattern": 1}}, "criteria.host: is not in the payload"),
    ("criteria", {"trigger.host": {"pattern": 1}}, "criteria.trigger.host.type: None is no"),
    ("criteria", {"trigger.host": {"type": "is", "pattern": 1}}, "host.type: 'is' is no operator"),
    ("criteria", {"trigger.host": {"type": "eq"}}, "criteria.trigger.host.pattern: is missing"),
    ("action.ref", "edgetune.aks", "action.parameters: there is no action 'edgetune.aks'"),
    ("action.parameters.host", REMOVED, "action.parameters.host: is required by edgetune.ask"),
    ("action.parameters.hots", "x", "action.parameters.hots: is no parameter of edgetune.ask"),
    ("action.parameters.tries", "one", "action.parameters.tries: 'one' is not of type 'integer'"),
    ("action.parameters.host", "{{ trigger.hots }}", "host: trigger.hots is not in the payload"),
    ("action.parameters.host", "{{ trigger['hots'] }}", "trigger.hots is not in the payload"),
    ("action.parameters.host", "{{ trigger.pop }}", "trigger.pop: pop is a method, ['pop'] is in"),
]


@pytest.mark.parametrize(("path", "value", "expected"), RULE_CASES)
def test_broken_rule(path: str, value: Any, expected: str) -> None:
    seen(rule_problems(altered(RULE, path, value), KNOWN), expected)


def test_an_immutable_parameter_cannot_be_given() -> None:
    fixed = altered(ACTION, "parameters.tries.immutable", True)
    pack = Known({"edgetune.ask": fixed}, KNOWN.triggers)
    seen(rule_problems(RULE, pack), "action.parameters.tries: is immutable in edgetune.ask")


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("name", "edgetune.one_ask", "name: 'edgetune.one_ask' does not match"),
        ("resource_ref", "edgetune.aks", "resource_ref: there is no action"),
        ("policy_type", "action.once", "policy_type: 'action.once' is none of"),
        ("parameters.threshold", REMOVED, "parameters: 'threshold' is a required property"),
        ("parameters.action", "drop", "parameters.action: 'drop' is not one of"),
        ("parameters.attribute", ["host"], "parameters: Additional properties"),
        ("parameters.attributes", ["hots"], "attributes: hots is no parameter"),
        ("parameters.attributes", ["tries"], "attributes: tries can be left out"),
    ],
)
def test_broken_policy(path: str, value: Any, expected: str) -> None:
    seen(policy_problems(altered(POLICY, path, value), KNOWN.actions), expected)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("name", "ask", "name: 'ask' does not match"),
        ("format", [], "'format' was unexpected"),
        ("action_ref", "edgetune.aks", "action_ref: there is no action"),
        ("formats.0.representation", ["ask {{ hots }}"], "hots: is no parameter of edgetune.ask"),
        ("formats.0.representation", ["ask"], "host: is required by edgetune.ask"),
        ("formats.0.representation", ["ask {{host}} {{tries=1}}"], "tries: is an immutable"),
        ("immutable_parameters", {"tires": 2}, "tires: is no parameter of edgetune.ask"),
        ("immutable_parameters", {"tries": "x"}, "tries: 'x' is not of type 'integer'"),
        ("ack.format", "{{ execution.parameters.hots }}", "execution.parameters.hots is no"),
        ("result.format", "{{ execution.result.result.no }}", "execution.result.result.no is not"),
        ("result.format", "{{ execution.result.output.answer }}", "result.output.answer is not"),
        ("result.format", "{% if %}", "result.format: Expected"),
    ],
)
def test_broken_alias(path: str, value: Any, expected: str) -> None:
    seen(alias_problems(altered(ALIAS, path, value), KNOWN.actions), expected)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("payload", {}, "'payload' was unexpected"),
        ("payload_schema.properties.host.type", REMOVED, "host: 'type' is a required property"),
        ("payload_schema.additionalProperties", True, "additionalProperties: True is not one of"),
    ],
)
def test_broken_trigger(path: str, value: Any, expected: str) -> None:
    seen(shape(altered(TRIGGER_TYPE, path, value), TRIGGER), expected)


PACK_DOCUMENT = load_yaml(ROOT / "pack.yaml")


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("ref", "edge-tune", "ref: 'edge-tune' does not match"),
        ("version", 0.1, "version: 0.1 is not of type 'string'"),
        ("version", "0.1", "version: '0.1' does not match"),
        ("stackstorm_version", ">=3.8", "stackstorm_version: '>=3.8' does not match"),
        ("stackstorm_version", "3.8.0", "stackstorm_version: '3.8.0' does not match"),
        ("python_versions", ["3.8"], "python_versions.0: '3.8' is not one of"),
        ("email", "founders", "email: 'founders' does not match"),
        ("maintainer", "x", "'maintainer' was unexpected"),
    ],
)
def test_broken_pack(path: str, value: Any, expected: str) -> None:
    seen(shape(altered(PACK_DOCUMENT, path, value), PACK), expected)


def test_broken_config_schema() -> None:
    seen(shape({"a-b": {"type": "string"}}, PARAMETERS), "'a-b' does not match")
    seen(shape({"a": {"type": "text"}}, PARAMETERS), "a.type: 'text' is not one of")


def test_wrong_name_or_pack() -> None:
    assert name_problems({"name": "ask", "pack": "edgetune"}, "ask") == []
    seen(name_problems({"name": "aks"}, "ask"), "name: must be 'ask' like its file, not 'aks'")
    seen(name_problems({"name": "ask", "pack": "core"}, "ask"), "pack: must be 'edgetune'")


def test_key_given_twice(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("---\nname: a\nname: b\n", encoding="utf-8")
    with pytest.raises(InputError, match="given twice"):
        load_yaml(tmp_path / "a.yaml")
