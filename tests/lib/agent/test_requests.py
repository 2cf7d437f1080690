# SPDX-License-Identifier: Apache-2.0
"""Whatever is sent to the host agent, it answers once, briefly, and touches nothing by that.

It names the field that is wrong, and tells nothing of what a file of the host holds.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from edgetune.agent import drift
from edgetune.agent.dispatch import LONGEST_FIELD, LONGEST_MESSAGE, VERBS, answer
from edgetune.agent.observe import LONGEST_REASON, LONGEST_VALUE
from edgetune.agent.protocol import shortened
from edgetune.agent.vocabulary.values import alike, described, in_a_line
from edgetune.base.documents.settings import Standing
from edgetune.net.result import HostResult
from edgetune.rollout.steps.verify_hosts import _is_as
from tests.support.agent_root import AgentRoot, NearRoot, channels, file, request, sysctl
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


SOMAXCONN = "proc/sys/net/core/somaxconn"


def test_a_long_value_is_told_by_its_ends_and_its_digest(host: NearRoot) -> None:
    host.write(SOMAXCONN, "1 " * 50_000)
    (row,) = host.plan(sysctl("4096"))
    assert row["status"] == "change" and len(row["runtime"]) < LONGEST_VALUE + 200
    before = row["runtime"]
    host.write(SOMAXCONN, "1 " * 25_000 + "2 " + "1 " * 24_999)
    assert host.plan(sysctl("4096"))[0]["runtime"] != before, "the middle counts, too"


def test_a_long_error_is_cut(host: NearRoot) -> None:
    change = host.change(sysctl("4096"))
    host.write(SOMAXCONN, "9 " * 900)
    error = host.fail("apply", **change)
    assert "the plan saw 128" in error["message"] and len(error["message"]) <= LONGEST_MESSAGE
    error = host.send(request("plan", **{"x" * 100_000: 1}, tuning="t", digest="d"))["error"]
    assert len(json.dumps(error)) < LONGEST_MESSAGE + LONGEST_FIELD + 100
    host.write("etc/sysctl.d/99-z.conf", f"net.core.somaxconn = {'7' * 900}\n")
    (row,) = host.plan(sysctl("4096"))
    assert row["status"] == "unsupported" and len(row["reason"]) <= LONGEST_REASON


def test_a_sample_tells_of_some_drift_in_short_texts(
    host: NearRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drift, "MOST_ROWS", 2)
    keys = [f"net.core.k{number}" for number in range(4)]
    for key in keys:
        host.write(f"proc/sys/{key.replace('.', '/')}", "1\n")
    host.apply(*(sysctl("2", key=key) for key in keys))
    for key in keys:
        host.write(f"proc/sys/{key.replace('.', '/')}", "3 " * 700)
    sample = host.ask("sample")
    assert len(sample["drift"]) == 2
    assert all(len(row["runtime"]) <= drift.LONGEST_IN_SAMPLE for row in sample["drift"])


def test_the_ends_of_a_text_stay() -> None:
    assert shortened("abc", 3) == "abc"
    assert shortened("a" * 50 + "z" * 50, 25) == "a" * 10 + " ... " + "z" * 10


CONF = "/etc/app/app.conf"
SECRET = "password = correct-horse\n"
TEXT = "workers 4\n"
OWN = file(CONF, TEXT)


@pytest.mark.processes
def test_no_answer_holds_what_a_file_held(host: NearRoot) -> None:
    host.write(CONF[1:], SECRET).chmod(0o600)
    change_it = request("apply", **host.change(OWN))
    of_t = {"tuning": "t", "settings": [OWN]}
    asked = [
        request("plan", digest="sha256:1", **of_t),
        change_it,
        request("verify", **of_t),
        request("confirm", epoch=1, **of_t),
        request("sample"),
        request("facts"),
        request("diagnose", seconds=0),
    ]
    answers = [host.send(each) for each in asked]
    host.write(CONF[1:], SECRET + "and more\n")
    answers += [host.send(each) for each in asked]
    host.write("stub/restart-fails", "")
    answers.append(host.send(request("restore", epoch=1, tuning="t")))
    assert any(answer["ok"] and "drift" in answer["result"] for answer in answers)
    assert "correct-horse" not in json.dumps(answers)
    assert host.read(CONF[1:]) == SECRET


def compared(was: Any, now: Any) -> HostResult | None:
    before = {"file:/x": Standing(was, was)}
    both = {"runtime": now, "persistent": now}
    row = {"id": "file:/x", "status": "noop", **both, "wanted": None}
    told = _is_as(before, HostResult("e000", data={"settings": [row]}))
    return told if told.error else None


def test_a_rollback_compares_with_records_of_older_versions() -> None:
    now = described(SECRET.encode(), 0o600, 0, 0)
    assert compared(SECRET, now) is None
    assert compared(now, now) is None
    wrong = compared("else\n", now)
    assert wrong and "not as before" in str(wrong.error) and "else" not in str(wrong.error)
    assert compared(now, described(SECRET.encode(), 0o644, 0, 0)) is not None


@given(st.text(), st.text(), st.integers(0, 0o7777), st.integers(0, 70000))
def test_a_content_is_like_its_description_and_no_other(
    text: str, other: str, mode: int, owner: int
) -> None:
    told = described(text.encode(), mode, owner, owner)
    assert alike(text, told) and alike(told, text) and alike(told, described(text.encode()))
    assert alike(other, told) == (other in (text, told))
    assert not alike(told, None) and not alike(None, told) and not alike(told, {"rx": 1})


def test_a_line_has_as_much_of_a_digest_as_people_compare() -> None:
    told = described(b"a\nb", 0o644, 0, 0)
    digest = told[len("sha256:") :][:12]
    assert in_a_line(told) == f"sha256:{digest}, 3 bytes, 2 lines, mode 0644, owner 0:0"
    assert in_a_line("a\nb") == f"sha256:{digest}, 3 bytes, 2 lines"
    assert in_a_line("plain") == "plain"
