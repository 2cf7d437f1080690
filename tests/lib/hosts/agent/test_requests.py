# SPDX-License-Identifier: Apache-2.0
"""Whatever is sent to the host agent, it answers once, names the field, and touches nothing."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from edgetune.hosts.agent.dispatch import VERBS, answer
from tests.support.agent_root import (
    AgentRoot,
    channels,
    near_root,
    nginx,
    rps,
    setting,
    sysctl,
    thp,
)
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
DELETE = object()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[AgentRoot]:
    with near_root(tmp_path / "host") as root:
        yield root


def with_change(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """GOOD with one part replaced."""
    request = copy.deepcopy(GOOD)
    inner: Any = request
    for step in path[:-1]:
        inner = inner[step]
    if value is DELETE:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return request


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("protocol",), 2, "protocol"),
        (("protocol",), True, "protocol"),
        (("verb",), "destroy", "verb"),
        (("verb",), None, "verb"),
        (("epoch",), "1", "epoch"),
        (("epoch",), -1, "epoch"),
        (("epoch",), True, "epoch"),
        (("rollout",), "a\nb", "rollout"),
        (("tuning",), "../../etc/passwd", "tuning"),
        (("tuning",), "t\n", "tuning"),
        (("digest",), DELETE, "digest"),
        (("confirm_within",), -1, "confirm_within"),
        (("confirm_within",), 1e9, "confirm_within"),
        (("grace_boots",), 2, "grace_boots"),
        (("expect",), None, "expect"),
        (("expect", "nic.channels:eth0"), DELETE, "expect.nic.channels:eth0"),
        (("expect", "sysctl:other"), {}, "expect.sysctl:other"),
        (("confirm_whitin",), 5, "confirm_whitin"),
        (("settings",), {}, "settings"),
        (("settings",), [], "settings"),
        (("settings", 1), "x", "settings[1]"),
        (("settings", 1, "kind"), "nic.magic", "settings[1].kind"),
        (("settings", 1, "kind"), DELETE, "settings[1].kind"),
        (("settings", 1, "id"), "nic.channels:eth1", "settings[1].id"),
        (("settings", 1, "target"), None, "settings[1].target"),
        (("settings", 1, "target", "interface"), "../eth0", "settings[1].target.interface"),
        (("settings", 1, "target", "interface"), "..", "settings[1].target.interface"),
        (("settings", 1, "target", "interface"), "-L", "settings[1].target.interface"),
        (("settings", 1, "target", "other"), "x", "settings[1].target.other"),
        (("settings", 1, "value"), {}, "settings[1].value"),
        (("settings", 1, "value"), "4", "settings[1].value"),
        (("settings", 1, "value"), {"rx": "2"}, "settings[1].value.rx"),
        (("settings", 1, "value"), {"rx": 2, "ring": 4}, "settings[1].value.ring"),
        (("settings", 1, "extra"), 1, "settings[1].extra"),
        (("settings", 0, "target", "key"), "net.core/../../x", "settings[0].target.key"),
        (("settings", 0, "target", "key"), "net.//.//.//.etc.x", "settings[0].target.key"),
        (("settings", 0, "target", "key"), "net./.x", "settings[0].target.key"),
        (("settings", 0, "target", "key"), "net..x", "settings[0].target.key"),
        (("settings", 0, "target", "key"), "net.x.", "settings[0].target.key"),
        (("settings", 0, "target", "key"), "net/./x", "settings[0].target.key"),
        (("settings", 0, "target", "key"), "/etc/passwd", "settings[0].target.key"),
        (("settings", 0, "target", "key"), "-w", "settings[0].target.key"),
        (("settings", 0, "value"), 4096, "settings[0].value"),
        (("settings", 0, "value"), "1\nvm.swappiness = 0", "settings[0].value"),
        (("settings", 0, "value"), "", "settings[0].value"),
        (("settings", 0, "value"), "\ud800", "settings[0].value"),
        (("settings", 0, "only"), "double", "settings[0].only"),
        (("settings", 0, "restart"), "--all", "settings[0].restart"),
        (("settings", 0), sysctl("a b", only="raise"), "settings[0].only"),
        (("settings", 0), thp("never", only="raise"), "settings[0].only"),
        (("settings", 0), thp("never", "khugepaged"), "settings[0].target.file"),
        (("settings", 0), thp("[never]"), "settings[0].value"),
        (("settings", 0), rps("4-1"), "settings[0].value"),
        (("settings", 0), rps("0-99999999"), "settings[0].value"),
        (("settings", 0), rps("all"), "settings[0].value"),
        (("settings", 0), nginx("LimitNOFILE", "1\\"), "settings[0].value"),
        (("settings", 0), nginx("CPUAffinity", "x"), "settings[0].value"),
        (("settings", 0), nginx("limit=1", "1"), "settings[0].target.property"),
        (
            ("settings", 0),
            setting("service.property", {"service": "a/b", "property": "Nice"}, "1"),
            "settings[0].target.service",
        ),
    ],
)
def test_the_wrong_field_is_named_and_nothing_is_touched(
    host: AgentRoot, path: tuple[Any, ...], value: Any, field: str
) -> None:
    before = host.tree()
    reply = answer(str(host.path), json.dumps(with_change(path, value)).encode())
    assert not reply["ok"]
    assert reply["error"]["reason"] == "bad_request", reply
    assert reply["error"]["field"] == field
    assert host.tree() == before and not host.leftovers() and not host.commands


@pytest.mark.parametrize(
    "url", ["https://", "ftp://a", "http://", "http://a:99999999/", "http://[a/", "http://a b/"]
)
def test_a_wrong_health_url_is_named(host: AgentRoot, url: str) -> None:
    error = host.fail("sample", health_url=url)
    assert (error["reason"], error["field"]) == ("bad_request", "health_url")


def test_another_protocol_is_told_the_way_out(host: AgentRoot) -> None:
    reply = host.send(b'{"protocol": 2, "verb": "facts"}')
    assert reply["error"]["field"] == "protocol"
    assert reply["error"]["message"].startswith("is not 1, which this agent speaks: ")
    assert reply["error"]["message"].endswith("restart its workers; got 2")


@pytest.mark.parametrize(
    ("verb", "fields", "field"),
    [
        ("ready", {"rollout": "r"}, "ready"),
        ("ready", {"rollout": "r", "ready": 1}, "ready"),
        ("ready", {"rollout": "r\nr", "ready": True}, "rollout"),
        ("ready", {"ready": True}, "rollout"),
        ("restore", {"tuning": "t", "live": "sysctl:a"}, "live"),
        ("restore", {"tuning": "t", "live": ["a", 1]}, "live[1]"),
    ],
)
def test_the_wrong_field_of_another_verb_is_named(
    host: AgentRoot, verb: str, fields: dict[str, Any], field: str
) -> None:
    error = host.fail(verb, epoch=1, **fields)
    assert (error["reason"], error["field"]) == ("bad_request", field)
    assert not host.leftovers() and not host.exists("var/lib/edgetune-not-ready")


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


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
PLACES = [(key,) for key in GOOD] + [
    ("settings", 0),
    ("settings", 0, "target"),
    ("expect", "sysctl:net.core.somaxconn"),
    *(("settings", 1, key) for key in GOOD["settings"][1]),
    *(("settings", 0, key) for key in GOOD["settings"][0]),
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
