# SPDX-License-Identifier: Apache-2.0
"""A tuning handed over: its effect stays over boots, and no file tells of edgetune."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgetune.agent.dispatch import answer as answer_below
from tests.lib.agent.test_power import MOST_STEPS, STRIDE
from tests.support.agent_root import (
    AgentRoot,
    below,
    content,
    file,
    near_root,
    nginx,
    request,
    sysctl,
)
from tests.support.dying import cut

pytestmark = pytest.mark.processes

SETTINGS = [
    sysctl("4096"),
    nginx("LimitNOFILE", "65536"),
    file("/etc/security/limits.d/web.conf", "www - nofile 65536\n"),
]
DROP_IN = "etc/systemd/system/nginx.service.d/90-edgetune-0001-t.conf"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[AgentRoot]:
    with near_root(tmp_path / "host", "systemd") as root:
        for name in ("run", "var/lib", "etc/security/limits.d"):
            (root.path / name).mkdir(parents=True, exist_ok=True)
        yield root


def ask_for(*settings: dict[str, Any], **changes: Any) -> dict[str, Any]:
    fields = {"epoch": 1, "dry_run": False, "tuning": "t", "digest": "sha256:1", "rollout": "r1"}
    return {**fields, "settings": list(settings or SETTINGS), **changes}


def hand_over(host: AgentRoot, *settings: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return host.ask("hand_over", **ask_for(*settings, **changes))


def marks(host: AgentRoot) -> list[str]:
    """What tells of edgetune below the root: names of files, and files by their content."""
    start, found = len(str(host.path)), list[str]()
    for entry in below(str(host.path), ["stub"]):
        text, own = content(entry), entry.path[start:]
        # The stubs are of the test.
        told = "edgetune" in own or (isinstance(text, bytes) and b"edgetune" in text)
        found += [own] if told and "/sbin/" not in own else []
    return found


def stands(host: AgentRoot, *settings: dict[str, Any]) -> bool:
    """Whether all is as wanted, now and after a boot."""
    return all(row["status"] == "noop" for row in host.plan(*(settings or SETTINGS)))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("entries", [False, True])
@pytest.mark.parametrize("then", ["hand_over", "restore"])
def test_a_power_cut_leaves_a_tuning_that_stands_or_is_handed_over(
    host: AgentRoot, then: str, entries: bool
) -> None:
    """Its effect is there after any boot. What was begun is finished, or taken back wholly."""
    before = {name: was for name, was in host.tree().items() if "boot_id" not in name}
    ends = set()
    for step in range(2 * entries, MOST_STEPS, STRIDE):
        host.apply(*SETTINGS)
        died = cut(host, request("hand_over", **ask_for()), step, entries)
        assert host.boot().stderr == ""
        assert host.read("proc/sys/net/core/somaxconn") == "4096\n" and stands(host), step
        ends.add(host.state())
        if then == "hand_over":
            hand_over(host)
            host.ask("uninstall", epoch=3, dry_run=False)
            assert marks(host) == [] and stands(host), step
            for name in ("etc/sysctl.d/89-t.conf", DROP_IN.replace("90-edgetune-0001", "89")):
                (host.path / name).unlink()
            (host.path / "etc/security/limits.d/web.conf").unlink()
            host.write("proc/sys/net/core/somaxconn", "128\n")
            host.boot()
        elif host.state() == "confirmed":
            assert answer_below(str(host.path), request("restore", epoch=1, tuning="t"))["ok"]
            now = {name: was for name, was in host.tree().items() if "boot_id" not in name}
            assert now == before, step
        if not died:
            assert ends == {"confirmed", "none"} and step > 15
            return
        if then == "restore" and "none" in ends:
            return
    raise AssertionError("it never came to an end")
