# SPDX-License-Identifier: Apache-2.0
"""The agent on hosts with FreeBSD, of two releases: doubles of the kernel and of its programs."""

from __future__ import annotations

import errno
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
from tests.support.agent_root import near_root, nginx, setting, sysctl
from tests.support.cases import cases
from tests.support.freebsd import LINKS, RELEASES, FreeBsd, freebsd_host
from tests.support.kernels import GRACE

HERE = Path(__file__).parent
QUEUE = "kern.ipc.soacceptqueue"
LONGER_QUEUE = sysctl("1024", QUEUE)
RC_SCRIPT = "usr/local/etc/rc.d/edgetune"
CARD = """\
{name}: flags=8843<UP,BROADCAST,RUNNING,SIMPLEX,MULTICAST> metric 0 mtu 1500
\tmedia: Ethernet 100GBase-SR4 <full-duplex>
\tstatus: active
"""
OURS = "boot/loader.conf.d/90-edgetune-0001-t.conf"
DEFAULT_RUNS = {"once": "", "running": "default", "default": "default"}


def module(name: str = "tcp_rack") -> dict[str, Any]:
    return setting("module", {"module": name}, "loaded")


def stack(name: str = "rack") -> dict[str, Any]:
    return setting("tcp.stack", {}, name)


def tunable(value: str = "4096", name: str = "hw.ix.rxd") -> dict[str, Any]:
    return setting("loader.tunable", {"tunable": name}, value)


def environment(name: str = "new") -> dict[str, Any]:
    return setting("kernel.boot_environment", {}, name)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[FreeBsd]:
    with freebsd_host(tmp_path / "host") as own:
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


@pytest.mark.parametrize("release", RELEASES)
def test_facts_tell_the_system_in_the_terms_of_linux(tmp_path: Path, release: str) -> None:
    with freebsd_host(tmp_path / "host", release) as host:
        facts = host.ask("facts")
    assert (facts["system"], facts["init"], facts["os"]["id"]) == ("freebsd", "rc", "freebsd")
    assert facts["kernel"] == release and release.startswith(facts["os"]["version"])
    assert facts["boot_id"] == host.boot_id and len(host.boot_id) == 32
    assert facts["cpus"]["online"] == "0-7" and facts["cpus"]["vendor"] == "GenuineIntel"
    assert facts["memory"]["total_kb"] == 34208714752 // 1024
    addresses = [own["address"] for own in facts["addresses"] if own["interface"] == "ix0"]
    assert addresses == ["192.0.2.2", "fe80::92e2:baff:fe00:1", "2001:db8::2"]
    assert list(facts["nics"]) == ["ix0", "ix1"], "lo0 carries nothing from elsewhere"
    told = [
        (card["driver"], card["up"], card["speed"], card["queues"]["rx"])
        for card in facts["nics"].values()
    ]
    assert told[0] == ("ix", True, 10000, 2) and told[1][1:3] == (False, None)
    assert facts["boot"] == {"loader": "bectl", "default": "default"}
    assert facts["unwritable"] == []


def test_a_boot_that_cannot_be_proven_is_no_host_for_us(tmp_path: Path) -> None:
    """kern.boottime would move with the clock, and a host would seem to have booted."""
    with freebsd_host(tmp_path / "host", "12.4-RELEASE") as old:
        error = old.fail("facts")
        assert error["message"].endswith("tells no boot: FreeBSD 13 is needed, or newer")
        assert "kern.boottime" not in " ".join(old.calls)


WHOLE = "Format: Length:16 Dump:0x" + "1" * 32 + "\n"


def test_a_boot_id_that_is_not_told_whole_is_none(host: FreeBsd) -> None:
    """Only one that the kernel does not know speaks of an old release."""
    unproven = "failed, so nothing proves a boot: "
    for answer, why in {
        (0, "", ""): "tells no whole boot, but ''",
        (0, WHOLE[:27], ""): f"tells no whole boot, but '{WHOLE[:27]}'",
        (0, "0x" + "1" * 32, ""): "tells no whole boot, but '0x111",
        (1, "", "sysctl: Cannot allocate memory\n"): f"{unproven}sysctl: C",
        (-9, WHOLE, ""): f"{unproven}Format: Length:16",
        (1, "", ""): f"{unproven}exit status 1",
        (1, "", "sysctl: unknown oid 'kern.boot_id'\n"): "tells no boot: FreeBSD 13 is needed",
    }.items():
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
    own = [module(), stack(), LONGER_QUEUE, sysctl("16777216", "kern.ipc.maxsockbuf")]
    before, kernel = host.tree(), host.in_kernel
    assert {row["status"] for row in host.plan(*own)} == {"change"}
    assert host.tree() == before
    half = sysctl("70000", "net.inet.tcp.mssdflt")
    error = host.fail("apply", **host.change(*own, half))
    assert error["reason"] == "undone"
    assert "net.inet.tcp.mssdflt=70000: Invalid argument" in error["message"]
    assert host.tree() == before and host.in_kernel == kernel
    assert host.apply(*own)["changed"]
    after = host.in_kernel
    assert after[:2] == ("rack", "1024")
    assert not host.apply(*own)["changed"]
    assert host.boot_anew() == [] and host.in_kernel == after and standing(host, *own)
    host.restore()
    assert host.tree() == before and host.leftovers() == {"epoch"} and host.in_kernel == kernel
    assert host.boot_anew() == [] and host.in_kernel == kernel


@pytest.mark.parametrize("case", cases(HERE / "freebsd_unsupported.yaml"))
def test_what_a_host_cannot_do_is_refused_by_name(host: FreeBsd, case: dict[str, Any]) -> None:
    if case.get("card") == "mce0":
        have_mellanox(host)
    for name, text in case.get("write", {}).items():
        host.write(name, text)
    for name, value in case.get("tell", {}).items():
        host.tell(name, value)
    host.boot_anew()
    host.fails = {call: (0, answer, "") for call, answer in case.get("fails", {}).items()}
    own = setting(*case["own"], restart=case.get("restart"))
    before = host.tree()
    assert why_not(host, own).startswith(case["why"])
    error = host.fail("apply", **host.change(own))
    assert error["reason"] == "refused"
    assert error["message"].startswith(f"{own['id']}: {case['why']}")
    assert host.tree() == before


def test_a_kind_of_another_system_is_refused(host: FreeBsd, tmp_path: Path) -> None:
    with near_root(tmp_path / "linux") as linux:
        row = linux.plan(stack())[0]
    assert row["status"] == "unsupported"
    assert row["reason"] == "tcp.stack is for FreeBSD, and this host runs Linux"
    why = misfits(load_tuning(ROOT / "tunings/quiet_thp.yaml"), host.ask("facts"))
    assert why and all("is for Linux, and this host runs FreeBSD" in own for own in why)
    for verb in ("sockets", "congestion"):
        error = host.fail(verb)
        assert error["reason"] == "refused"
        assert error["message"] == f"{verb} is for Linux, and this host runs FreeBSD"


def test_a_file_that_is_read_after_our_hook_decides(host: FreeBsd) -> None:
    host.write("etc/sysctl.conf.local", f'{QUEUE}="64"   # ours\n')
    why = why_not(host, LONGER_QUEUE)
    assert why == "/etc/sysctl.conf.local is read after our boot hook, and sets it to 64"
    host.write("etc/sysctl.conf", f"{QUEUE}: 1024\n")
    (host.path / "etc/sysctl.conf.local").unlink()
    row = host.plan(LONGER_QUEUE)[0]
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
    host.apply(module())
    host.fails["kldunload"] = (1, "", "kldunload: can't unload file: Operation not permitted\n")
    assert "Operation not permitted" in host.fail("restore", epoch=1, tuning="t")["message"]
    assert host.state() == "restoring"
    host.fails.clear()
    assert host.restore()["changed"]


def test_a_module_that_somebody_loads_stays_loaded(host: FreeBsd) -> None:
    """It was there before, and is kept by nothing; afterwards it is as it was."""
    host.attempt("kldload", "-n", "tcp_rack")
    assert host.plan(module())[0]["reason"] == "would be lost at the next boot"
    host.apply(module())
    host.boot_anew()
    assert "tcp_rack" in host.modules
    host.restore()
    assert "tcp_rack" in host.modules
    host.write("boot/loader.conf", 'cc_htcp_load="YES"\n')
    assert host.plan(module("cc_htcp"))[0]["persistent"] == "loaded"
    host.write("etc/rc.conf", 'kld_list="tcp_bbr cc_htcp"\n')
    assert host.plan(module("tcp_bbr"))[0]["reason"] == "differs now"


def test_properties_of_a_service_are_variables_of_rc(host: FreeBsd) -> None:
    own = [nginx("LimitNOFILE", "65536"), nginx("CPUAffinity", "2-5"), nginx("Nice", "-5")]
    before = host.tree()
    assert host.apply(*own)["restarted"] == ["nginx"] and "service nginx restart" in host.calls
    assert host.read("etc/rc.conf.d/nginx/90-edgetune-0001-t").splitlines()[1:] == [
        'nginx_limits="-B -n 65536"',
        'nginx_cpuset="2-5"',
        'nginx_nice="-5"',
    ]
    assert standing(host, *own)
    host.boot_anew()
    host.machine.start("nginx")
    assert standing(host, *own)
    host.restore()
    assert host.tree() == before
    assert host.attempt("ps", "-o", "nice=", "-p", "77")[1].strip() == "0"


def test_a_property_in_rc_conf_is_what_a_boot_sets(host: FreeBsd) -> None:
    host.write("etc/rc.conf", "nginx_nice='3'\nnginx_limits=\"-B -n 9\"\n")
    rows = host.plan(nginx("Nice", "3"), nginx("LimitNOFILE", "10"))
    assert [(row["persistent"], row["runtime"]) for row in rows] == [("3", "0"), ("9", "1048576")]
    host.apply(nginx("Nice", "4"))
    assert standing(host, nginx("Nice", "4"))


@pytest.mark.processes
def test_the_boot_hook_comes_before_the_network_and_is_valid_sh(host: FreeBsd) -> None:
    host.apply(LONGER_QUEUE)
    script = host.path / RC_SCRIPT
    assert os.access(script, os.X_OK)
    text = script.read_text()
    for line in ("# PROVIDE: edgetune", "# REQUIRE: FILESYSTEMS random sysctl", "# BEFORE: netif"):
        assert f"\n{line}\n" in text
    assert '[ -f "$EDGETUNE_ROOT/var/lib/edgetune/agent.py" ] || return 0\n' in text
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


@pytest.mark.parametrize("way", ["deadline", "boots"])
@pytest.mark.parametrize("own", [LONGER_QUEUE, tunable(), environment()], ids=lambda own: own["id"])
def test_what_nobody_confirms_is_taken_back(host: FreeBsd, own: dict[str, Any], way: str) -> None:
    """Its boot may be the one that does not come up: the host is reset before anybody confirms."""
    before, kernel = host.settled(), host.in_kernel
    live = own is LONGER_QUEUE
    host.apply(own, **({"confirm_within": 60} if live else GRACE))
    assert (host.settled(), host.in_kernel) != (before, kernel)
    if not live:
        assert not confirmed(host, own), "no boot has tried it"
        assert host.boot_anew() == [] and standing(host, own) and not host.reboots
    if way == "deadline":
        host.let_deadline_pass()
        revert(Host(str(host.path)), "t")
        assert host.reboots != live
    else:
        host.boot_anew()
        assert host.reboots == (own["kind"] == "loader.tunable"), "it runs with the tunable still"
    assert host.state() == "none" and host.settled() == before
    host.boot_anew()
    assert host.in_kernel == kernel


def test_a_boot_hook_that_does_not_learn_its_boot_takes_back(host: FreeBsd) -> None:
    """The kernel tells no boot_id before it has random numbers."""
    host.apply(LONGER_QUEUE, confirm_within=60, grace_boots=1)
    host.fails["sysctl -n -x kern.boot_id"] = (0, "", "")
    problems = host.boot_anew()
    assert any("tells no whole boot" in problem for problem in problems)
    assert host.parameter(QUEUE) == "128"


def test_a_boot_environment_is_tried_by_one_boot_and_kept_by_its_confirmation(
    host: FreeBsd,
) -> None:
    host.apply(environment(), **GRACE)
    host.restore()
    assert host.environments == DEFAULT_RUNS, "no boot has tried it"
    host.apply(environment(), **GRACE)
    assert host.environments == {**DEFAULT_RUNS, "once": "new"}
    assert host.read(f"stub/environments/new/{RC_SCRIPT}") == host.read(RC_SCRIPT)
    assert not host.exists("var/lib/edgetune/boot_environment")
    assert host.boot_anew() == [] and not host.reboots
    assert host.environments == {**DEFAULT_RUNS, "running": "new"}
    assert standing(host, environment()) and confirmed(host, environment())
    assert host.environments["default"] == "new"
    host.restore()
    assert host.environments == {**DEFAULT_RUNS, "running": "new"}


def test_a_boot_environment_that_cannot_run_us_is_never_booted(host: FreeBsd) -> None:
    """Nothing there would take it back. A link is followed in there, not on what runs."""
    before = host.environments
    why = f"has no {sys.executable}, which runs the agent"
    for name, link in (("a", ""), ("b", "not-there"), ("c", sys.executable)):
        host.make_fresh_environment(name, link)
        error = host.fail("apply", **host.change(environment(name), **GRACE))
        assert error["reason"] == "undone"
        assert f"the boot environment {name} {why}" in error["message"]
        assert host.environments == before and host.state() == "none"
        assert not host.exists("var/lib/edgetune/boot_environment")
        assert not host.exists(f"stub/environments/{name}/{RC_SCRIPT}")
    # One of another version runs us, as one does that boot environments share.
    linked = host.machine.environment("b") / sys.executable[1:]
    linked.with_name("not-there").touch(0o755)
    host.apply(environment("b"), **GRACE)
    assert host.environments["once"] == "b"
    host.restore()
    host.fails[f"zfs list -H -o name {sys.executable}"] = (0, "zroot/usr/local\n", "")
    host.apply(environment("a"), **GRACE)
    assert host.environments["once"] == "a"


@pytest.mark.parametrize("left", ["new", "other"])
def test_what_a_killed_agent_left_mounted_is_in_nobodys_way(host: FreeBsd, left: str) -> None:
    host.make_environment("other")
    (host.path / "var/lib/edgetune/boot_environment").mkdir(parents=True)
    host.attempt("bectl", "mount", left, "/var/lib/edgetune/boot_environment")
    host.apply(environment(), **GRACE)
    assert not host.exists(f"stub/environments/other/{RC_SCRIPT}")
    assert host.exists(f"stub/environments/new/{RC_SCRIPT}")
    assert not host.exists("var/lib/edgetune/boot_environment")


def test_a_host_without_boot_environments_or_with_our_state_in_one_says_so(host: FreeBsd) -> None:
    host.keep_in_environment()
    assert why_not(host, environment()).startswith(
        "/var/lib is part of the boot environment zroot/ROOT/default: give it a dataset of its own"
    )
    host.fails["bectl list"] = (127, "", "bectl: not found\n")
    why = why_not(host, environment())
    assert why.startswith("it has no boot environments: bectl list -H: bectl: not")


def test_a_tunable_comes_with_a_boot_and_stays_with_its_confirmation(host: FreeBsd) -> None:
    host.write("boot/loader.conf", 'hw.ix.rxd="1024"\n')
    host.boot_anew()
    before = host.tree()
    assert host.plan(tunable("4", "hw.nothing.known"))[0]["status"] == "change"
    assert why_not(host, tunable("8192", "hw.ix.txd"), environment()).startswith("its file is part")
    host.apply(tunable(), **GRACE)
    assert host.read(OURS).endswith('hw.ix.rxd="4096"\n') and host.parameter("hw.ix.rxd") == "1024"
    assert host.boot_anew() == [] and host.parameter("hw.ix.rxd") == "4096", "ours is read later"
    assert confirmed(host, tunable()) and host.boot_anew() == []
    assert host.parameter("hw.ix.rxd") == "4096"
    other = host.plan(tunable("8192"), tuning="u")[0]
    assert other["reason"].startswith(f"/{OURS} sets it to 4096: some releases")
    assert host.plan(tunable(), tuning="u")[0]["status"] == "noop"
    host.restore()
    assert host.tree() == before
    host.boot_anew()
    assert host.parameter("hw.ix.rxd") == "1024"


def test_a_tunable_of_which_the_kernel_makes_another_value_is_not_verified(host: FreeBsd) -> None:
    host.apply(tunable("2000"), **GRACE)
    host.boot_anew()
    host.fails["sysctl hw.ix.rxd"] = (0, "hw.ix.rxd: 2048\n", "")
    assert not standing(host, tunable("2000")) and not confirmed(host, tunable("2000"))


def test_what_a_boot_needs_is_no_tunable_of_a_tuning(host: FreeBsd) -> None:
    for name in ("vfs.root.mountfrom", "kern.geom.label.x", "zfs_load", "kernel"):
        error = host.fail("plan", tuning="t", digest="d", settings=[tunable("1", name)])
        assert error["field"] == "settings[0].target.tunable", name


def test_changes_that_can_cut_a_host_off_are_provisional() -> None:
    for name, cuts in (("net.inet.tcp.mssdflt", True), ("dev.ix.0.fc", True), (QUEUE, False)):
        assert KINDS["sysctl"].can_cut_off({"key": name}) is cuts, name
    assert KINDS["module"].can_cut_off({"module": "ipfw"}), "it denies all by itself"
    assert KINDS["tcp.stack"].can_cut_off({})
    assert KINDS["loader.tunable"].can_cut_off({"tunable": "a.b"})
    assert NETWORK.match(KINDS["sysctl"].touches({"key": "dev.ix.0.fc"})[1])


def test_room_is_kept_where_a_file_system_cannot_allocate(
    host: FreeBsd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZFS says EINVAL, and would compress zeros."""

    def refuse(*_: Any) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    host.apply(LONGER_QUEUE)
    kept = (host.path / RESERVE[1:]).read_bytes()
    assert len(kept) >= RESERVE_BYTES and len(set(kept)) > 200


def test_a_person_at_the_console_can_take_a_tuning_back(
    host: FreeBsd, capsys: pytest.CaptureFixture[str]
) -> None:
    host.apply(LONGER_QUEUE)
    assert act_unattended(Host(str(host.path)), ["restore", "t"]) == []
    assert "t is taken back" in capsys.readouterr().out and host.parameter(QUEUE) == "128"


def irqs(value: str, interface: str = "ix0") -> dict[str, Any]:
    return setting("nic.irq_affinity", {"interface": interface}, value)


def served(host: FreeBsd, *numbers: int) -> list[str]:
    """The CPUs of interrupts; by default those of both queues of ix0."""
    told = [host.attempt("cpuset", "-g", "-x", str(irq))[1] for irq in numbers or (264, 265)]
    return [text.partition("mask: ")[2].strip() for text in told]


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


def have_mellanox(host: FreeBsd) -> None:
    """A card of mlx5en(4), whose interrupts have one name."""
    host.tell("dev.mce.0.conf.channels", "4", "both")
    host.tell("dev.mce.0.conf.debug_stats", "0", "writable")
    host.tell("dev.mce.0.conf.device_name", "mlx5_core0", "fixed")
    host.tell("dev.mlx5_core.0.%domain", "1", "fixed")
    host.tell("vm.ndomains", "2")
    rows = "".join(f"irq{number}: mlx5_core0     7   0\n" for number in range(99, 110))
    host.write("stub/interrupts.txt", f"interrupt                total       rate\n{rows}")
    host.write("stub/ifconfig.txt", CARD.format(name="mce0"))
    host.boot_anew()


@pytest.fixture
def mellanox(host: FreeBsd) -> FreeBsd:
    have_mellanox(host)
    return host


def channels(count: int) -> dict[str, Any]:
    return setting("nic.channels", {"interface": "mce0"}, {"combined": count})


def test_channels_of_mlx5en_are_set_over_boots_and_back(mellanox: FreeBsd) -> None:
    before, name = mellanox.tree(), "dev.mce.0.conf.channels"
    error = mellanox.fail("apply", **mellanox.change(channels(64)))
    assert "nic.channels:mce0" in error["message"], "its driver makes fewer"
    assert mellanox.parameter(name) == "4"
    row = mellanox.plan(channels(6))[0]
    assert (row["status"], row["runtime"]) == ("change", {"combined": 4})
    mellanox.apply(channels(6))
    assert mellanox.parameter(name) == "6" and standing(mellanox, channels(6))
    assert not mellanox.apply(channels(6))["changed"]
    assert mellanox.boot_anew() == [] and mellanox.parameter(name) == "6"
    mellanox.restore()
    assert mellanox.parameter(name) == "4" and mellanox.tree() == before


def test_interrupts_of_mlx5en_are_those_of_its_channels(mellanox: FreeBsd) -> None:
    """Once it tells all of them; its device knows what it is near."""
    own, name = irqs("local", "mce0"), "dev.mce.0.hw_ctx_debug"
    mellanox.apply(sysctl("1", "dev.mce.0.conf.debug_stats"), tuning="first")
    facts = mellanox.ask("facts")["nics"]["mce0"]
    assert (facts["queues"]["rx"], facts["numa_node"]) == (4, 1)
    for numbers, words in (
        ((0,), "rq 1"),
        ((0, 1, 2, 4), "rq 1"),
        (range(4), "tc 0 sq 1"),
        ((), ""),
    ):
        told = "".join(f"channel {at} {words} cq 1 irq {102 + at}\n" for at in numbers)
        mellanox.fails[f"sysctl {name}"] = (0, f"{name}: pages irq 99\n{told}", "")
        assert why_not(mellanox, own).startswith("mce0 does not tell the interrupts of all"), told
    mellanox.fails.clear()
    mellanox.apply(own)
    every = ", ".join(map(str, range(8)))
    assert served(mellanox, *range(101, 107)) == [every, "4", "5", "6", "7", every]
    assert mellanox.boot_anew() == [] and standing(mellanox, own)


def test_a_system_that_nobody_knows_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "netbsd10")
    assert Host("/").system == "netbsd"
    with pytest.raises(Refused, match="this host runs netbsd"):
        _run("facts", Host("/"), Request({}))
    monkeypatch.setattr("sys.platform", "freebsd14")
    assert Host("/").system == "freebsd"


def sampled(host: FreeBsd) -> dict[str, Any]:
    return host.ask("sample", health_requests=0)


def test_a_sample_counts_by_the_names_of_linux(host: FreeBsd) -> None:
    told = sampled(host)
    assert told["counters"] == {
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
    available = (482182 + 528) * 4
    assert told["gauges"] == {"drifted": 0, "load1": 0.32, "memory_available_kb": available}
    # Each metric says what it is on FreeBSD: of what hosts tell, and of nothing else.
    for name, entry in Catalogue([ROOT / "metrics"]).told_by("hosts").items():
        health = name.startswith("health_") or name == "performance_health"
        assert ("freebsd" in entry) == (name in told["counters"] or health), name


@pytest.mark.parametrize("case", cases(HERE / "freebsd_untold.yaml"))
def test_what_is_told_oddly_is_not_measured(host: FreeBsd, case: dict[str, Any]) -> None:
    whole = sampled(host)
    answer = LINKS.replace(*case["links"]) if "links" in case else case["answer"]
    host.fails[case["call"]] = (0, answer, "")
    told = sampled(host)
    was = {**whole["counters"], **whole["gauges"]}
    now = {**told["counters"], **told["gauges"]}
    assert case["lost"] in was and case["lost"] not in now
    assert all(was[name] == now[name] for name in now)


def test_a_sample_counts_requests_for_memory_that_found_none(host: FreeBsd) -> None:
    """Refused ones, and those that had to wait, in every zone of the sort; others do not count."""
    zone(host, "mbuf", FAIL=2**40, SLEEP=5)
    zone(host, "mbuf_cluster", FAIL=3)
    zone(host, "vnode_pbuf", SLEEP=7)
    zone(host, "64 pcpu", FAIL=9)
    counters = sampled(host)["counters"]
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
    assert sampled(host)["counters"].get("rx_overruns") == count


def test_the_catalogue_leads_there_and_back_over_boots(host: FreeBsd) -> None:
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
    assert host.environments == DEFAULT_RUNS


def zone(host: FreeBsd, name: str, **columns: int) -> None:
    """Have a zone tell other numbers."""
    file = host.path / "stub/zones.txt"
    head, *rows = file.read_text().splitlines()
    told = {**dict.fromkeys(head.split()[1:], 0), **columns}
    kept = [row for row in rows if not row.startswith(f"{name}:")]
    file.write_text(
        "\n".join([head, *kept, f"{name}: {', '.join(map(str, told.values()))}"]) + "\n"
    )


UPTIME = "edgetune.hosts.agent.findings.freebsd.Snapshot.uptime"


@pytest.fixture
def young(host: FreeBsd, monkeypatch: pytest.MonkeyPatch) -> FreeBsd:
    """Booted 100 s ago, and well."""
    monkeypatch.setattr(UPTIME, 100.0)
    have_segments(host)
    return host


def have_segments(host: FreeBsd, sent: int = 100000, again: int = 12, dropped: int = 0) -> None:
    counted = f'"sent-packets": {sent}, "sent-retransmitted-packets": {again}'
    text = f'{{"statistics": {{"tcp": {{{counted}, "listen-queue-overflows": {dropped}}}}}}}'
    host.write("stub/tcp.json", text)


def diagnosed(host: FreeBsd, seconds: int = 0) -> dict[str, dict[str, Any]]:
    """Findings by name; with two looks, no second goes by."""
    told = host.ask("diagnose", seconds=seconds, services=["nginx"])
    assert told["unread"] == []
    return {found["finding"]: found for found in told["findings"]}


def test_a_host_that_is_well_has_no_finding(
    young: FreeBsd, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = young.tree()
    assert diagnosed(young) == {} and young.tree() == before
    # What was refused long ago is none, either.
    have_segments(young, dropped=9)
    monkeypatch.setattr(UPTIME, 1e6)
    zone(young, "mbuf", FAIL=9, SLEEP=7)
    zone(young, "vnode_pbuf", SLEEP=9)
    zone(young, "64 pcpu", FAIL=90000000)
    assert diagnosed(young) == {}


def test_full_queues_and_segments_sent_again_are_found(young: FreeBsd) -> None:
    have_segments(young, 1000, 20, 300)
    found = diagnosed(young)
    dropped = {"dropped_per_s": 3.0, "dropped": 300}
    assert found["listen_queue"]["numbers"] == {**dropped, "soacceptqueue": 128}
    again = found["segments_again"]
    assert (again["severity"], again["tuning"]) == ("helps", "oca_network")
    assert again["numbers"]["share"] == 0.02
    young.apply(module(), stack())
    young.fails["sysctl kern.ipc.soacceptqueue"] = (1, "", "sysctl: unknown oid\n")
    (limitless,) = diagnosed(young).values()
    assert limitless["numbers"] == dropped, "and it is RACK that sends segments again"
    assert "kern.ipc.soacceptqueue is not told" in limitless["what"]


def test_buffers_that_there_were_not_are_found(young: FreeBsd) -> None:
    zone(young, "mbuf_cluster", LIMIT=1018320, USED=1018320, FAIL=500)
    zone(young, "vnode_pbuf", LIMIT=128, SLEEP=40)
    found = diagnosed(young)
    refused, waits = found["buffers_refused"], found["pager_buffers"]
    assert refused["numbers"] == {"refused_per_s": 5.0, "refused": 500, "nmbclusters": 1018000}
    assert "(500 since the boot: mbuf_cluster)" in refused["what"]
    assert waits["numbers"] == {"waits_per_s": 0.4, "waits": 40, "nswbuf": 262}
    assert "vnode_pbuf" in waits["what"]


def test_what_happens_now_is_found_where_there_was_none(
    young: FreeBsd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(UPTIME, 1e9)
    zone(young, "mbuf", FAIL=9)
    monkeypatch.setattr(
        "edgetune.hosts.agent.findings.freebsd.time.sleep", lambda _: zone(young, "mbuf", FAIL=19)
    )
    found = diagnosed(young, seconds=1)
    assert found["buffers_refused"]["numbers"]["refused"] == 19
    assert found["buffers_refused"]["numbers"]["refused_per_s"] > 0


def test_what_the_appliance_needed_and_is_switched_off_is_found(young: FreeBsd) -> None:
    young.write("boot/loader.conf", 'vm.numa.disabled="1"\n')
    young.tell("kern.ipc.mb_use_ext_pgs", "0")
    young.tell("kern.ipc.tls.enable", "0")
    young.boot_anew()
    found = diagnosed(young)
    assert list(found) == ["single_pages", "kernel_tls", "no_domains"]
    assert found["no_domains"]["numbers"] == {"disabled": 1, "ndomains": 1}


def test_interrupts_on_cpus_of_another_domain_are_found(young: FreeBsd) -> None:
    young.tell("vm.ndomains", "2")
    young.boot_anew()
    (afar,) = diagnosed(young).values()
    assert (afar["finding"], afar["numbers"]) == ("interrupts_afar", {"queues": 2, "all": 2})
    young.apply(irqs("local"))
    assert diagnosed(young) == {}


def test_a_drift_is_sampled_and_is_a_finding(young: FreeBsd) -> None:
    young.apply(LONGER_QUEUE)
    young.attempt("sysctl", f"{QUEUE}=64")
    drift = sampled(young)["drift"]
    assert [(own["id"], own["runtime"]) for own in drift] == [(f"sysctl:{QUEUE}", "64")]
    assert diagnosed(young)["drift"]["severity"] == "conflict"


def test_zones_that_are_not_told_are_unread(young: FreeBsd) -> None:
    for answer in ("", "ITEM SIZE LIMIT USED\n", "vmstat: no such thing\n"):
        young.fails["vmstat -z"] = (0, answer, "")
        told = young.ask("diagnose", seconds=0)
        assert told["findings"] == []
        assert told["unread"] == ["vmstat -z: vmstat -z tells no table of zones"]
