# SPDX-License-Identifier: Apache-2.0
"""What a file of a host held never leaves it; what older records hold of it is still understood."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.agent.vocabulary.values import alike, described, in_a_line
from edgetune.base.documents.settings import Standing
from edgetune.net.result import HostResult
from edgetune.rollout.steps.verify_hosts import _is_as
from tests.support.agent_root import NearRoot, file, near_root, request

CONF = "/etc/app/app.conf"
SECRET = "password = correct-horse\n"
TEXT = "workers 4\n"
OWN = file(CONF, TEXT)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[NearRoot]:
    with near_root(tmp_path / "host", init="systemd") as root:
        root.write(CONF[1:], SECRET).chmod(0o600)
        yield root


@pytest.mark.processes
def test_no_answer_holds_what_a_file_held(host: NearRoot) -> None:
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
