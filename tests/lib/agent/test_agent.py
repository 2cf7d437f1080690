# SPDX-License-Identifier: Apache-2.0
"""The verbs of the host agent, asked as the controller does."""

from __future__ import annotations

import ast
import os
import time
from pathlib import Path
from typing import Any

import pytest

from edgetune.agent import bundle
from edgetune.agent.boot_hook import text
from edgetune.agent.dispatch import answer
from edgetune.agent.health import HealthCheck
from edgetune.agent.host import Host
from edgetune.agent.protocol import Refused
from edgetune.net.hosts import conversation
from tests.support.agent_programs import Addresses, instead
from tests.support.agent_root import (
    BOOTSTRAP,
    AgentRoot,
    agent_root,
    request,
    until,
)


def test_fleet_sends_the_agent_so_that_it_can_stay_on_the_host() -> None:
    assert BOOTSTRAP in conversation.BOOTSTRAP


@pytest.mark.processes
def test_facts(host: AgentRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    host.write("sys/class/dmi/id/product_uuid", "4c4c4544-0058-4a10-8031-b6c04f483432\n")
    host.write("sys/class/dmi/id/product_serial", "6XJ1H42 \n")
    (host.path / "var/lib").mkdir(parents=True, exist_ok=True)
    facts = host.ask("facts")
    card = dict.fromkeys(("driver", "speed", "numa_node", "local_cpus", "ring", "ring_max", "rss"))
    queues = {"rx": 4, "tx": 4}
    channel_counts = {"max": queues, "current": queues}
    assert facts["nics"] == {
        "eth0": {**card, "up": True, "queues": queues, "channels": channel_counts}
    }
    assert abs(facts.pop("time") - time.time()) < 3600 and facts["python"].startswith("3.")
    expected = {
        "hostname": "e000",
        "os": {"id": "debian", "version": "12"},
        "kernel": "6.1.0",
        "boot_id": host.boot_id,
        "uptime": 12.5,
        "cpus": {
            **{"online": "0-3", "count": 4, "nodes": {"0": "0-3"}},
            **{"vendor": None, "model": None},
        },
        "memory": {
            **{"total_kb": 2048000, "swap_kb": None},
            **{"nodes": {"0": 2048000}, "smallest_node_kb": 2048000},
        },
        "thp": {"enabled": "madvise", "defrag": "madvise"},
        "init": "sysv",
        "agent_state": {"epoch": 0, "ready": True, "tunings": {}},
        "machine": {"uuid": "4c4c4544-0058-4a10-8031-b6c04f483432", "serial": "6XJ1H42"},
        "addresses": None,
        "unwritable": [],
    }
    assert {name: facts[name] for name in expected} == expected
    # Root passes every mode, so the kernel's word on a disk that is read-only is put in its mouth.
    read_only = str(host.path / "etc")
    monkeypatch.setattr(os, "access", lambda path, mode: (path, mode) != (read_only, os.W_OK))
    instead(monkeypatch, Addresses())
    facts = answer(str(host.path), request("facts"))["result"]
    assert facts["unwritable"] == ["/etc"]
    assert [f"{own['interface']} {own['address']}" for own in facts["addresses"]] == [
        "lo 127.0.0.1",
        "lo 198.51.100.7",
        "eth0 192.0.2.2",
        "eth0 fd00::2",
        "ppp0 10.0.0.1",
    ]


def reboot(host: AgentRoot, boot_id: str = "") -> dict[str, Any]:
    return host.ask("reboot", epoch=1, boot_id=boot_id or host.boot_id)


def test_a_reboot_that_sends_nothing_leaves_no_mark(
    host: AgentRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise SystemExit

    monkeypatch.setattr(Host, "detach", killed)
    with pytest.raises(SystemExit):
        reboot(host)
    assert not host.exists("run/edgetune-reboot")


@pytest.mark.processes
@pytest.mark.parametrize(("init", "command"), [("sysv", "reboot"), ("systemd", "systemctl reboot")])
def test_a_reboot_outlives_its_agent(tmp_path: Path, init: str, command: str) -> None:
    with agent_root(tmp_path / "host", init=init) as host:
        for _ in range(2):
            assert reboot(host)["rebooting"]
        assert until(lambda: host.commands == [command])


@pytest.mark.processes
def test_one_change_at_a_time(host: AgentRoot) -> None:
    with Host(str(host.path)).lock():
        with pytest.raises(Refused, match="busy"), Host(str(host.path)).lock(0.1):
            raise AssertionError("both have the lock")
        process = host.start(b'{"protocol": 1, "verb": "restore", "epoch": 1, "tuning": "t"}')
        time.sleep(0.3)
        assert process.poll() is None
    output, _ = process.communicate(timeout=60)
    assert b'"ok": true' in output


def test_what_takes_long_is_no_part_of_the_time_that_was_counted(
    host: AgentRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host whose health answers slowly, then fast, would seem to receive a surge."""

    def slow(check: HealthCheck, count: int) -> tuple[dict[str, Any], str]:
        host.write("proc/uptime", "22.50 1.00\n")
        return {}, ""

    monkeypatch.setattr(HealthCheck, "measure", slow)
    asked = request("sample", health_url="http://127.0.0.1:1/", health_requests=1)
    assert answer(str(host.path), asked)["result"]["uptime"] == 12.5


@pytest.mark.parametrize("odd", ["", "a = 1\n", "a = '''b'''\n", "# '", "# \\", "b = '\\n\\\\'\n"])
def test_the_text_that_is_sent_holds_each_module_as_it_stands(
    monkeypatch: pytest.MonkeyPatch, odd: str
) -> None:
    modules = {**bundle.modules(), "edgetune.odd": odd}
    monkeypatch.setattr(bundle, "modules", lambda: modules)
    (held,) = (
        node.value
        for node in ast.parse(bundle.make.__wrapped__()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MODULES"
    )
    assert ast.literal_eval(held) == modules


def test_names_that_prometheus_could_not_read_are_left_out() -> None:
    assert text("", []) == ""
    assert text('a"b', ['x"} 1', "a\nb", "größe"]) == ""
    assert 'tuning="good"' in text("1-2", ["good", "b\\d"])
