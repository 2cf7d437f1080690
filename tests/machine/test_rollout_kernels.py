# SPDX-License-Identifier: Apache-2.0
"""Kernels rolled out over the virtual machines of a PoP under load, good ones and bad ones.

The package comes from the repository that each machine has; the rollout keeps to the two machines,
since hosts in namespaces have no boot loader. `make test-machines` runs these.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import pytest
import yaml

from lab import pop
from tests.support import ROOT
from tests.support.builders import write_yaml
from tests.support.lab_host_bmc import Bmc, from_controller
from tests.support.practice import Practice, needs_machines

pytestmark = needs_machines
MACHINES = ("e002", "e003")
# One machine against one can be drawn in two ways.
REAL = (
    *("pop=lab1", "tuning=lab_kernel", "only=e002,e003", "alpha_benefit=0.5", "alpha_harm=0.5"),
    *("baseline=30", "soak=90", "interval=15", "warmup=5", "batch_size=1"),
    *("dry_run=false", "wait=true", "force_restart=true"),
)
# Seconds that a host may take to come back, with a watchdog's patience within. Where that time is
# waited out, it is some times what a boot takes on two idle cores.
REBOOT_DEADLINE, WAITED_OUT = 900, 240
DEFAULT = "grub-editenv /boot/grub/grubenv list"
PANICS = "echo c >/proc/sysrq-trigger\n"
HANGS_EARLY = "while :; do sleep 60; done\n"
# A unit that leaves no CPU time to systemd, which feeds the watchdog.
SPINS = """
mkdir -p /run/systemd/system/multi-user.target.wants
cat >/run/systemd/system/lab-spin.service <<END
[Service]
CPUSchedulingPolicy=fifo
CPUSchedulingPriority=99
ExecStartPre=/bin/sh -c "until grep -q ^a /sys/class/watchdog/watchdog0/state; do sleep 1; done"
ExecStartPre=/bin/sh -c 'echo -1 >/proc/sys/kernel/sched_rt_runtime_us'
ExecStart=/bin/sh -c 'while :; do :; done & while :; do :; done'
END
ln -s ../lab-spin.service /run/systemd/system/multi-user.target.wants/
"""
NO_NETWORK = """
mkdir -p /run/modprobe.d
printf 'blacklist virtio_net\\nblacklist e1000e\\n' >/run/modprobe.d/lab.conf
"""


@dataclass
class Kernels:
    """The machines of a PoP, and the kernel that they can have."""

    practice: Practice
    config: Path
    old: str
    new: str
    package: str

    def on_machines(self, command: str, stdin: bytes = b"") -> set[str]:
        """What it prints, without the lines' ends."""
        return {self.practice.on(name, command, stdin).strip() for name in MACHINES}

    def roll_out(self, reboot_deadline: int = REBOOT_DEADLINE) -> dict[str, Any]:
        own = yaml.safe_load(self.config.read_text(encoding="utf-8"))
        write_yaml(self.config, {**own, "reboot_deadline": reboot_deadline})
        return self.practice.run("rollout_pop", *REAL, config=self.config)

    def take_back(self, rollout: str) -> dict[str, Any]:
        return self.practice.run("roll_back_pop", f"rollout={rollout}", config=self.config)

    @property
    def running(self) -> set[str]:
        return self.on_machines("uname -r")

    def is_default(self, release: str) -> bool:
        """Whether each machine boots it, next time and later; nothing is to be tried."""
        told = self.on_machines(DEFAULT)
        return all(
            re.search(rf"^saved_entry=.*gnulinux-{re.escape(release)}-advanced", text, re.M)
            and "next_entry=edgetune" not in text
            for text in told
        )


@pytest.fixture(scope="module")
def kernels(practice: Practice, tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    return kernels_of(practice, tmp_path_factory.mktemp("kernels"))


def kernels_of(practice: Practice, place: Path) -> Kernels:
    """With a tuning, and a configuration that has it, in that directory."""
    offered = practice.on("e002", "cat /srv/kernels/Packages")
    package, version = (
        re.findall(rf"(?m)^{field}: (.*)$", offered)[0] for field in ("Package", "Version")
    )
    tuning = yaml.safe_load((ROOT / "tunings/kernel_upgrade.yaml").read_text())
    tuning["name"] = "lab_kernel"
    tuning["settings"][0]["value"] = {"package": package, "version": version}
    # The times of two emulated machines are those of whatever else the CPUs do, and in 30 s the lab
    # has enough requests for a median alone.
    tuning["intent"] = {"no_harm": "health_p50", "margin": 10}
    tuning["guards"] = [own for own in tuning["guards"] if own["metric"] != "health_p50"]
    for guard in tuning["guards"]:
        guard["margin"] = 10
    tuning["guards"].append({"metric": "packets", "margin": 10})
    (place / "tunings").mkdir()
    write_yaml(place / "tunings/lab_kernel.yaml", tuning)
    own = {**practice.config, "tunings": [*practice.config["tunings"], str(place / "tunings")]}
    (old,) = {practice.on(name, "uname -r").strip() for name in MACHINES}
    config = write_yaml(place / "edgetune.yaml", own)
    return Kernels(practice, config, old, package.removeprefix("linux-image-"), package)


def test_an_upgrade_is_promoted_and_can_be_taken_back(kernels: Kernels) -> None:
    practice = kernels.practice
    assert kernels.is_default(kernels.old) and kernels.old != kernels.new
    before = practice.fingerprints()
    with practice.losing_nothing():
        done = kernels.roll_out()
    assert (done["exit"], done["outcome"]) == (0, "promoted"), done
    assert kernels.running == {kernels.new} and kernels.is_default(kernels.new)
    assert "edgetune-trial" not in "".join(kernels.on_machines("cat /boot/grub/custom.cfg || :"))
    with practice.losing_nothing():
        back = kernels.take_back(done["rollout"])
    assert (back["exit"], back["outcome"], back["quarantined"]) == (0, "rolled_back", {})
    assert kernels.running == {kernels.old} and kernels.is_default(kernels.old)
    assert practice.fingerprints() == before


@dataclass
class Evidence:
    """What is seen of the host that tried a kernel, apart from what the rollout says."""

    console: str
    events: list[str]
    resets: list[str]


Shows = Callable[[Evidence], bool]


@pytest.mark.parametrize(
    ("bad", "with_bmc", "deadline", "shows"),
    [
        pytest.param(
            PANICS,
            False,
            REBOOT_DEADLINE,
            lambda seen: "Kernel panic - not syncing" in seen.console,
            id="panics",
        ),
        pytest.param(
            SPINS,
            False,
            REBOOT_DEADLINE,
            lambda seen: any("watchdog" in text for text in seen.events),
            id="hangs",
        ),
        pytest.param(
            HANGS_EARLY,
            True,
            WAITED_OUT,
            lambda seen: seen.resets[-1:] == ["ForceRestart"],
            id="hangs before there is a watchdog",
        ),
        pytest.param(
            NO_NETWORK, False, WAITED_OUT, lambda seen: not seen.resets, id="has no network"
        ),
    ],
)
def test_a_bad_kernel_falls_back_with_nobody_s_hand(
    kernels: Kernels, bad: str, with_bmc: bool, deadline: int, shows: Shows
) -> None:
    practice = kernels.practice
    before = practice.fingerprints()
    booted, resets, read = pop.boots(practice.home), _resets(practice), _consoles(practice)
    own = f"/etc/lab-boot-{kernels.new}"
    kernels.on_machines(f"cat >{own}", bad.encode())
    try:
        for name in () if with_bmc else MACHINES:
            pop.bmc_fault(practice.home, name, "deaf", True)
        with practice.losing_nothing():
            done = kernels.roll_out(deadline)
    finally:
        pop.heal(practice.home)
        kernels.on_machines(f"rm -f {own}")
    assert (done["exit"], done["outcome"]) == (3, "rolled_back"), done
    assert done["message"].startswith("rolled_back: every host is as it was"), done
    assert kernels.running == {kernels.old} and kernels.is_default(kernels.old)
    assert practice.fingerprints() == before
    (tried,) = (name for name, count in pop.boots(practice.home).items() if count > booted[name])
    with from_controller(practice.home) as ask:
        events = Bmc(practice.home, tried, ask).events
    console = _consoles(practice)[tried][len(read[tried]) :]
    seen = Evidence(console, events, _resets(practice)[tried][len(resets[tried]) :])
    assert f"Loading Linux {kernels.new}" in console and shows(seen), seen


def _resets(practice: Practice) -> dict[str, list[str]]:
    """What BMCs were asked for so far."""
    found = pop.status(practice.home)
    assert found is not None
    return {host["name"]: host["bmc"]["resets"] for host in found["hosts"]}


def _consoles(practice: Practice) -> dict[str, str]:
    place = practice.home / "lab/console"
    return {name: (place / f"{name}.log").read_text(errors="replace") for name in MACHINES}
