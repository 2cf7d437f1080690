# SPDX-License-Identifier: Apache-2.0
"""Restoring the runtime values of some settings in place, while the rest waits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_root import (
    AgentRoot,
    agent_root,
    near_root,
    nginx,
    rps,
    sysctl,
    thp,
    until,
)

pytestmark = pytest.mark.processes

SOMAXCONN = "sysctl:net.core.somaxconn"
EVERYTHING = [rps("0-3"), thp("never"), sysctl("4096"), nginx("LimitNOFILE", "65536")]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[AgentRoot]:
    with near_root(tmp_path / "host") as root:
        yield root


def live(host: AgentRoot, *names: str, **changes: Any) -> dict[str, Any]:
    return host.ask("restore", **{"epoch": 1, "tuning": "t", "live": list(names), **changes})


def restarts(host: AgentRoot) -> int:
    return len([line for line in host.commands if "restart" in line])


@pytest.mark.parametrize("confirmed", [True, False])
def test_the_timer_finishes_what_is_provisional_alone(tmp_path: Path, confirmed: bool) -> None:
    with agent_root(tmp_path / "host") as host:
        before = host.tree()
        host.apply(*EVERYTHING, confirm_within=300)
        if confirmed:
            assert host.confirm(*EVERYTHING)["confirmed"]
        assert live(host, SOMAXCONN)["changed"]
        between, restarted = host.tree(), restarts(host)
        assert between != before
        if not confirmed:
            host.let_deadline_pass()
        wanted = between if confirmed else before
        assert until(lambda: host.tree() == wanted and not host.processes())
        assert host.state() == ("restoring" if confirmed else "none")
        assert not confirmed or restarts(host) == restarted
