# SPDX-License-Identifier: Apache-2.0
"""A host of the lab that is a virtual machine: its boot, its hardware, its power.

`make test-machines` runs these. Each boot takes half a minute on two idle cores, and the tests come
one after the other on one machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from edgetune import AGENT_PROTOCOL
from edgetune.agent import bundle
from edgetune.base.documents.congestion import Configuration, Treated
from edgetune.net.hosts.conversation import BOOTSTRAP
from edgetune.net.hosts.fleet import packed
from lab import pop
from lab.bmc.machine import serial_of, uuid_of
from tests.lab.test_pop import entering, inside, ssh
from tests.support.lab_host_bmc import Bmc, from_controller
from tests.support.practice import needs_machines

pytestmark = needs_machines
HOST, ADDRESS = "e000", "10.77.1.1"
# Some times what a boot takes on two idle cores.
BOOT_SECONDS = 600.0


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("lab")
    pop.up(home, hosts=1, machines=1, load=False, tell=lambda text: print(text, file=sys.stderr))
    try:
        wait_for_running(home)
        yield home
    finally:
        pop.down(home)


@pytest.fixture(scope="module")
def bmc(home: Path) -> Iterator[Bmc]:
    with from_controller(home) as ask:
        yield Bmc(home, HOST, ask)


def on(home: Path, *command: str, stdin: bytes = b"") -> str:
    return pop.console(home, HOST, command, stdin, timeout=120).strip()


def state_of(home: Path) -> str:
    """As systemd sees the boot, "" while there is nobody to ask."""
    try:
        return on(home, "sh", "-c", "systemctl is-system-running || :")
    except pop.LabError:
        return ""


def wait_for_running(home: Path, boots: int = 1) -> None:
    def is_running() -> bool:
        return pop.boots(home)[HOST] == boots and state_of(home) in ("running", "degraded")

    wait_until(is_running, f"boot {boots}")
    assert state_of(home) == "running", on(home, "systemctl", "--failed", "--no-legend")


def wait_until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + BOOT_SECONDS
    while not holds():
        assert time.monotonic() < end, f"{what}: not in {BOOT_SECONDS:.0f} s"
        time.sleep(1)


def power_state(home: Path) -> str:
    found = pop.status(home)
    assert found is not None
    return str(found["hosts"][0]["state"])


def ask(home: Path, verb: str, **fields: Any) -> dict[str, Any]:
    """The agent's result, over SSH as the controller has it."""
    request = json.dumps({"protocol": AGENT_PROTOCOL, "verb": verb, **fields}).encode()
    done = subprocess.run(
        entering(home, *ssh(home, HOST, BOOTSTRAP, patience=60)),
        input=packed(bundle.make()) + request,
        capture_output=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    reply: dict[str, Any] = json.loads(done.stdout)
    assert reply["ok"], reply
    result: dict[str, Any] = reply["result"]
    return result


def test_it_boots_debian_by_its_own_boot_loader(home: Path) -> None:
    line = on(home, "cat", "/proc/cmdline")
    assert line.startswith("BOOT_IMAGE=/boot/vmlinuz-")
    assert "root=UUID=" in line
    assert on(home, "cat", "/proc/1/comm") == "systemd"
    # Of grubenv a one-shot entry has to be cleared by GRUB itself.
    on(home, "grub-editenv", "/boot/grub/grubenv", "set", "edgetune_tried=1")
    assert "edgetune_tried=1" in on(home, "grub-editenv", "/boot/grub/grubenv", "list")
    assert on(home, "findmnt", "-no", "FSTYPE", "--target", "/boot") == "ext4"


def test_it_has_an_identity_nodes_and_cards(home: Path) -> None:
    dmi = "/sys/class/dmi/id"
    assert on(home, "cat", f"{dmi}/product_uuid").lower() == uuid_of(HOST)
    assert on(home, "cat", f"{dmi}/product_serial") == serial_of(HOST)
    assert on(home, "cat", "/sys/devices/system/node/online") == "0-1"
    front = on(home, "sh", "-c", "ip -o route get 10.77.0.2 | sed 's/.* dev \\([^ ]*\\).*/\\1/'")
    assert "Combined:\t4" in on(home, "ethtool", "-l", front)
    nics = ask(home, "facts")["nics"]
    found = {nic["driver"]: nic["numa_node"] for nic in nics.values()}
    assert found == {"virtio_net": 0, "e1000e": 1}
    assert nics[front]["channels"]["max"]["combined"] == 4


def test_systemd_keeps_congestion_control_until_a_boot_or_its_time_ends_it(home: Path) -> None:
    """Over the end of the session that told it, and a keeper that is killed."""
    keeper, epochs = "edgetune-congestion.service", iter(range(1, 9))

    def tell(ttl: int) -> dict[str, Any]:
        """Every kernel has that algorithm, and connections of the machine begin with another."""
        epoch = next(epochs)
        told = Configuration("lab1", epoch, "reno", ttl, [Treated("10.77.40.0/24")]).sealed()
        return ask(home, "congestion", configuration=told.document(), epoch=epoch)

    def is_kept() -> bool:
        return on(home, "sh", "-c", f"systemctl is-active {keeper} || :") == "active"

    def routes() -> str:
        return on(home, "ip", "-o", "route", "show", "proto", "219")

    def left() -> str:
        """Of the agent's files, its hook and its routes."""
        find = "ls /var/lib/edgetune/congestion.json /etc/systemd/system/*edgetune* 2>/dev/null"
        return on(home, "sh", "-c", f"{find}; ip -o route show proto 219")

    before = left()
    told = tell(3600)
    assert told["kept"] and told["skipped"] == {}
    assert is_kept() and "10.77.40.0/24" in routes() and "congctl reno" in routes()
    first = on(home, "systemctl", "show", "--property=MainPID", keeper)
    assert pop.kill(home, HOST, "agent") >= 1
    wait_until(is_kept, "a keeper after it was killed")
    assert on(home, "systemctl", "show", "--property=MainPID", keeper) != first
    boots = pop.boots(home)[HOST]
    with suppress(pop.LabError):
        on(home, "systemctl", "--no-block", "reboot")
    wait_for_running(home, boots + 1)
    assert left() == before and not is_kept()
    told = tell(30)
    assert told["kept"] and 0 < told["seconds_left"] <= 30 and "congctl reno" in routes()
    wait_until(lambda: left() == before, "the end of what nobody renewed")
    wait_until(lambda: not is_kept(), "the end of its keeper")
    assert state_of(home) == "running", on(home, "systemctl", "--failed", "--no-legend")


def test_a_cut_cable_lets_nothing_through_until_it_is_healed(home: Path) -> None:
    assert reached(home)
    try:
        pop.inject(home, "cut", HOST)
        assert not reached(home)
    finally:
        pop.heal(home)
    wait_until(lambda: reached(home), "a cable that is plugged in")


def reached(home: Path) -> bool:
    """Whether its web server answers the controller."""
    fetch = f"import urllib.request as r; r.urlopen('http://{ADDRESS}/health', timeout=5)"
    return inside(home, sys.executable, "-c", fetch).returncode == 0


def test_one_in_emergency_mode_says_so_on_its_serial_port(home: Path, bmc: Bmc) -> None:
    boots = pop.boots(home)[HOST]
    # It stops the agent that tells whether the command has ended.
    with suppress(pop.LabError):
        on(home, "systemctl", "--no-block", "emergency")
    wait_until(lambda: "emergency mode" in why_silent(home), "emergency mode")
    bmc.reset("ForceRestart")
    wait_for_running(home, boots + 1)


def why_silent(home: Path) -> str:
    try:
        return on(home, "true")
    except pop.LabError as error:
        return str(error)


def test_its_bmc_resets_it_and_switches_it_off_and_on(home: Path, bmc: Bmc) -> None:
    boots = pop.boots(home)[HOST]
    on(home, "sh", "-c", "echo kept >/var/lib/kept && sync /var/lib/kept")
    bmc.reset("ForceRestart")
    wait_for_running(home, boots + 1)
    bmc.reset("ForceOff")
    wait_until(lambda: power_state(home) == "off", "off")
    with pytest.raises(pop.LabError, match="is off"):
        on(home, "true")
    bmc.reset("On")
    wait_for_running(home, boots + 2)
    assert on(home, "cat", "/var/lib/kept") == "kept"


def test_a_graceful_restart_shuts_systemd_down(home: Path, bmc: Bmc) -> None:
    boots = pop.boots(home)[HOST]
    unit = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n"
    unit += "ExecStop=/bin/sh -c 'echo ended >/var/lib/ended'\n"
    on(home, "sh", "-c", "cat >/run/systemd/system/tried.service", stdin=unit.encode())
    on(home, "systemctl", "start", "tried")
    bmc.reset("GracefulRestart")
    wait_for_running(home, boots + 1)
    assert on(home, "cat", "/var/lib/ended") == "ended"


def test_an_nmi_panics_it_and_it_comes_back(home: Path, bmc: Bmc) -> None:
    boots = pop.boots(home)[HOST]
    bmc.reset("Nmi")
    wait_for_running(home, boots + 1)
    assert "The operating system stopped: kernel panic." in bmc.events
    console = (home / "lab/console/e000.log").read_text(errors="replace")
    assert "Kernel panic - not syncing: NMI" in console


def test_the_watchdog_resets_one_that_hangs(home: Path, bmc: Bmc) -> None:
    boots = pop.boots(home)[HOST]
    # Once opened it waits for its keeper, and the kernel says that it was left alone.
    on(home, "sh", "-c", "exec 3>/dev/watchdog; echo begun >&3")
    wait_for_running(home, boots + 1)
    assert "The watchdog timer expired, and reset the system." in bmc.events


def test_the_lab_leaves_nothing(home: Path) -> None:
    """The last one, since it takes the lab down."""
    machines = str(home / "lab/machines")
    assert machines in "".join(directories_of_processes())
    assert pop.down(home)
    assert machines not in "".join(directories_of_processes())
    assert not (home / "lab/machines").exists()


def directories_of_processes() -> Iterator[str]:
    """Where each process of this machine is: QEMU runs in the directory of its machine."""
    for path in Path("/proc").glob("[0-9]*/cwd"):
        try:
            yield str(path.readlink())
        except OSError:
            continue
