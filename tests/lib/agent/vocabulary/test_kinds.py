# SPDX-License-Identifier: Apache-2.0
"""Each kind is whole, says what it touches, and takes the same in the catalogue and on a host."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.agent.drift import things_at, touched_by
from edgetune.agent.host import Host
from edgetune.agent.kinds import FileKept, Handler, class_of, module_of
from edgetune.agent.observe import read_settings
from edgetune.agent.protocol import BadRequest, Request
from edgetune.agent.vocabulary.kind import (
    BOOT_ENTRY,
    DISRUPTIONS,
    SYSTEMS,
    Kind,
    parameter,
    property_of,
    sysctl_path,
)
from edgetune.agent.vocabulary.kinds import KINDS, Setting
from edgetune.agent.vocabulary.places import INIT_SCRIPT, OURS, UNIT, UNIT_LINK
from edgetune.agent.vocabulary.values import format_cpus, format_mask, parse_cpus, parse_mask
from edgetune.base.errors import InputError
from edgetune.intent.tuning import load_tuning
from tests.support import ROOT
from tests.support.agent_any import AnyHost, any_host
from tests.support.agent_nic import CARDS
from tests.support.agent_root import near_root, setting
from tests.support.builders import write_tuning
from tests.support.cases import rows
from tests.support.examples import examples
from tests.support.trials import MACHINES, Build, path_of, trials

CASES = Path(__file__).with_name("cases") / "kinds.yaml"

TRIALS = trials()
DECLARED = [path.stem for path in (ROOT / "lib/edgetune/agent/vocabulary/kinds").glob("[a-z]*.py")]


def catalogue_says(tmp_path: Path, name: str, value: Any, **more: Any) -> str:
    """What is wrong with a setting in a file of the catalogue."""
    own = {"kind": name, **target_of(name), "value": value, **more}
    try:
        load_tuning(write_tuning(tmp_path / "app.yaml", own))
    except InputError as error:
        assert "app.yaml: settings[0]." in str(error)
        return str(error).partition("settings[0].")[2]
    return ""


def agent_says(name: str, value: Any, target: dict[str, str], only: str | None = None) -> str:
    """What is wrong with the same setting in a request."""
    own = setting(name, target, value, only=only)
    try:
        read_settings(Request({"settings": [own]}))
    except BadRequest as error:
        return f"{error.field}: {error}".partition("settings[0].")[2]
    return ""


def target_of(name: str) -> dict[str, str]:
    return dict(TRIALS[name].target) if name in TRIALS else {}


@pytest.mark.parametrize("stem", DECLARED)
def test_a_kind_is_whole(stem: str) -> None:
    """Says which part of a kind is missing."""
    place = f"lib/edgetune/agent/vocabulary/kinds/{stem}.py"
    kind = getattr(import_module(f"edgetune.agent.vocabulary.kinds.{stem}"), "KIND", None)
    assert isinstance(kind, Kind), f"{place} has no KIND"
    name = stem.replace("_", ".", 1)
    assert kind.name == name, f"{place}: a kind in this file is called {name}, not {kind.name}"
    assert kind.disruption in DISRUPTIONS, f"{place}: {kind.disruption} is no disruption"
    for word in ("summary", "takes", "example"):
        assert getattr(kind, word), f"{place}: {word} is empty"
    if kind.by_bmc:
        return
    assert kind.systems and set(kind.systems) <= set(SYSTEMS), f"{place}: systems are odd"
    for system in kind.systems:
        assert_carried_out(kind, system)
    trial = path_of(name).relative_to(ROOT)
    assert name in TRIALS, f"{trial} is missing: it says how {name} is tried"
    assert list(TRIALS[name].target) == list(kind.target), f"{trial}: its target has other fields"
    for which in ("taken", "refused"):
        assert getattr(TRIALS[name], which), f"{trial}: no value is {which}"


def assert_carried_out(kind: Kind, system: str) -> None:
    """Says what is missing of its class for one system."""
    name, module = kind.name, module_of(system, kind.name)
    agent = f"lib/{module.replace('.', '/')}.py"
    assert (ROOT / agent).exists(), f"{agent} is missing: it carries out {name} on a host"
    handler = getattr(import_module(module), class_of(name), None)
    assert handler, f"{agent} has no class {class_of(name)}"
    assert getattr(handler, "kind", None) is kind, f"{agent}: the `kind` of its class is another"
    for method in ("runtime", "persistent", "snapshot", "apply", "restore"):
        own = getattr(handler, method) is not getattr(Handler, method)
        assert own, f"{agent}: {class_of(name)} has no {method}"
    if name not in TRIALS:
        return
    tried = kind.is_tried_by_a_boot(TRIALS[name].target)
    assert handler.tried_by_boot == tried, f"{agent}: whether a boot tries it is said in two ways"
    seen = TRIALS[name].file or TRIALS[name].call or issubclass(handler, FileKept)
    trial = path_of(name).relative_to(ROOT)
    assert seen, f"{trial}: neither file nor call tells by what a change of {name} is seen"


def test_kinds_have_each_a_class_and_a_place_in_the_order_and_nothing_else_is_one() -> None:
    folder = ROOT / "lib/edgetune/agent/kinds"
    files = folder.rglob("*.py")
    found = [path.stem for path in files if "\n    kind = KIND\n" in path.read_text()]
    assert found
    for stem in found:
        assert stem in DECLARED, f"lib/edgetune/agent/vocabulary/kinds/{stem}.py is missing"
    orders = Counter(kind.order for kind in KINDS.values())
    assert max(orders.values()) == 1, orders.most_common(3)
    for name in ("nic.none", "nic", "", "base", "__init__", "nic_ring", "../x", "nic.ring.x", None):
        assert name not in KINDS and not KINDS.on_hosts(name)
    assert "bios.attribute" in KINDS and not KINDS.on_hosts("bios.attribute")


@pytest.mark.parametrize("name", TRIALS)
def test_the_catalogue_takes_what_the_agent_takes(tmp_path: Path, name: str) -> None:
    trial, target = TRIALS[name], target_of(name)
    for value in trial.taken:
        said = agent_says(name, value, target), catalogue_says(tmp_path, name, value)
        assert said == ("", ""), value
    for value in trial.refused:
        assert agent_says(name, value, target).startswith("value"), value
        assert catalogue_says(tmp_path, name, value).startswith("value"), value
    wanted = "" if KINDS[name].ordered else f"only: has no meaning for {name}"
    for says in (
        agent_says(name, trial.taken[0], target, "raise"),
        catalogue_says(tmp_path, name, trial.taken[0], only="raise"),
    ):
        assert says == wanted or (wanted == "" and "no meaning" not in says)


@pytest.mark.slow
@pytest.mark.parametrize("name", [own for own in TRIALS if "linux" in KINDS[own].systems])
def test_a_kind_changes_what_it_says_that_it_touches(tmp_path: Path, name: str) -> None:
    build, tried = Build(CARDS[0], MACHINES[1]), []

    @examples(6, derandomize=True, database=None)
    @given(own=st.sampled_from(TRIALS[name].settings(build)).flatmap(lambda one: one))
    def attempt(own: dict[str, Any]) -> None:
        with any_host(tmp_path / str(next(numbers)), build) as host:
            before = host.whole()
            wanted = [own, *TRIALS[name].beside]
            if host.plan(*wanted)[0]["status"] != "change":
                return
            host.poked.clear()
            host.calls.clear()
            host.apply(*wanted, **TRIALS[name].asks)
            inside = Host(str(host.path))
            touched = {thing for one in wanted for thing in touched_of(inside, one)}
            for what, things in things_changed(host, inside, before).items():
                assert things & touched, f"{name} does not say that it touches {what}"
                tried.append(what)

    attempt()
    assert tried, f"no setting of {path_of(name).relative_to(ROOT)} changes anything"


numbers = itertools.count()
# What follows from a restart of nginx, and what keeps our boot hook.
AFTERWARDS = re.compile(r"proc/[0-9]+/|proc/interrupts|sys/fs/")
HOOK = {INIT_SCRIPT[1:], UNIT[1:], UNIT_LINK[1:]}


def touched_of(inside: Host, own: dict[str, Any]) -> set[str]:
    given = Setting(own["kind"], own["target"], own["value"], None, None)
    return touched_by(inside, given)


def things_changed(host: AnyHost, inside: Host, before: dict[str, Any]) -> dict[str, set[str]]:
    """What the files, programs and doubles of a host saw, with the things that each of it is."""
    found = {name: things_at(inside, name) for name in host.poked}
    for call in host.calls:
        things = things_called(call)
        found.update({call: things} if things else {})
    after = host.whole()
    for name in sorted(set(before) | set(after)):
        if before.get(name) != after.get(name) and name not in (*HOOK, "nginx"):
            found.update(things_of(inside, name, after.get(name)))
    return found


def things_called(call: str) -> set[str]:
    unit = re.match(
        r"systemctl (?:--no-block )?(?:start|stop|enable|disable) (?!edgetune-)(\S+)", call
    )
    mount = re.match(r"mount .* (\S+)$", call)
    card = re.match(r"ethtool -[A-Z] (\S+)", call)
    named = {"unit": unit, "mount": mount, "interface": card}
    return {f"{what} {found.group(1)}" for what, found in named.items() if found}


def things_of(inside: Host, name: str, now: Any) -> dict[str, set[str]]:
    if name == "routes":
        return {name: {"route inet 0.0.0.0/0"}}
    if name in ("rss", "interrupts") or name.startswith("card "):
        return {name: {"interface eth0"}}
    if name.startswith(("boot/", "etc/default/grub")):
        return {name: {BOOT_ENTRY}}
    content = now[1] if isinstance(now, tuple) else b""
    if AFTERWARDS.match(name) or name == "proc/self/mountinfo" or content is None:
        return {}
    if not Path(name).name.startswith(OURS):
        return {f"/{name}": things_at(inside, f"/{name}")}
    pairs = re.findall(rb"^([^#\s=]+) ?= ?", content, re.MULTILINE)
    keys = [key.decode() for key in pairs]
    if "sysctl.d" in name:
        return {f"{key} in {name}": {parameter(key)} for key in keys}
    service = Path(name).parent.name[: -len(".d")]
    return {f"{key} in {name}": {property_of(service, key)} for key in keys}


def at(kind: str, **target: str) -> tuple[str, dict[str, str]]:
    return kind, target


def route(family: str, route: str) -> tuple[str, dict[str, str]]:
    return at("route.metric", family=family, route=route)


PROPERTY = at("service.property", service="nginx.service", property="CPUAffinity")
SWAPPINESS, RATIO = (at("sysctl", key=f"vm.{own}") for own in ("swappiness", "dirty_ratio"))
RFS = at("sysctl", key="net.core.rps_sock_flow_entries")
FREE, MARKS = (
    at("sysctl", key="vm.min_free_kbytes"),
    at("memory.watermarks", parameter="min_free_kbytes"),
)
RINGS = [at("nic.ring", interface=f"eth{number}") for number in (0, 1)]


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (at("sysctl", key="net.core.somaxconn"), at("sysctl", key="net/core/somaxconn"), 1),
        (at("sysctl", key="vm.dirty_bytes"), RATIO, 2),
        (SWAPPINESS, RATIO, 0),
        (FREE, MARKS, 1),
        (at("sysctl", key="kernel.sched_migration_cost_ns"), at("sched.migration_cost"), 1),
        (RFS, at("nic.rfs", interface="eth0"), 1),
        (RINGS[0], at("nic.irq_affinity", interface="eth0"), 1),
        (RINGS[0], RINGS[1], 0),
        (at("kernel.package"), at("kernel.cmdline", parameter="quiet"), 1),
        (PROPERTY, at("cpu.service_affinity", service="nginx"), 1),
        (route("inet", "default"), route("inet", "0.0.0.0/0"), 1),
        (route("inet6", "2001:DB8::/32"), route("inet6", "2001:db8:0::/32"), 1),
    ],
)
def test_kinds_that_touch_one_thing_meet_however_it_is_spelt(
    tmp_path: Path, one: tuple[str, Any], other: tuple[str, Any], both: int
) -> None:
    with near_root(tmp_path / "host") as host:
        inside = Host(str(host.path))
        own = [{"kind": kind, "target": target, "value": ""} for kind, target in (one, other)]
        assert len(touched_of(inside, own[0]) & touched_of(inside, own[1])) == both


def test_a_file_of_the_kernel_is_a_thing_by_its_real_path(tmp_path: Path) -> None:
    """Links of sysfs, what belongs to a card, and interrupts lead to one interface."""
    with near_root(tmp_path / "host") as host:
        card = host.path / "sys/devices/pci0/0000:03:00.0"
        (card / "net").mkdir(parents=True)
        (host.path / "sys/class/net/eth0").rename(card / "net/eth0")
        (host.path / "sys/class/net/eth0").symlink_to("../../devices/pci0/0000:03:00.0/net/eth0")
        (card / "net/eth0/device").symlink_to("../..")
        host.write("sys/devices/pci0/0000:03:00.0/msi_irqs/41", "msix\n")
        host.write("sys/devices/pci0/0000:03:00.0/sriov_numvfs", "0\n")
        inside = Host(str(host.path))
        for name in (
            "/sys/class/net/eth0/queues/rx-0/rps_cpus",
            "/sys/devices/pci0/0000:03:00.0/net/eth0/queues/rx-0/rps_cpus",
            "/sys/class/net/eth0/device/sriov_numvfs",
            "/proc/irq/41/smp_affinity_list",
        ):
            assert "interface eth0" in things_at(inside, name), name
        real = "/sys/devices/pci0/0000:03:00.0/net/eth0/queues/rx-0/rps_cpus"
        assert real in things_at(inside, "/sys/class/net/eth0/queues/rx-0/rps_cpus")
        assert things_at(inside, "/proc/irq/42/smp_affinity_list") == {
            "/proc/irq/42/smp_affinity_list"
        }
        (host.path / "etc/link").symlink_to("sysctl.conf")
        assert things_at(inside, "/etc/link") == {"/etc/sysctl.conf"}


@pytest.mark.parametrize(
    ("name", "value", "more", "says"),
    rows(CASES, "what_the_bmc_sets"),
)
def test_what_the_bmc_sets(
    tmp_path: Path, name: str, value: str, more: dict[str, str], says: str
) -> None:
    found = catalogue_says(tmp_path, name, value, **more)
    assert found.startswith(says) if says else not found


def test_only_needs_numbers_or_expressions_which_hosts_check(tmp_path: Path) -> None:
    says = "only: needs a value made of numbers"
    for name, value in (("sysctl", "bbr"), ("route.metric", {"congctl": "bbr"})):
        assert agent_says(name, value, target_of(name), "raise") == says
        assert catalogue_says(tmp_path, name, value, only="raise") == says
    for name, value in (
        ("service.property", "infinity"),
        ("nic.rfs", "{{ cpus.count }}"),
        ("nic.ring", {"rx": "{{ nic.ring_max.rx }}"}),
    ):
        assert not catalogue_says(tmp_path, name, value, only="raise")
    assert not catalogue_says(tmp_path, "nic.irq_affinity", "{{ cpus.online }}")
    for field in ("why", "source"):
        assert catalogue_says(tmp_path, "nic.rfs", 1, **{field: " "}) == f"{field}: is empty"


NO_WAY_BACK = {
    "the kernel changes more with it than it puts back: redirects, routes that routers "
    "advertised, and LRO of every interface": (
        "net.ipv4.ip_forward",
        "net/ipv4/conf/eth0.7/forwarding",
        "net.ipv6.conf.all.forwarding",
    ),
    "the kernel removes or makes addresses with it, and their routes do not come back": (
        "net.ipv6.conf.all.disable_ipv6",
        "net.ipv6.conf.eth0.addr_gen_mode",
    ),
    "the kernel removes shared memory, or routes of labels, with it, and they do not come back": (
        "kernel.shm_rmid_forced",
        "net.mpls.platform_labels",
    ),
    "the kernel takes it back by no other way than a boot": (
        "kernel.kexec_load_disabled",
        "net.netfilter.nf_hooks_lwtunnel",
    ),
    "it asks the kernel to do something, and keeps no value": (
        "vm.drop_caches",
        "net.ipv4.route.flush",
    ),
}


@pytest.mark.parametrize(
    ("name", "field", "place", "says"),
    [
        ("unit", "unit", "sshd@1.service", "unit: sshd@1.service is needed to reach the host"),
        ("file", "path", "/proc/x", "path: no tuning writes below /proc"),
        ("file", "path", "/etc/sudoers.d/x", "path: no tuning writes below /etc/sudoers.d"),
        ("file", "path", "/etc/sysctl.d/90-edgetune-a.conf", "path: is edgetune's own"),
        *[
            ("sysctl", "key", key, f"key: no tuning sets {key}: {why}")
            for why, keys in NO_WAY_BACK.items()
            for key in keys
        ],
        ("kernel.cmdline", "parameter", "root", "parameter: root is needed to boot the host"),
        (
            *("kernel.cmdline", "parameter", "nmi-watchdog"),
            "parameter: nmi-watchdog ends a first boot that goes wrong: a sysctl can set the same "
            "later",
        ),
    ],
)
def test_what_no_tuning_changes_is_named(
    tmp_path: Path, name: str, field: str, place: str, says: str
) -> None:
    value = TRIALS[name].taken[0]
    assert agent_says(name, value, {field: place}).endswith(says)
    assert catalogue_says(tmp_path, name, value, **{field: place}) == says


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("net.ipv4.tcp_rmem", "net/ipv4/tcp_rmem"),
        ("net/ipv4/conf/eth0.1/forwarding", "net/ipv4/conf/eth0.1/forwarding"),
        ("net.ipv4.conf.eth0/1.forwarding", "net/ipv4/conf/eth0.1/forwarding"),
    ],
)
def test_both_ways_to_write_a_sysctl(key: str, path: str) -> None:
    assert sysctl_path(key) == path


@given(st.sets(st.integers(0, 200)))
def test_cpu_lists_and_masks_come_back(cpus: set[int]) -> None:
    assert parse_cpus(format_cpus(cpus)) == cpus
    mask = format_mask(cpus)
    assert parse_mask(mask) == cpus
    assert all(len(group) == 8 for group in mask.split(",")[1:])
