# SPDX-License-Identifier: Apache-2.0
"""The verbs of the host agent, asked as the controller does."""

from __future__ import annotations

import ast
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgetune.hosts import conversation
from edgetune.hosts.agent import bundle
from edgetune.hosts.agent.dispatch import answer
from edgetune.hosts.agent.health import HealthCheck
from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.protocol import Refused
from tests.support.agent_programs import Addresses, instead
from tests.support.agent_root import (
    BOOTSTRAP,
    NGINX_DROP_INS,
    AgentRoot,
    agent_root,
    channels,
    near_root,
    nginx,
    request,
    rps,
    sysctl,
    thp,
    until,
)

EVERYTHING = [
    sysctl("4096", only="raise"),
    sysctl("4096 131072 16777216", "net.ipv4.tcp_rmem"),
    nginx("LimitNOFILE", "65536", only="raise"),
    nginx("CPUAffinity", "2-3"),
    thp("never"),
    rps("0-1,3"),
    channels(2),
]
CHANGING: dict[str, dict[str, Any]] = {
    "apply": {
        "rollout": "r",
        "digest": "d",
        "settings": [sysctl("1")],
        "expect": {"sysctl:net.core.somaxconn": {"runtime": "128", "persistent": "128"}},
    },
    "confirm": {"settings": [sysctl("1")]},
    "restore": {},
}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[AgentRoot]:
    with near_root(tmp_path / "host") as root:
        yield root


@pytest.fixture
def real_host(tmp_path: Path) -> Iterator[AgentRoot]:
    """One whose agent is a process, for what it leaves behind: timers, and commands that wait."""
    with agent_root(tmp_path / "host") as root:
        yield root


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


@pytest.mark.processes
def test_plan_shows_what_would_change_and_writes_nothing(host: AgentRoot) -> None:
    everything = {str(path) for path in host.path.rglob("*")}
    before = host.tree()
    rows = {row["id"]: row for row in host.plan(*EVERYTHING)}
    assert {row["status"] for row in rows.values()} == {"change"}
    assert rows["sysctl:net.ipv4.tcp_rmem"] == {
        "id": "sysctl:net.ipv4.tcp_rmem",
        "status": "change",
        "runtime": "4096 131072 6291456",
        "persistent": None,
        "wanted": "4096 131072 16777216",
        "reason": "differs",
    }
    assert rows["service.property:nginx.LimitNOFILE"]["wanted"] == "65536:524288"
    assert host.tree() == before
    new = {str(path.relative_to(host.path)) for path in host.path.rglob("*")}
    assert {f"{host.path}/{name}" for name in new - {"stub/log", "stub/errors"}} <= everything


@pytest.mark.processes
def test_apply_then_verify_then_restore_to_the_byte(host: AgentRoot) -> None:
    before = host.tree()
    wanted = host.change(*EVERYTHING, epoch=7)
    result = host.ask("apply", **wanted)
    assert result["changed"] and result["state"] == "confirmed"
    assert result["restarted"] == ["nginx"]
    assert [row["id"] for row in result["diff"]] == [own["id"] for own in EVERYTHING]
    known = {"t": {"state": "confirmed", "digest": "sha256:1", "rollout": "r1"}}
    assert host.ask("facts")["agent_state"] == {"epoch": 7, "ready": True, "tunings": known}
    assert host.read("proc/sys/net/core/somaxconn") == "4096\n"
    assert host.read("etc/sysctl.d/90-edgetune-0001-t.conf") == (
        "# Kept by edgetune for the tuning t, digest sha256:1\n"
        "net.core.somaxconn = 4096\n"
        "net.ipv4.tcp_rmem = 4096 131072 16777216\n"
    )
    assert host.read(f"{NGINX_DROP_INS}/90-edgetune-0001-t.conf") == (
        "# Kept by edgetune for the tuning t, digest sha256:1\n[Service]\n"
        "LimitNOFILE=65536:524288\nCPUAffinity=\nCPUAffinity=2-3\n"
    )
    verified = host.ask("verify", tuning="t", settings=EVERYTHING)
    assert verified["verified"] and verified["state"] == "confirmed"
    assert verified["services"] == {"nginx": "active"}
    between, commands = host.tree(), len(host.commands)
    again = host.ask("apply", **wanted)
    assert not again["changed"] and again["diff"] == [] and again["restarted"] == []
    assert host.tree() == between
    assert not any(" -L " in line or "restart" in line for line in host.commands[commands:])
    undone = host.restore(epoch=7)
    assert undone["changed"] and not undone["nothing_to_restore"]
    assert undone["restarted"] == ["nginx"]
    assert {row["id"] for row in undone["diff"]} == {own["id"] for own in EVERYTHING}
    assert host.tree() == before and host.leftovers() == {"epoch"}
    assert host.read("proc/77/limits") == "Max open files  1024  524288  files\n"
    again = host.restore(epoch=7)
    assert again["nothing_to_restore"] and not again["changed"] and again["diff"] == []
    assert host.tree() == before


def test_a_tuning_that_drifted_is_applied_anew(host: AgentRoot) -> None:
    wanted = host.change(sysctl("4096"))
    host.ask("apply", **wanted)
    host.write("proc/sys/net/core/somaxconn", "5\n")
    assert host.ask("apply", **wanted)["changed"]
    assert host.read("proc/sys/net/core/somaxconn") == "4096\n"
    assert host.restore()["changed"]
    assert host.read("proc/sys/net/core/somaxconn") == "128\n"


def test_a_host_that_is_not_as_planned_refuses(host: AgentRoot) -> None:
    wanted = host.change(sysctl("4096"), thp("never"))
    host.write("proc/sys/net/core/somaxconn", "256\n")
    before = host.tree()
    error = host.fail("apply", **wanted)
    assert error["reason"] == "refused"
    assert error["message"] == "sysctl:net.core.somaxconn: runtime is 256, the plan saw 128"
    assert host.tree() == before and host.leftovers() == {"epoch"}
    host.apply(sysctl("4096"))
    before = host.tree()
    error = host.fail("apply", **host.change(sysctl("8192"), digest="sha256:2"))
    assert error["reason"] == "refused" and "another digest" in error["message"]
    assert host.tree() == before


@pytest.mark.parametrize("kept", ["5\n", "", "five\n", "\0\0", "9" * 5000], ids=repr)
@pytest.mark.parametrize("verb", [*CHANGING, "reboot"])
def test_a_host_obeys_no_older_epoch_and_nobody_where_its_own_is_damaged(
    host: AgentRoot, verb: str, kept: str
) -> None:
    """A crash may leave the file empty: that is no host that never saw an owner."""
    host.restore(epoch=5)
    host.write("var/lib/edgetune/epoch", kept)
    before = host.tree()
    more = {"boot_id": host.boot_id} if verb == "reboot" else {"tuning": "t", **CHANGING[verb]}
    error = host.fail(verb, epoch=4 if kept == "5\n" else 6, **more)
    why = "epoch 4 is older than 5" if kept == "5\n" else "epoch is damaged"
    assert why in error["message"] and (kept != "5\n" or error["reason"] == "refused")
    assert host.tree() == before and not host.commands
    assert host.read("var/lib/edgetune/epoch") == kept


def test_tunings_are_taken_back_in_their_order_and_of_different_things_in_any(
    host: AgentRoot,
) -> None:
    before = host.tree()
    host.apply(sysctl("4096"), rps("0"), tuning="a")
    host.apply(thp("never"), sysctl("10", "vm.swappiness"), tuning="b")
    host.restore("a")
    assert host.ask("verify", tuning="b", settings=[thp("never")])["verified"]
    assert host.exists("etc/init.d/S99edgetune")
    between = host.tree()
    host.apply(sysctl("16", "vm.swappiness"), tuning="c")
    host.restore("c")
    assert host.tree() == between, "a newer tuning on the same thing uncovers the older"
    host.restore("b")
    assert host.tree() == before and host.leftovers() == {"epoch"}


def test_a_file_that_stood_in_our_place_keeps_its_mode_and_comes_back(host: AgentRoot) -> None:
    host.write("etc/sysctl.d/90-edgetune-0001-t.conf", "vm.swappiness = 1 # by hand\n").chmod(0o640)
    before = host.tree()
    host.apply(sysctl("4096"))
    mode = (host.path / "etc/sysctl.d/90-edgetune-0001-t.conf").stat().st_mode
    assert stat.S_IMODE(mode) == 0o640
    host.restore()
    assert host.tree() == before


def test_a_tuning_without_anything_to_do_stands_without_a_change(host: AgentRoot) -> None:
    result = host.apply(sysctl("100", only="raise"))
    assert not result["changed"] and result["state"] == "confirmed"
    assert not host.exists("etc/sysctl.d")
    assert not host.restore()["changed"]
    result = host.ask("confirm", epoch=1, tuning="t", settings=[sysctl("128")])
    assert result["verified"] and not result["confirmed"] and result["state"] == "none"


@pytest.mark.processes
def test_verify_tells_what_is_not_as_wanted(host: AgentRoot) -> None:
    settings = [sysctl("4096"), thp("never"), nginx("LimitNOFILE", "65536")]
    host.apply(*settings)
    host.write("proc/sys/net/core/somaxconn", "64\n")
    (host.path / "etc/init.d/S99edgetune").unlink()
    result = host.ask("verify", tuning="t", settings=settings)
    told = [(row["ok"], row["reason"], row["persistent"]) for row in result["settings"][:2]]
    assert not result["verified"] and result["settings"][2]["ok"]
    assert told == [
        (False, "differs now", "4096"),
        (False, "would be lost at the next boot", None),
    ]
    host.write("stub/nginx/state", "failed\n")
    result = host.ask("verify", tuning="t", settings=settings[2:])
    assert not result["verified"] and result["services"] == {"nginx": "failed"}


@pytest.mark.processes
def test_confirm_keeps_only_what_verifies_and_what_it_was_asked_about(
    real_host: AgentRoot,
) -> None:
    settings = [sysctl("4096"), thp("never")]
    real_host.apply(*settings, confirm_within=300)
    wanted = {"epoch": 1, "tuning": "t", "digest": "sha256:1", "settings": settings}
    error = real_host.fail("apply", **real_host.change(rps("0"), tuning="b"))
    assert error["reason"] == "refused" and "t on this host is provisional" in error["message"]
    others: list[tuple[dict[str, Any], str]] = [
        ({"digest": "sha256:2"}, "another digest: sha256:1"),
        ({"settings": settings[:1]}, "other settings: memory.thp:enabled"),
        ({"settings": [*settings, rps("")]}, "other settings: nic.rps:eth0"),
    ]
    for changes, why in others:
        error = real_host.fail("confirm", **{**wanted, **changes})
        assert (error["reason"], error["message"]) == ("refused", f"t stands here with {why}")
    real_host.write("proc/sys/net/core/somaxconn", "64\n")
    refused = real_host.ask("confirm", **wanted)
    assert not refused["confirmed"] and refused["state"] == "provisional"
    real_host.write("proc/sys/net/core/somaxconn", "4096\n")
    for _ in range(2):
        kept = real_host.ask("confirm", **wanted)
        assert kept["confirmed"] and kept["state"] == "confirmed"


def reboot(host: AgentRoot, boot_id: str = "") -> dict[str, Any]:
    return host.ask("reboot", epoch=1, boot_id=boot_id or host.boot_id)


def test_a_reboot_is_sent_once_and_again_where_it_did_not_come(
    host: AgentRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []

    def a_minute_passes() -> None:
        boot_id, since = host.read("run/edgetune-reboot").split()
        host.write("run/edgetune-reboot", f"{boot_id} {float(since) - 61:.3f}\n")

    def killed(*_: Any) -> None:
        raise SystemExit

    monkeypatch.setattr(Host, "detach", killed)
    with pytest.raises(SystemExit):
        answer(str(host.path), request("reboot", epoch=1, boot_id=host.boot_id))
    assert not host.exists("run/edgetune-reboot"), "one that sends nothing leaves no mark"
    monkeypatch.setattr(Host, "detach", lambda _, command: sent.append(command))
    for _ in range(2):
        assert reboot(host) == {"rebooting": True, "boot_id": host.boot_id}
        assert len(sent) == 1, "it is too early to tell"
    a_minute_passes()
    assert reboot(host)["rebooting"] and len(sent) == 2, "the command died"
    old, new = host.boot_id, host.new_boot_id()
    a_minute_passes()
    assert reboot(host, old) == {"rebooting": False, "boot_id": new}, "the host is back already"
    assert len(sent) == 2
    assert reboot(host)["rebooting"] and len(sent) == 3, "the mark is of another boot"
    for number, mark in enumerate(("", "{}", "{} soon", "{} -1", "\0"), 4):
        host.write("run/edgetune-reboot", mark.format(new))
        assert reboot(host)["rebooting"] and len(sent) == number, f"{mark!r} says nothing"


def test_without_a_program_of_its_own_a_private_root_never_reboots(host: AgentRoot) -> None:
    (host.path / "usr/local/sbin/reboot").unlink()
    error = host.fail("reboot", epoch=1, boot_id=host.boot_id)
    assert error["reason"] == "refused" and "no program reboot" in error["message"]


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


def test_sample(host: AgentRoot) -> None:
    of_interfaces = ("rx_packets", "rx_bytes", "tx_packets", "rx_dropped", "rx_missed")
    sample = host.ask("sample", health_url=None, health_requests=0)
    assert sample == {
        "boot_id": host.boot_id,
        "uptime": 12.5,
        "counters": {
            "listen_drops": 4,
            "listen_overflows": 3,
            "tcp_retransmits": 12,
            "tcp_segments_out": 1000,
            **dict.fromkeys(of_interfaces, 7),
            "backlog_dropped": 3,
            "time_squeeze": 12,
            "cpu_busy_ms": 1600,
            "cpu_total_ms": 10100,
        },
        "gauges": {"drifted": 0, "load1": 0.25, "memory_available_kb": 1024000},
        "drift": [],
        "health": "",
    }
    # What it cannot read it leaves out.
    for name in ("netstat", "snmp", "softnet_stat"):
        host.write(f"proc/net/{name}", "zz\nTcp: x\n")
    (host.path / "proc/stat").unlink()
    assert host.ask("sample")["counters"] == dict.fromkeys(of_interfaces, 7)


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


@pytest.mark.processes
def test_interfaces_stacked_on_a_device_do_not_count(host: AgentRoot) -> None:
    for name in ("br0/bridge", "ifb0", "tun0/tun_flags"):
        host.write(f"sys/class/net/{name}/x", "")
        host.write(f"sys/class/net/{name.split('/')[0]}/statistics/rx_packets", "1000\n")
    assert host.ask("sample")["counters"]["rx_packets"] == 7
    host.write("sys/class/net/eth1/device/numa_node", "1\n")
    host.write("sys/class/net/eth1/statistics/rx_packets", "5\n")
    assert host.ask("sample")["counters"]["rx_packets"] == 5
    assert host.ask("facts")["nics"]["eth1"]["numa_node"] == 1
    host.write("sys/class/net/eth1/operstate", "down\n")
    assert not host.ask("facts")["nics"]["eth1"]["up"]


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
