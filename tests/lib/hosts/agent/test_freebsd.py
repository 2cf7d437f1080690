# SPDX-License-Identifier: Apache-2.0
"""The agent on hosts with FreeBSD, of two releases: doubles of the kernel and of its programs."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgetune.documents.reading import encoded
from edgetune.hosts.agent.__main__ import act_unattended
from edgetune.hosts.agent.dispatch import _run
from edgetune.hosts.agent.host import RESERVE, RESERVE_BYTES, Host
from edgetune.hosts.agent.protocol import Refused, Request
from edgetune.hosts.agent.unattended import revert
from edgetune.metrics.catalogue import Catalogue
from edgetune.rendering import misfits, render
from edgetune.tuning import load_tuning
from edgetune.vocabulary.kind import NETWORK
from edgetune.vocabulary.kinds import KINDS
from tests.support import ROOT
from tests.support.agent_root import file, nginx, setting, sysctl, thp
from tests.support.freebsd import LINKS, RELEASES, FreeBsd, freebsd_host
from tests.support.kernels import GRACE

QUEUE = "kern.ipc.soacceptqueue"
RC_SCRIPT = "usr/local/etc/rc.d/edgetune"
TICKS = "kern.cp_time: 321 0 188 10 61683\n"
OVERRUNS = "mac_stats.rx_missed_packets"
MISSED = f"dev.ix.0.{OVERRUNS}: 4\n"
ZONES = "ITEM  SIZE LIMIT USED FREE REQ FAIL SLEEP XDOMAIN\n\n"
CARD = """\
{name}: flags=8843<UP,BROADCAST,RUNNING,SIMPLEX,MULTICAST> metric 0 mtu 1500
\tmedia: Ethernet 100GBase-SR4 <full-duplex>
\tstatus: active
"""
PAGES = "vm.stats.vm.v_free_count: 482182\nvm.stats.vm.v_inactive_count: 528\nhw.pagesize: 4096\n"
OURS = "boot/loader.conf.d/90-edgetune-0001-t.conf"


def module(name: str = "tcp_rack") -> dict[str, Any]:
    return setting("module", {"module": name}, "loaded")


def stack(name: str = "rack") -> dict[str, Any]:
    return setting("tcp.stack", {}, name)


def tunable(value: str = "4096", name: str = "hw.ix.rxd") -> dict[str, Any]:
    return setting("loader.tunable", {"tunable": name}, value)


def environment(name: str = "new") -> dict[str, Any]:
    return setting("kernel.boot_environment", {}, name)


NETWORK_TUNING = [
    module(),
    stack(),
    sysctl("1024", QUEUE),
    sysctl("16777216", "kern.ipc.maxsockbuf"),
]


@pytest.fixture(params=RELEASES)
def host(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[FreeBsd]:
    with freebsd_host(tmp_path / "host", request.param) as own:
        yield own


def why_not(host: FreeBsd, *wanted: dict[str, Any]) -> str:
    """Why the first of these is unsupported."""
    row = host.plan(*wanted)[0]
    assert row["status"] == "unsupported", row
    return str(row["reason"])


def standing(host: FreeBsd, *wanted: dict[str, Any]) -> bool:
    return bool(host.ask("verify", tuning="t", settings=list(wanted))["verified"])


def confirmed(host: FreeBsd, *wanted: dict[str, Any]) -> bool:
    return bool(host.ask("confirm", epoch=1, tuning="t", settings=list(wanted))["confirmed"])


def test_facts_tell_the_system_in_the_terms_of_linux(host: FreeBsd) -> None:
    facts = host.ask("facts")
    assert (facts["system"], facts["init"], facts["os"]["id"]) == ("freebsd", "rc", "freebsd")
    assert facts["kernel"] == host.release and host.release.startswith(facts["os"]["version"])
    assert facts["boot_id"] == host.boot_id and len(host.boot_id) == 32
    assert facts["cpus"]["online"] == "0-7" and facts["cpus"]["vendor"] == "GenuineIntel"
    assert facts["memory"]["total_kb"] == 34208714752 // 1024
    addresses = [own["address"] for own in facts["addresses"] if own["interface"] == "ix0"]
    assert addresses == ["192.0.2.2", "fe80::92e2:baff:fe00:1", "2001:db8::2"]
    assert list(facts["nics"]) == ["ix0", "ix1"], "lo0 carries nothing from elsewhere"
    card, idle = facts["nics"].values()
    assert (card["driver"], card["up"], card["speed"], card["queues"]["rx"]) == (
        "ix",
        True,
        10000,
        2,
    )
    assert (idle["up"], idle["speed"]) == (False, None)
    assert facts["boot"] == {"loader": "bectl", "default": "default"}
    assert facts["unwritable"] == []


def test_a_boot_that_cannot_be_proven_is_no_host_for_us(tmp_path: Path) -> None:
    """kern.boottime would move with the clock, and a host would seem to have booted."""
    with freebsd_host(tmp_path / "host", "12.4-RELEASE") as old:
        error = old.fail("facts")
        assert error["message"].endswith("tells no boot: FreeBSD 13 is needed, or newer")
        assert "kern.boottime" not in " ".join(old.calls)


WHOLE = "Format: Length:16 Dump:0x" + "1" * 32 + "\n"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((0, "", ""), "tells no whole boot, but ''"),
        ((0, WHOLE[:27], ""), f"tells no whole boot, but '{WHOLE[:27]}'"),
        ((0, "0x" + "1" * 32, ""), "tells no whole boot, but '0x111"),
        (
            (1, "", "sysctl: Cannot allocate memory\n"),
            "failed, so nothing proves a boot: sysctl: C",
        ),
        ((-9, WHOLE, ""), "failed, so nothing proves a boot: Format: Length:16"),
        ((1, "", ""), "failed, so nothing proves a boot: exit status 1"),
        ((1, "", "sysctl: unknown oid 'kern.boot_id'\n"), "tells no boot: FreeBSD 13 is needed"),
    ],
)
def test_a_boot_id_that_is_not_told_whole_is_none(
    host: FreeBsd, answer: tuple[int, str, str], why: str
) -> None:
    """Only one that the kernel does not know speaks of an old release."""
    host.fails["sysctl -n -x kern.boot_id"] = answer
    error = host.fail("facts")
    assert error["reason"] == "failed"
    assert error["message"].startswith(f"sysctl -n -x kern.boot_id {why}"), error["message"]


def test_sessions_are_those_from_elsewhere_on_which_something_may_come(host: FreeBsd) -> None:
    assert host.ask("sessions", ports=[443])["sessions"] == 2
    assert host.ask("sessions", ports=[22, 443])["sessions"] == 3
    host.fails["netstat -anW"] = (0, "", "")
    error = host.fail("sessions", ports=[443])
    assert "tells no table of connections" in error["message"], "none seen is not none there"


def test_a_drained_host_says_so_over_a_boot_and_is_found_by_its_address(host: FreeBsd) -> None:
    drained = {"epoch": 1, "rollout": "r1", "ready": False, "ports": [443]}
    assert host.ask("ready", **drained, address="2001:db8::2")["sessions"] == 2
    assert host.exists("var/lib/edgetune-not-ready")
    host.boot_anew()
    assert not host.ask("facts")["agent_state"]["ready"]
    error = host.fail("ready", **drained, address="192.0.2.3")
    assert error["reason"] == "another_machine"


def test_a_reboot_ends_services_well_and_is_sent_once(
    host: FreeBsd, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[list[str]] = []
    monkeypatch.setattr(Host, "detach", lambda _, command: sent.append(list(command)))
    for _ in range(2):
        host.ask("reboot", epoch=1, boot_id=host.boot_id)
    assert [own[-3:] for own in sent] == [[str(host.path / "usr/local/sbin/shutdown"), "-r", "now"]]
    assert host.exists("var/run/edgetune-reboot") and not host.exists("run")


def test_a_tuning_leads_there_over_a_boot_and_back(host: FreeBsd) -> None:
    before = host.tree()
    assert {row["status"] for row in host.plan(*NETWORK_TUNING)} == {"change"}
    assert host.tree() == before
    assert host.apply(*NETWORK_TUNING)["changed"]
    assert (host.parameter("net.inet.tcp.functions_default"), host.parameter(QUEUE)) == (
        "rack",
        "1024",
    )
    assert not host.apply(*NETWORK_TUNING)["changed"]
    assert host.boot_anew() == []
    assert (host.parameter("net.inet.tcp.functions_default"), host.parameter(QUEUE)) == (
        "rack",
        "1024",
    )
    assert standing(host, *NETWORK_TUNING)
    host.restore()
    assert host.tree() == before and host.leftovers() == {"epoch"}
    assert "tcp_rack" not in host.modules and host.parameter(QUEUE) == "128"
    assert host.boot_anew() == [] and host.parameter(QUEUE) == "128"


def test_what_fails_half_way_is_undone(host: FreeBsd) -> None:
    before = host.tree()
    wanted = [sysctl("1024", QUEUE), sysctl("70000", "net.inet.tcp.mssdflt")]
    error = host.fail("apply", **host.change(*wanted))
    assert "net.inet.tcp.mssdflt=70000: Invalid argument" in error["message"]
    assert error["reason"] == "undone" and host.parameter(QUEUE) == "128" and host.tree() == before


@pytest.mark.parametrize(
    ("own", "why"),
    [
        (sysctl("4096", "hw.ix.rxd"), "hw.ix.rxd is set by a boot alone: the kind loader.tunable"),
        (sysctl("x", "kern.osrelease"), "kern.osrelease is read-only"),
        (sysctl("1", "kern.nothing"), "kern.nothing: this kernel has no such parameter"),
        (sysctl("1", "kern.ipc"), "kern.ipc: this kernel has no such parameter"),
        (stack("bbr"), "the kernel has the TCP stacks freebsd: load the module tcp_bbr"),
        (module("if_nothing"), "there is no if_nothing.ko in /boot/kernel or /boot/modules"),
        (environment("none"), "there is no boot environment none: create it first"),
        (thp("never"), "memory.thp is for Linux, and this host runs FreeBSD"),
    ],
)
def test_what_a_host_cannot_do_is_refused_by_name(
    host: FreeBsd, own: dict[str, Any], why: str
) -> None:
    before = host.tree()
    assert why_not(host, own).startswith(why)
    error = host.fail("apply", **host.change(own))
    assert error["reason"] == "refused" and error["message"].startswith(f"{own['id']}: {why}")
    assert host.tree() == before


def test_a_kind_of_freebsd_is_refused_by_hosts_with_linux(tmp_path: Path) -> None:
    from tests.support.agent_root import near_root

    with near_root(tmp_path / "linux") as linux:
        row = linux.plan(stack())[0]
        assert row["status"] == "unsupported"
        assert row["reason"] == "tcp.stack is for FreeBSD, and this host runs Linux"


def test_a_file_that_is_read_after_our_hook_decides(host: FreeBsd) -> None:
    host.write("etc/sysctl.conf.local", f'{QUEUE}="64"   # ours\n')
    why = why_not(host, sysctl("1024", QUEUE))
    assert why == "/etc/sysctl.conf.local is read after our boot hook, and sets it to 64"
    host.write("etc/sysctl.conf", f"{QUEUE}: 1024\n")
    (host.path / "etc/sysctl.conf.local").unlink()
    row = host.plan(sysctl("1024", QUEUE))[0]
    assert (row["persistent"], row["reason"]) == ("1024", "differs now")


def test_a_module_in_use_stays_until_the_next_boot(host: FreeBsd) -> None:
    host.apply(module(), stack())
    host.in_use("tcp_rack")
    back = host.restore()
    assert host.modules.count("tcp_rack") == 1
    assert host.parameter("net.inet.tcp.functions_default") == "freebsd"
    assert [row["id"] for row in back["diff"]] == ["module:tcp_rack", "tcp.stack"]
    host.boot_anew()
    assert "tcp_rack" not in host.modules


def test_a_module_that_cannot_be_unloaded_is_told(host: FreeBsd) -> None:
    host.apply(module())
    host.fails["kldunload"] = (1, "", "kldunload: can't unload file: Operation not permitted\n")
    assert "Operation not permitted" in host.fail("restore", epoch=1, tuning="t")["message"]
    assert host.state() == "restoring"
    host.fails.clear()
    assert host.restore()["changed"]


def test_a_module_that_somebody_loaded_stays_loaded(host: FreeBsd) -> None:
    """It was there before, and is kept by nothing; afterwards it is as it was."""
    host.attempt("kldload", "-n", "tcp_rack")
    assert host.plan(module())[0]["reason"] == "would be lost at the next boot"
    host.apply(module())
    host.boot_anew()
    assert "tcp_rack" in host.modules
    host.restore()
    assert "tcp_rack" in host.modules


def test_a_module_that_a_boot_loads_anyway_is_left_alone(host: FreeBsd) -> None:
    host.write("etc/rc.conf", 'kld_list="tcp_rack cc_htcp"\n')
    assert host.plan(module())[0]["reason"] == "differs now"
    host.write("boot/loader.conf", 'cc_htcp_load="YES"\n')
    assert host.plan(module("cc_htcp"))[0]["persistent"] == "loaded"


def test_an_odd_table_of_stacks_says_nothing_of_any(host: FreeBsd) -> None:
    host.fails["sysctl -n net.inet.tcp.functions_available"] = (0, "\n", "")
    assert why_not(host, stack(), module()) == (
        "net.inet.tcp.functions_available is no table of stacks"
    )


def test_services_are_restarted_by_service(host: FreeBsd) -> None:
    own = file("/usr/local/etc/nginx/nginx.conf", "worker_processes auto;\n", restart="nginx")
    assert host.apply(own)["restarted"] == ["nginx"]
    assert "service nginx restart" in host.calls
    other = file("/usr/local/etc/x.conf", "x\n", restart="nothing")
    assert why_not(host, other) == "the service nothing is inactive"


PROPERTIES = [nginx("LimitNOFILE", "65536"), nginx("CPUAffinity", "2-5"), nginx("Nice", "-5")]
RC_CONF_D = "etc/rc.conf.d/nginx"


def test_properties_of_a_service_are_variables_of_rc(host: FreeBsd) -> None:
    before = host.tree()
    assert host.apply(*PROPERTIES)["restarted"] == ["nginx"]
    assert host.read(f"{RC_CONF_D}/90-edgetune-0001-t").splitlines()[1:] == [
        'nginx_limits="-B -n 65536"',
        'nginx_cpuset="2-5"',
        'nginx_nice="-5"',
    ]
    assert standing(host, *PROPERTIES)
    host.boot_anew()
    host.machine.start("nginx")
    assert standing(host, *PROPERTIES)
    host.restore()
    assert host.tree() == before
    assert host.attempt("ps", "-o", "nice=", "-p", "77")[1].strip() == "0"


@pytest.mark.parametrize(
    ("file", "text", "own", "why"),
    [
        (RC_CONF_D, "", PROPERTIES[2], f"/{RC_CONF_D} is a file: rc(8) reads"),
        (
            f"{RC_CONF_D}/99-own",
            'nginx_nice="1"\n',
            PROPERTIES[2],
            f"/{RC_CONF_D}/99-own is read after ours, and sets nginx_nice",
        ),
        (
            f"usr/local/{RC_CONF_D}",
            "nginx_cpuset=0 # ours\n",
            PROPERTIES[1],
            f"/usr/local/{RC_CONF_D} is read after ours, and sets nginx_cpuset",
        ),
        (
            "etc/rc.conf",
            'nginx_limits="-B -n 1024 -m 1g"\n',
            PROPERTIES[0],
            "/etc/rc.conf sets nginx_limits to -B -n 1024 -m 1g: more than open files",
        ),
        ("etc/x", "", nginx("LimitCORE", "0"), "rc(8) has no LimitCORE, but Nice, CPUAffinity"),
        ("etc/x", "", nginx("LimitNOFILE", "1:2"), "1:2 is no LimitNOFILE that rc(8) takes"),
        ("etc/x", "", nginx("Nice", "$(reboot)"), "$(reboot) is no Nice that rc(8) takes"),
    ],
)
def test_properties_that_rc_cannot_keep_are_refused(
    host: FreeBsd, file: str, text: str, own: dict[str, Any], why: str
) -> None:
    host.write(file, text)
    assert why_not(host, own).startswith(why)


def test_a_property_in_rc_conf_is_what_a_boot_sets(host: FreeBsd) -> None:
    host.write("etc/rc.conf", "nginx_nice='3'\nnginx_limits=\"-B -n 9\"\n")
    rows = host.plan(nginx("Nice", "3"), nginx("LimitNOFILE", "10"))
    assert [(row["persistent"], row["runtime"]) for row in rows] == [("3", "0"), ("9", "1048576")]
    host.apply(nginx("Nice", "4"))
    assert standing(host, nginx("Nice", "4"))


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        ("service nginx onestatus", "nginx is not running.\n"),
        ("cpuset -g -p", "pid 77 mask:\n"),
        ("procstat", "{}"),
        ("procstat", "PID COMM RLIMIT\n"),
        ("procstat", '{"openfiles": {"soft_limit": "1"}}'),
    ],
)
def test_a_service_that_tells_nothing_of_itself_is_refused(
    host: FreeBsd, call: str, answer: str
) -> None:
    host.fails[call] = (0, answer, "")
    rows = host.plan(PROPERTIES[0], PROPERTIES[1])
    assert "unsupported" in [row["status"] for row in rows]


@pytest.mark.processes
def test_the_boot_hook_comes_before_the_network_and_is_valid_sh(host: FreeBsd) -> None:
    host.apply(sysctl("1024", QUEUE))
    script = host.path / RC_SCRIPT
    assert os.access(script, os.X_OK)
    text = script.read_text()
    for line in ("# PROVIDE: edgetune", "# REQUIRE: FILESYSTEMS random sysctl", "# BEFORE: netif"):
        assert f"\n{line}\n" in text
    assert subprocess.run(["sh", "-n", str(script)], check=True).returncode == 0
    # As rc(8) runs it, with a rc.subr and a timeout(1) that do no more than this needs.
    rc_subr = host.write(
        "stub/rc.subr", "load_rc_config() { :; }\nrun_rc_command() { $start_cmd; }\n"
    )
    host.write("stub/bin/timeout", '#!/bin/sh\necho "$@"\n').chmod(0o755)
    ran = subprocess.run(
        ["sh", "-c", text.replace("/etc/rc.subr", str(rc_subr)) + "echo after", "sh", "faststart"],
        env={"PATH": f"{host.path}/stub/bin:/usr/bin:/bin", "EDGETUNE_ROOT": str(host.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    command, after = ran.stdout.splitlines()
    copy = f"{host.path}/var/lib/edgetune/agent.py"
    assert command.startswith("--foreground -k 10 180 ") and command.endswith(f" -I -S {copy} boot")
    assert after == "after", "rc(8) goes on"


def test_the_boot_hook_of_a_boot_without_our_copy_does_nothing(host: FreeBsd) -> None:
    host.apply(sysctl("1024", QUEUE))
    guard = '[ -f "$EDGETUNE_ROOT/var/lib/edgetune/agent.py" ] || return 0\n'
    assert guard in host.read(RC_SCRIPT)


def test_what_nobody_confirms_is_taken_back_at_its_deadline(host: FreeBsd) -> None:
    host.apply(sysctl("1024", QUEUE), confirm_within=60)
    assert host.state() == "provisional" and host.parameter(QUEUE) == "1024"
    host.let_deadline_pass()
    revert(Host(str(host.path)), "t")
    assert host.parameter(QUEUE) == "128" and host.state() == "none"


def test_what_nobody_confirms_does_not_outlive_a_boot(host: FreeBsd) -> None:
    host.apply(sysctl("1024", QUEUE), confirm_within=60)
    assert host.boot_anew() == []
    assert host.parameter(QUEUE) == "128" and host.state() == "none"


def test_a_boot_hook_that_does_not_learn_its_boot_takes_back(host: FreeBsd) -> None:
    """The kernel tells no boot_id before it has random numbers."""
    host.apply(sysctl("1024", QUEUE), confirm_within=60, grace_boots=1)
    host.fails["sysctl -n -x kern.boot_id"] = (0, "", "")
    problems = host.boot_anew()
    assert any("tells no whole boot" in problem for problem in problems)
    assert host.parameter(QUEUE) == "128"


def test_a_boot_environment_is_tried_by_one_boot_and_kept_by_its_confirmation(
    host: FreeBsd,
) -> None:
    host.apply(environment(), **GRACE)
    assert host.environments == {"once": "new", "running": "default", "default": "default"}
    assert host.read(f"stub/environments/new/{RC_SCRIPT}") == host.read(RC_SCRIPT)
    assert not host.exists("var/lib/edgetune/boot_environment")
    assert not confirmed(host, environment()), "no boot has tried it"
    assert host.boot_anew() == [] and not host.reboots
    assert host.environments == {"once": "", "running": "new", "default": "default"}
    assert standing(host, environment()) and confirmed(host, environment())
    assert host.environments["default"] == "new"
    host.restore()
    assert host.environments == {"once": "", "running": "new", "default": "default"}


def test_a_boot_environment_that_no_boot_has_tried_is_taken_back(host: FreeBsd) -> None:
    host.apply(environment(), **GRACE)
    host.restore()
    assert host.environments == {"once": "", "running": "default", "default": "default"}


def test_a_boot_environment_that_nobody_confirms_falls_back(host: FreeBsd) -> None:
    host.apply(environment(), **GRACE)
    host.boot_anew()
    host.let_deadline_pass()
    revert(Host(str(host.path)), "t")
    assert host.reboots and host.state() == "none"
    host.boot_anew()
    assert host.environments == {"once": "", "running": "default", "default": "default"}


def test_a_boot_environment_that_does_not_come_up_is_left_by_a_reset(host: FreeBsd) -> None:
    host.apply(environment(), **GRACE)
    host.boot_anew()
    host.boot_anew()
    assert host.environments == {"once": "", "running": "default", "default": "default"}
    assert host.state() == "none" and not host.reboots


def test_a_boot_environment_that_would_forget_us_is_refused(host: FreeBsd) -> None:
    host.keep_in_environment()
    assert why_not(host, environment()).startswith(
        "/var/lib is part of the boot environment zroot/ROOT/default: give it a dataset of its own"
    )


def test_what_is_below_the_boot_environment_is_part_of_it(host: FreeBsd) -> None:
    host.fails["zfs list -H -o name /var/lib"] = (0, "zroot/ROOT/default/var\n", "")
    assert "/var/lib is part of the boot environment" in why_not(host, environment())


@pytest.mark.parametrize("link", ["", "not-there", sys.executable])
def test_a_boot_environment_that_cannot_run_us_is_never_booted(host: FreeBsd, link: str) -> None:
    """Nothing there would take it back. A link is followed in there, not on what runs."""
    host.make_fresh_environment("fresh", link)
    before = host.environments
    error = host.fail("apply", **host.change(environment("fresh"), **GRACE))
    why = f"the boot environment fresh has no {sys.executable}, which runs the agent"
    assert error["reason"] == "undone" and why in error["message"]
    assert host.environments == before and host.state() == "none"
    assert not host.exists("var/lib/edgetune/boot_environment")
    assert not host.exists(f"stub/environments/fresh/{RC_SCRIPT}")


def test_an_interpreter_by_another_version_runs_us_too(host: FreeBsd) -> None:
    host.make_fresh_environment("fresh", "python3.99").with_name("python3.99").touch(0o755)
    host.apply(environment("fresh"), **GRACE)
    assert host.environments["once"] == "fresh"


def test_an_interpreter_that_boot_environments_share_is_not_looked_for(host: FreeBsd) -> None:
    host.make_fresh_environment("fresh")
    host.fails[f"zfs list -H -o name {sys.executable}"] = (0, "zroot/usr/local\n", "")
    host.apply(environment("fresh"), **GRACE)
    assert host.environments["once"] == "fresh"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((127, "", "bectl: not found\n"), "it has no boot environments: bectl list -H: bectl: not"),
        ((0, "", ""), "bectl list -H tells no table of boot environments"),
        ((0, "default\tNR\t/\n", ""), "bectl list -H tells no table of boot environments"),
        ((0, "default\tN\t/\t1G\t2026\n", ""), "bectl list -H tells no boot environment that runs"),
        (
            (0, "a\tNR\t/\t1G\t2026\nnew\tR\t-\t1G\t2026\n", ""),
            "bectl list -H has R of several boot environments",
        ),
        (
            (0, "a\tN\t/\t1G\t2026\nnew\tR\t-\t1G\t2026\n", ""),
            "new is the default, and a runs: reboot",
        ),
        (
            (0, "a\tNR\t/\t1G\t2026\nb\tT\t-\t1G\t2026\nnew\t-\t-\t1G\t2026\n", ""),
            "somebody else asked for b at the next boot",
        ),
    ],
)
def test_odd_boot_environments_are_refused(
    host: FreeBsd, answer: tuple[int, str, str], why: str
) -> None:
    host.fails["bectl list"] = answer
    row = host.plan(environment())[0]
    if row["status"] != "noop":
        assert str(row["reason"]).startswith(why)
    assert row["status"] == "unsupported" or "several" not in why


def test_a_tunable_comes_with_a_boot_and_stays_with_its_confirmation(host: FreeBsd) -> None:
    before = host.tree()
    host.apply(tunable(), **GRACE)
    assert host.read(OURS).endswith('hw.ix.rxd="4096"\n') and host.parameter("hw.ix.rxd") == "2048"
    assert not confirmed(host, tunable())
    assert host.boot_anew() == [] and host.parameter("hw.ix.rxd") == "4096"
    assert confirmed(host, tunable()) and host.boot_anew() == []
    assert host.parameter("hw.ix.rxd") == "4096"
    host.restore()
    assert host.tree() == before
    host.boot_anew()
    assert host.parameter("hw.ix.rxd") == "2048"


def test_a_tunable_that_nobody_confirms_goes_with_another_boot(host: FreeBsd) -> None:
    before = host.tree()
    host.apply(tunable(), **GRACE)
    host.boot_anew()
    host.let_deadline_pass()
    revert(Host(str(host.path)), "t")
    assert host.reboots and host.tree() == before
    host.boot_anew()
    assert host.parameter("hw.ix.rxd") == "2048"


def test_a_tunable_that_stops_the_second_boot_is_taken_back_by_the_third(host: FreeBsd) -> None:
    """The host was reset before anybody could confirm."""
    host.apply(tunable(), **GRACE)
    host.boot_anew()
    host.boot_anew()
    assert host.reboots and not host.exists(OURS)


@pytest.mark.parametrize(
    "name", ["loader.conf.local", "loader.conf.d/zz.conf", "loader.conf.d/a.conf"]
)
def test_a_tunable_needs_the_last_word(host: FreeBsd, name: str) -> None:
    """FreeBSD 13 and 14 read the files of a directory in any order."""
    host.write("boot/loader.conf", 'hw.ix.rxd="1024"\n')
    assert host.plan(tunable())[0]["status"] == "change", "ours is read later"
    host.write(f"boot/{name}", "hw.ix.rxd=512 # by hand\n")
    assert why_not(host, tunable()) == (
        f"/boot/{name} sets it to 512: some releases read that after ours"
    )
    assert why_not(host, tunable("8192", "hw.ix.txd"), environment()).startswith("its file is part")


def test_two_tunings_do_not_set_one_tunable(host: FreeBsd) -> None:
    host.apply(tunable(), **GRACE)
    host.boot_anew()
    assert confirmed(host, tunable())
    row = host.plan(tunable("8192"), tuning="u")[0]
    assert row["reason"].startswith(f"/{OURS} sets it to 4096: some releases")
    assert host.plan(tunable(), tuning="u")[0]["status"] == "noop"


@pytest.mark.parametrize("name", ["vfs.root.mountfrom", "kern.geom.label.x", "zfs_load", "kernel"])
def test_what_a_boot_needs_is_no_tunable_of_a_tuning(host: FreeBsd, name: str) -> None:
    wanted = tunable("1", name)
    error = host.fail("plan", tuning="t", digest="d", settings=[wanted])
    assert error["field"] == "settings[0].target.tunable"


def test_changes_that_can_cut_a_host_off_are_provisional() -> None:
    for name, cuts in (("net.inet.tcp.mssdflt", True), ("dev.ix.0.fc", True), (QUEUE, False)):
        assert KINDS["sysctl"].can_cut_off({"key": name}) is cuts, name
    assert KINDS["module"].can_cut_off({"module": "ipfw"}), "it denies all by itself"
    assert KINDS["tcp.stack"].can_cut_off({}) and KINDS["loader.tunable"].can_cut_off(
        {"tunable": "a.b"}
    )
    assert NETWORK.match(KINDS["sysctl"].touches({"key": "dev.ix.0.fc"})[1])


def test_room_is_kept_where_a_file_system_cannot_allocate(
    host: FreeBsd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZFS says EINVAL, and would compress zeros."""

    def refuse(*_: Any) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    host.apply(sysctl("1024", QUEUE))
    kept = (host.path / RESERVE[1:]).read_bytes()
    assert len(kept) >= RESERVE_BYTES and len(set(kept)) > 200


def test_a_person_at_the_console_can_take_a_tuning_back(
    host: FreeBsd, capsys: pytest.CaptureFixture[str]
) -> None:
    host.apply(sysctl("1024", QUEUE))
    assert act_unattended(Host(str(host.path)), ["restore", "t"]) == []
    assert "t is taken back" in capsys.readouterr().out and host.parameter(QUEUE) == "128"


def irqs(value: str, interface: str = "ix0") -> dict[str, Any]:
    return setting("nic.irq_affinity", {"interface": interface}, value)


def served(host: FreeBsd) -> list[str]:
    """The CPUs of both queues of ix0."""
    told = [host.attempt("cpuset", "-g", "-x", irq)[1].strip() for irq in ("264", "265")]
    return [text.partition("mask: ")[2] for text in told]


@pytest.mark.parametrize(
    ("value", "domains", "threads", "cpus"),
    [
        ("local", "1", "1", ["0", "1"]),
        ("local", "1", "2", ["0", "2"]),
        ("3,5", "1", "1", ["3", "5"]),
        ("6", "1", "1", ["6", "6"]),
        ("spread", "2", "1", ["0", "4"]),
        ("interleave", "2", "1", ["0", "4"]),
    ],
)
def test_interrupts_of_queues_are_placed_over_boots_and_back(
    host: FreeBsd, value: str, domains: str, threads: str, cpus: list[str]
) -> None:
    host.tell("vm.ndomains", domains)
    host.tell("kern.smp.threads_per_core", threads)
    host.boot_anew()
    before, everywhere = host.tree(), served(host)
    row = host.plan(irqs(value))[0]
    assert (row["status"], row["runtime"]) == ("change", "each 0-7")
    host.apply(irqs(value))
    assert served(host) == cpus and standing(host, irqs(value))
    assert not host.apply(irqs(value))["changed"]
    assert host.boot_anew() == [] and served(host) == cpus
    host.restore()
    assert served(host) == everywhere and host.tree() == before


@pytest.fixture
def mellanox(host: FreeBsd) -> FreeBsd:
    """With a card of mlx5en(4), whose interrupts have one name."""
    host.tell("dev.mce.0.conf.channels", "4", "both")
    host.tell("dev.mce.0.conf.debug_stats", "0", "writable")
    host.tell("dev.mce.0.conf.device_name", "mlx5_core0", "fixed")
    host.tell("dev.mlx5_core.0.%domain", "1", "fixed")
    host.tell("vm.ndomains", "2")
    rows = "".join(f"irq{number}: mlx5_core0     7   0\n" for number in range(99, 110))
    host.write("stub/interrupts.txt", f"interrupt                total       rate\n{rows}")
    host.write("stub/ifconfig.txt", CARD.format(name="mce0"))
    host.boot_anew()
    return host


EVERY = ", ".join(map(str, range(8)))
DEBUG = sysctl("1", "dev.mce.0.conf.debug_stats")


def channels(count: int, interface: str = "mce0", **other: int) -> dict[str, Any]:
    return setting("nic.channels", {"interface": interface}, {"combined": count, **other})


def test_channels_of_mlx5en_are_set_over_boots_and_back(mellanox: FreeBsd) -> None:
    before, name = mellanox.tree(), "dev.mce.0.conf.channels"
    row = mellanox.plan(channels(6))[0]
    assert (row["status"], row["runtime"]) == ("change", {"combined": 4})
    mellanox.apply(channels(6))
    assert mellanox.parameter(name) == "6" and standing(mellanox, channels(6))
    assert not mellanox.apply(channels(6))["changed"]
    assert mellanox.boot_anew() == [] and mellanox.parameter(name) == "6"
    mellanox.restore()
    assert mellanox.parameter(name) == "4" and mellanox.tree() == before


def test_a_driver_that_makes_fewer_channels_is_seen_and_taken_back(mellanox: FreeBsd) -> None:
    error = mellanox.fail("apply", **mellanox.change(channels(64)))
    assert "nic.channels:mce0" in error["message"]
    assert mellanox.parameter("dev.mce.0.conf.channels") == "4"


@pytest.mark.parametrize(
    ("own", "why"),
    [
        (channels(0), "mlx5en(4) has channels of both sides alone: combined, 1 or more"),
        (channels(4, rx=4), "mlx5en(4) has channels of both sides alone"),
        (channels(4, "mce1"), "dev.mce.1.conf.channels: this kernel has no such parameter"),
        (
            channels(4, "ix1"),
            "ix makes its queues at a boot alone: the kind loader.tunable sets "
            "dev.ix.1.iflib.override_nrxqs and override_ntxqs",
        ),
        (
            channels(4, "cc0"),
            "cc makes its queues at a boot alone: the kind loader.tunable sets hw.",
        ),
        (channels(4, "bnxt0"), "how many queues bnxt makes is set by nothing that is known"),
    ],
)
def test_channels_that_cannot_be_set_are_refused(
    mellanox: FreeBsd, own: dict[str, Any], why: str
) -> None:
    assert why_not(mellanox, own).startswith(why)


def test_interrupts_of_mlx5en_are_those_of_its_channels(mellanox: FreeBsd) -> None:
    """Once it tells them; its device knows what it is near."""
    own = irqs("local", "mce0")
    assert why_not(mellanox, own) == (
        "mce0 does not tell the interrupts of all its channels: have a tuning before this one set "
        "dev.mce.0.conf.debug_stats to 1 (sysctl)"
    )
    mellanox.apply(DEBUG, tuning="first")
    facts = mellanox.ask("facts")["nics"]["mce0"]
    assert (facts["queues"]["rx"], facts["numa_node"]) == (4, 1)
    mellanox.apply(own)
    irq = "cpuset -g -x {}".format
    told = [mellanox.attempt(*irq(number).split())[1] for number in range(101, 107)]
    masks = [text.partition("mask: ")[2].strip() for text in told]
    assert masks == [EVERY, "4", "5", "6", "7", EVERY]
    assert mellanox.boot_anew() == [] and standing(mellanox, own)


@pytest.mark.parametrize(
    "answer",
    [
        "channel 0 rq 1 cq 1 irq 102\n",
        "".join(f"channel {own} rq 1 cq 1 irq {102 + own}\n" for own in (0, 1, 2, 4)),
        "".join(f"channel {own} tc 0 sq 1 cq 1 irq {102 + own}\n" for own in range(4)),
        "",
    ],
)
def test_channels_that_are_not_all_told_are_not_placed(mellanox: FreeBsd, answer: str) -> None:
    mellanox.apply(DEBUG, tuning="first")
    name = "dev.mce.0.hw_ctx_debug"
    mellanox.fails[f"sysctl {name}"] = (0, f"{name}: pages irq 99\n{answer}", "")
    assert why_not(mellanox, irqs("2", "mce0")).startswith(
        "mce0 does not tell the interrupts of all"
    )


@pytest.mark.parametrize(
    ("own", "why"),
    [
        (irqs("9"), "there is no CPU 9"),
        (irqs("local", "ix7"), "vmstat -ai names no interrupts of queues of ix7: it is down, or"),
        (irqs("local", "ix1"), "nobody knows the domain of ix1: %domain has none"),
    ],
)
def test_interrupts_that_cannot_be_placed_are_refused(
    host: FreeBsd, own: dict[str, Any], why: str
) -> None:
    host.tell("vm.ndomains", "2")
    host.boot_anew()
    assert why_not(host, own).startswith(why)


@pytest.mark.parametrize(
    ("call", "answer", "why"),
    [
        ("cpuset -g -d 1", "cpuset: getdomain: Invalid argument\n", "cpuset -g -d does not tell"),
        ("cpuset -g -x", "irq 264 mask:\n", "cpuset -g -x 264 tells no CPUs of ix0:rxq0"),
    ],
)
def test_cpus_that_are_not_told_are_not_guessed(
    host: FreeBsd, call: str, answer: str, why: str
) -> None:
    host.tell("vm.ndomains", "2")
    host.boot_anew()
    host.fails[call] = (0, answer, "")
    assert why_not(host, irqs("local")).startswith(why)


def test_the_journal_of_one_system_is_read_on_the_same(host: FreeBsd) -> None:
    host.apply(module())
    journal = json.loads(host.read("var/lib/edgetune/tunings/t.json"))
    assert journal["entries"][0]["snapshot"] == {"was": "absent"}


@pytest.mark.parametrize("verb", ["sockets", "congestion"])
def test_what_is_for_linux_alone_says_so(host: FreeBsd, verb: str) -> None:
    error = host.fail(verb)
    assert error["reason"] == "refused"
    assert error["message"] == f"{verb} is for Linux, and this host runs FreeBSD"


def test_a_system_that_nobody_knows_is_refused_by_name(
    host: FreeBsd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "netbsd10")
    assert Host("/").system == "netbsd"
    with pytest.raises(Refused, match="this host runs netbsd"):
        _run("facts", Host("/"), Request({}))
    monkeypatch.setattr("sys.platform", "freebsd14")
    assert Host("/").system == "freebsd"


def test_a_sample_counts_by_the_names_of_linux(host: FreeBsd) -> None:
    told = host.ask("sample", health_requests=0)
    counters = told["counters"]
    assert counters == {
        "listen_drops": 3,
        "listen_overflows": 3,
        "tcp_retransmits": 12,
        "tcp_segments_out": 988,
        "rx_packets": 7100,
        "rx_bytes": 9009000,
        "tx_packets": 6000,
        "rx_errors": 2,
        "rx_dropped": 6,
        "rx_missed": 0,
        "cpu_busy_ms": 519 * 1000 // 127,
        "cpu_total_ms": 62202 * 1000 // 127,
        "mbuf_waits": 0,
        "pbuf_waits": 0,
        "rx_overruns": 4,
    }
    assert told["uptime"] > 0
    assert told["gauges"] == {
        "drifted": 0,
        "load1": 0.32,
        "memory_available_kb": (482182 + 528) * 4,
    }


@pytest.mark.parametrize(
    ("call", "answer", "lost"),
    [
        ("netstat --libxo", "", "tcp_retransmits"),
        ("netstat --libxo", '{"statistics": {"tcp": {"sent-packets": 1}}}', "tcp_segments_out"),
        (
            "netstat --libxo",
            '{"statistics": {"tcp": {"sent-packets": 1.8446744073709552e+19,'
            ' "sent-retransmitted-packets": 1, "listen-queue-overflows": 0}}}',
            "tcp_segments_out",
        ),
        ("netstat -ibdn", "", "rx_packets"),
        ("netstat -ibdn", LINKS.replace("Idrop", "Ilost"), "rx_packets"),
        ("netstat -ibdn", LINKS.replace(" 7000 ", "    - "), "rx_packets"),
        ("netstat -ibdn", LINKS.splitlines()[0], "rx_packets"),
        ("sysctl -i kern.cp_time", "kern.cp_time: 321 0 188 10\n", "cpu_busy_ms"),
        ("sysctl -i kern.cp_time", TICKS + "kern.clockrate: { hz = 1000 }\n", "cpu_busy_ms"),
        ("sysctl -i kern.cp_time", TICKS + "kern.clockrate: { stathz = 0 }\n", "cpu_busy_ms"),
        ("sysctl -i dev.ix", MISSED, "rx_overruns"),
        ("sysctl -i dev.ix", f"{MISSED}dev.ix.1.{OVERRUNS}: 2", "rx_overruns"),
        ("sysctl -i dev.ix", f"{MISSED}dev.ix.1.{OVERRUNS}: many\n", "rx_overruns"),
        ("vmstat -z", "", "mbuf_waits"),
        ("vmstat -z", "ITEM SIZE LIMIT USED\n", "pbuf_waits"),
        ("vmstat -z", f"{ZONES}mbuf: 256, 65", "mbuf_waits"),
        ("vmstat -z", f"{ZONES}mbuf: 256, 65, 10, 1, 9, 3, 2", "mbuf_waits"),
        ("vmstat -z", f"{ZONES}mbuf: 256, 65, 10, 1, 9, -, 2, 0\n", "mbuf_waits"),
        ("vmstat -z", f"{ZONES}mbuf: 256, 65, 10, 1, 9, 0, 0\n64 pcpu: 8, 65\n", "mbuf_waits"),
        ("vmstat -z", f"{ZONES}vnode_pbuf: 2624, 12, 0, 1, 9, 0, 0, 0\n", "mbuf_waits"),
        ("vmstat -z", f"{ZONES}mbuf: 256, 65, 10, 1, 9, 0, 0, 0\n", "pbuf_waits"),
        ("sysctl -i vm.loadavg", PAGES + "vm.loadavg: 0.32\n", "load1"),
        ("sysctl -i vm.loadavg", "vm.loadavg: { 0.32 0.16 0.06 }\n", "memory_available_kb"),
    ],
)
def test_what_is_told_oddly_is_not_measured(
    host: FreeBsd, call: str, answer: str, lost: str
) -> None:
    whole = host.ask("sample", health_requests=0)
    host.fails[call] = (0, answer, "")
    told = host.ask("sample", health_requests=0)
    was = {**whole["counters"], **whole["gauges"]}
    now = {**told["counters"], **told["gauges"]}
    assert lost in was and lost not in now
    assert all(was[name] == now[name] for name in now)


def test_a_sample_counts_requests_for_memory_that_found_none(host: FreeBsd) -> None:
    """Refused ones, and those that had to wait, in every zone of the sort; others do not count."""
    zone(host, "mbuf", FAIL=2**40, SLEEP=5)
    zone(host, "mbuf_cluster", FAIL=3)
    zone(host, "vnode_pbuf", SLEEP=7)
    zone(host, "64 pcpu", FAIL=9)
    counters = host.ask("sample", health_requests=0)["counters"]
    assert (counters["mbuf_waits"], counters["pbuf_waits"]) == (2**40 + 8, 7)


@pytest.mark.parametrize(
    ("cards", "told", "count"),
    [
        (["mce0", "igb1"], ["mce.0.vstats.rx_out_of_buffer", "igb.1.mac_stats.missed_packets"], 7),
        (["cc2"], [f"cc.2.stats.rx_ovflow{group}" for group in range(4)], 4 + 3 + 2 + 1),
        (["cc2"], [f"cc.2.stats.rx_ovflow{group}" for group in range(3)], None),
        (["mce0"], ["mce.1.vstats.rx_out_of_buffer"], None),
        (["mce0", "bnxt0"], ["mce.0.vstats.rx_out_of_buffer"], None),
        ([], [], None),
    ],
)
def test_a_sample_counts_what_every_card_dropped_or_none(
    host: FreeBsd, cards: list[str], told: list[str], count: int | None
) -> None:
    """A driver that is not known, and a parameter that is not there, are no zero."""
    loopback = "lo0: flags=8049<UP,LOOPBACK,RUNNING,MULTICAST> metric 0 mtu 16384\n"
    host.fails["ifconfig -a"] = (0, loopback + "".join(CARD.format(name=own) for own in cards), "")
    lines = "".join(f"dev.{name}: {4 - index}\n" for index, name in enumerate(told))
    host.fails["sysctl -i dev."] = (0, lines, "")
    assert host.ask("sample", health_requests=0)["counters"].get("rx_overruns") == count


def test_a_sample_tells_drift(host: FreeBsd) -> None:
    host.apply(sysctl("1024", QUEUE))
    host.attempt("sysctl", f"{QUEUE}=64")
    drift = host.ask("sample", health_requests=0)["drift"]
    assert [(own["id"], own["runtime"]) for own in drift] == [(f"sysctl:{QUEUE}", "64")]


def test_each_metric_says_what_it_is_on_freebsd(host: FreeBsd) -> None:
    """Of what hosts tell, and of nothing else."""
    known = Catalogue([ROOT / "metrics"]).told_by("hosts")
    told = host.ask("sample", health_requests=0)["counters"]
    for name, entry in known.items():
        health = name.startswith("health_") or name == "performance_health"
        assert ("freebsd" in entry) == (name in told or health), name


def test_the_catalogue_leads_there_and_back_over_boots(tmp_path: Path) -> None:
    with freebsd_host(tmp_path / "host") as host:
        facts, before = host.ask("facts"), host.tree()
        for name in ("oca_network", "oca_kernel"):
            tuning = load_tuning(ROOT / f"tunings/{name}.yaml")
            assert misfits(tuning, facts) == []
            wanted = encoded(render(tuning, facts))
            if name == "oca_kernel":
                wanted[0]["value"] = "new"
            host.apply(*wanted, **(GRACE if name == "oca_kernel" else {}))
            assert host.boot_anew() == [] and standing(host, *wanted)
            assert name != "oca_kernel" or confirmed(host, *wanted)
            assert host.boot_anew() == [] and standing(host, *wanted)
            host.restore()
            host.boot_anew()
            assert host.tree() == before
        assert host.environments == {"once": "", "running": "default", "default": "default"}


def test_a_tuning_of_linux_is_not_for_freebsd(host: FreeBsd) -> None:
    facts = host.ask("facts")
    own = load_tuning(ROOT / "tunings/quiet_thp.yaml")
    assert all("is for Linux, and this host runs FreeBSD" in why for why in misfits(own, facts))
    assert misfits(own, facts)


@pytest.mark.parametrize("left", ["new", "other"])
def test_what_a_killed_agent_left_mounted_is_in_nobodys_way(host: FreeBsd, left: str) -> None:
    host.make_environment("other")
    (host.path / "var/lib/edgetune/boot_environment").mkdir(parents=True)
    host.attempt("bectl", "mount", left, "/var/lib/edgetune/boot_environment")
    host.apply(environment(), **GRACE)
    assert not host.exists(f"stub/environments/other/{RC_SCRIPT}")
    assert host.exists(f"stub/environments/new/{RC_SCRIPT}")
    assert not host.exists("var/lib/edgetune/boot_environment")


def test_a_tunable_that_the_kernel_does_not_take_is_refused(host: FreeBsd) -> None:
    why = why_not(host, tunable("4", "vm.ndomains"))
    assert why == "vm.ndomains is no tunable: the kernel does not take it from the loader"
    assert host.plan(tunable("4", "hw.nothing.known"))[0]["status"] == "change"


def test_a_tunable_of_which_the_kernel_makes_another_value_is_not_verified(host: FreeBsd) -> None:
    host.apply(tunable("2000"), **GRACE)
    host.boot_anew()
    host.fails["sysctl hw.ix.rxd"] = (0, "hw.ix.rxd: 2048\n", "")
    assert not standing(host, tunable("2000")) and not confirmed(host, tunable("2000"))


def diagnosed(host: FreeBsd, seconds: int = 0) -> dict[str, dict[str, Any]]:
    """Findings by name; with two looks, no second goes by."""
    told = host.ask("diagnose", seconds=seconds, services=["nginx"])
    assert told["unread"] == []
    return {found["finding"]: found for found in told["findings"]}


def zone(host: FreeBsd, name: str, **columns: int) -> None:
    """Have a zone tell other numbers."""
    file = host.path / "stub/zones.txt"
    head, *rows = file.read_text().splitlines()
    names = head.split()[1:]
    told = dict.fromkeys(names, 0)
    told.update(columns)
    kept = [row for row in rows if not row.startswith(f"{name}:")]
    new = f"{name}: {', '.join(str(told[each]) for each in names)}"
    file.write_text("\n".join([head, *kept, new]) + "\n")


@pytest.fixture
def young(host: FreeBsd, monkeypatch: pytest.MonkeyPatch) -> FreeBsd:
    """Booted 100 s ago."""
    monkeypatch.setattr("edgetune.hosts.agent.findings.freebsd.Snapshot.uptime", 100.0)
    return host


def test_a_host_that_is_well_has_no_finding(young: FreeBsd) -> None:
    young.write("stub/tcp.json", TCP % (100000, 12, 0))
    before = young.tree()
    assert diagnosed(young) == {} and young.tree() == before


TCP = (
    '{"statistics": {"tcp": {"sent-packets": %d, "sent-retransmitted-packets": %d,'
    ' "listen-queue-overflows": %d}}}'
)


def test_full_queues_and_segments_sent_again_are_found(young: FreeBsd) -> None:
    young.write("stub/tcp.json", TCP % (1000, 20, 300))
    found = diagnosed(young)
    assert found["listen_queue"]["numbers"] == {
        "dropped_per_s": 3.0,
        "dropped": 300,
        "soacceptqueue": 128,
    }
    again = found["segments_again"]
    assert (again["severity"], again["tuning"]) == ("helps", "oca_network")
    assert again["numbers"]["share"] == 0.02
    young.apply(module(), stack())
    assert "segments_again" not in diagnosed(young), "it is RACK that sends them"


def test_buffers_that_there_were_not_are_found(young: FreeBsd) -> None:
    young.write("stub/tcp.json", TCP % (100000, 12, 0))
    zone(young, "mbuf_cluster", LIMIT=1018320, USED=1018320, FAIL=500)
    zone(young, "vnode_pbuf", LIMIT=128, SLEEP=40)
    found = diagnosed(young)
    assert found["buffers_refused"]["numbers"] == {
        "refused_per_s": 5.0,
        "refused": 500,
        "nmbclusters": 1018000,
    }
    assert "(500 since the boot: mbuf_cluster)" in found["buffers_refused"]["what"]
    assert found["pager_buffers"]["numbers"] == {"waits_per_s": 0.4, "waits": 40, "nswbuf": 262}
    assert "vnode_pbuf" in found["pager_buffers"]["what"]


def test_a_limit_that_is_not_told_is_no_number(young: FreeBsd) -> None:
    young.write("stub/tcp.json", TCP % (100000, 12, 300))
    young.fails["sysctl kern.ipc.soacceptqueue"] = (1, "", "sysctl: unknown oid\n")
    (found,) = diagnosed(young).values()
    assert found["numbers"] == {"dropped_per_s": 3.0, "dropped": 300}
    assert "kern.ipc.soacceptqueue is not told" in found["what"]


def test_what_was_refused_long_ago_is_no_finding(
    young: FreeBsd, monkeypatch: pytest.MonkeyPatch
) -> None:
    young.write("stub/tcp.json", TCP % (100000, 12, 9))
    monkeypatch.setattr("edgetune.hosts.agent.findings.freebsd.Snapshot.uptime", 1e6)
    zone(young, "mbuf", FAIL=9, SLEEP=7)
    zone(young, "vnode_pbuf", SLEEP=9)
    zone(young, "64 pcpu", FAIL=90000000)
    assert diagnosed(young) == {}


def test_what_happens_now_is_found_where_there_was_none(
    young: FreeBsd, monkeypatch: pytest.MonkeyPatch
) -> None:
    young.write("stub/tcp.json", TCP % (100000, 12, 0))
    monkeypatch.setattr("edgetune.hosts.agent.findings.freebsd.Snapshot.uptime", 1e9)
    zone(young, "mbuf", FAIL=9)
    monkeypatch.setattr(
        "edgetune.hosts.agent.findings.freebsd.time.sleep", lambda _: zone(young, "mbuf", FAIL=19)
    )
    found = diagnosed(young, seconds=1)
    assert found["buffers_refused"]["numbers"]["refused"] == 19
    assert found["buffers_refused"]["numbers"]["refused_per_s"] > 0


def test_what_the_appliance_needed_and_is_switched_off_is_found(young: FreeBsd) -> None:
    young.write("stub/tcp.json", TCP % (100000, 12, 0))
    young.write("boot/loader.conf", 'vm.numa.disabled="1"\n')
    young.tell("kern.ipc.mb_use_ext_pgs", "0")
    young.tell("kern.ipc.tls.enable", "0")
    young.boot_anew()
    found = diagnosed(young)
    assert list(found) == ["single_pages", "kernel_tls", "no_domains"]
    assert found["no_domains"]["numbers"] == {"disabled": 1, "ndomains": 1}


def test_interrupts_on_cpus_of_another_domain_are_found(young: FreeBsd) -> None:
    young.write("stub/tcp.json", TCP % (100000, 12, 0))
    young.tell("vm.ndomains", "2")
    young.boot_anew()
    (afar,) = diagnosed(young).values()
    assert (afar["finding"], afar["numbers"]) == ("interrupts_afar", {"queues": 2, "all": 2})
    young.apply(irqs("local"))
    assert diagnosed(young) == {}


def test_a_drift_is_a_finding(young: FreeBsd) -> None:
    young.write("stub/tcp.json", TCP % (100000, 12, 0))
    young.apply(sysctl("1024", QUEUE))
    young.attempt("sysctl", f"{QUEUE}=64")
    assert diagnosed(young)["drift"]["severity"] == "conflict"


@pytest.mark.parametrize("answer", ["", "ITEM SIZE LIMIT USED\n", "vmstat: no such thing\n"])
def test_zones_that_are_not_told_are_unread(young: FreeBsd, answer: str) -> None:
    young.write("stub/tcp.json", TCP % (100000, 12, 0))
    young.fails["vmstat -z"] = (0, answer, "")
    told = young.ask("diagnose", seconds=0)
    assert told["findings"] == [] and told["unread"] == [
        "vmstat -z: vmstat -z tells no table of zones"
    ]
