# SPDX-License-Identifier: Apache-2.0
"""Whatever is sent to the host agent, it answers once, names the field, and touches nothing."""

from __future__ import annotations

import copy
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from edgetune.agent.dispatch import VERBS, answer
from tests.support.agent_root import AgentRoot, channels, near_root, sysctl
from tests.support.cases import table
from tests.support.examples import examples

GOOD: dict[str, Any] = {
    "protocol": 1,
    "verb": "apply",
    "epoch": 1,
    "rollout": "r1",
    "tuning": "t",
    "digest": "sha256:1",
    "settings": [sysctl("4096"), channels(2)],
    "expect": {
        "sysctl:net.core.somaxconn": {"runtime": "128", "persistent": "128"},
        "nic.channels:eth0": {"runtime": {"rx": 4, "tx": 4}, "persistent": None},
    },
    "confirm_within": 0,
    "grace_boots": 0,
}
LEFT_OUT = "(left out)"
FIELDS = table(Path(__file__).with_name("wrong_fields.yaml"))
WRONG = [(field, value) for field, values in FIELDS.items() for value in values]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[AgentRoot]:
    with near_root(tmp_path / "host") as root:
        yield root


def path_of(field: str) -> list[Any]:
    """The way to a field by its name; those of ``expect`` have dots in theirs."""
    if field.startswith("expect."):
        return field.split(".", 1)
    parts = re.findall(r"[a-z_]+|[0-9]+", field)
    return [int(part) if part.isdigit() else part for part in parts]


def with_change(path: Any, value: Any) -> dict[str, Any]:
    """GOOD with one part replaced."""
    request = copy.deepcopy(GOOD)
    inner: Any = request
    for step in path[:-1]:
        inner = inner[step]
    if value == LEFT_OUT:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return request


def assert_named(host: AgentRoot, request: dict[str, Any], field: str) -> None:
    before = host.tree()
    reply = answer(str(host.path), json.dumps(request).encode())
    assert not reply["ok"]
    assert (reply["error"]["reason"], reply["error"]["field"]) == ("bad_request", field), reply
    assert host.tree() == before and not host.leftovers() and not host.commands


@pytest.mark.parametrize(("field", "value"), [*WRONG, ("settings[0].value", "\ud800")])
def test_the_wrong_field_is_named_and_nothing_is_touched(
    host: AgentRoot, field: str, value: Any
) -> None:
    assert_named(host, with_change(path_of(field), value), field)


def test_another_protocol_is_told_the_way_out(host: AgentRoot) -> None:
    reply = host.send(b'{"protocol": 2, "verb": "facts"}')
    assert reply["error"]["field"] == "protocol"
    assert reply["error"]["message"].startswith("is not 1, which this agent speaks: ")
    assert reply["error"]["message"].endswith("restart its workers; got 2")


@pytest.mark.processes
def test_the_good_request_is_good(host: AgentRoot) -> None:
    assert answer(str(host.path), json.dumps(GOOD).encode())["ok"]


@pytest.mark.parametrize(
    "document",
    [b"", b"{", b"null", b"[]", b"\xff\xfe", b'"x"', b"{}", b"[" * 100_000, b"NaN", b"\0"],
)
def test_garbage_gets_one_answer(host: AgentRoot, document: bytes) -> None:
    reply = host.send(document)
    assert reply["verb"] is None and reply["error"]["reason"] == "bad_request"


SCALAR = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
JSON = st.recursive(
    SCALAR,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
PLACES = [
    *((key,) for key in GOOD),
    ("settings", 0),
    ("settings", 0, "target"),
    ("expect", "sysctl:net.core.somaxconn"),
    *(("settings", number, key) for number in (0, 1) for key in GOOD["settings"][number]),
]
ANYTHING = st.one_of(
    JSON,
    st.builds(with_change, st.sampled_from(PLACES), JSON),
    st.builds(lambda verb: {**GOOD, "verb": verb}, st.sampled_from(sorted(VERBS))),
    st.builds(
        lambda verb, fields: {"protocol": 1, "verb": verb, **fields},
        # A reboot would be of the private root only, but nothing here is about it; a diagnosis
        # takes its time.
        st.sampled_from(sorted(set(VERBS) - {"reboot", "sample", "diagnose"})),
        st.dictionaries(st.sampled_from(sorted(GOOD)[:-1]), JSON, max_size=4),
    ),
)


@pytest.mark.processes
@given(ANYTHING)
@examples(250, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_json_gets_one_answer(host: AgentRoot, document: Any) -> None:
    reply = answer(str(host.path), json.dumps(document).encode())
    assert json.loads(json.dumps(reply))["edgetune"] == 1
    if reply["ok"]:
        shutil.rmtree(host.path / "var", ignore_errors=True)
        return
    error = reply["error"]
    assert error["reason"] in ("bad_request", "refused", "failed")
    assert error["message"] and "\n" not in error["message"]
    assert "Error" not in error["message"], "only what is foreseen"
