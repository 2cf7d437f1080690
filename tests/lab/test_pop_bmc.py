# SPDX-License-Identifier: Apache-2.0
"""BMCs in the lab of namespaces: they reset real hosts, and their BIOS decides what hosts drop."""

from __future__ import annotations

import os
import signal
import stat
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from edgetune.site.config import read_config
from lab import cli, pop
from lab.pop import drops
from lab.pop.layout import Layout
from tests.lab.test_pop import family, is_alive, is_serving, state_of
from tests.support.lab_host_bmc import Bmc
from tests.support.practice import needs_lab
from tests.support.waiting import wait_until

pytestmark = needs_lab
HOSTS = ("e000", "e001", "e002", "e003")
DMI = Path("/sys/class/dmi/id")
BOOT_ID = "/proc/sys/kernel/random/boot_id"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("lab")
    pop.up(home, hosts=len(HOSTS))
    yield home
    pop.down(home)


@pytest.fixture(scope="module")
def ask(running: Path) -> Iterator[Callable[..., Any]]:
    """Calls a function in a thread that has moved into the controller's namespace."""
    with ThreadPoolExecutor(1, initializer=pop.enter_controller, initargs=[running]) as thread:
        yield lambda function, *words, **more: thread.submit(function, *words, **more).result(60)


@pytest.fixture
def home(running: Path) -> Iterator[Path]:
    wait_until(lambda: all(is_serving(running, host) for host in HOSTS), "all in service")
    yield running
    pop.heal(running)


@pytest.fixture
def bmc(home: Path, ask: Callable[..., Any]) -> Callable[[str], Bmc]:
    return lambda host: Bmc(home, host, ask)


def of_bmc(home: Path, host: str) -> dict[str, Any]:
    state = pop.status(home)
    assert state is not None
    return next(dict(item["bmc"]) for item in state["hosts"] if item["name"] == host)


def read(home: Path, host: str, path: str) -> str:
    try:
        return pop.console(home, host, ["cat", path]).strip()
    except pop.LabError:
        return ""


def wait_for_boot(home: Path, host: str, boots: int) -> None:
    def is_up() -> bool:
        return pop.boots(home)[host] == boots and read(home, host, BOOT_ID) != ""

    wait_until(is_up, f"boot {boots} of {host}")


def words_of(pid: int) -> bytes:
    """A process's arguments, empty once it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def cpu_ticks(pid: int) -> int:
    """Of which a second has a hundred."""
    return int(Path(f"/proc/{pid}/stat").read_text().split()[13])


def test_up_says_where_bmcs_are_and_what_verifies_them(
    home: Path, bmc: Callable[[str], Bmc], ask: Callable[..., Any]
) -> None:
    config = read_config(yaml.safe_load((home / "edgetune.yaml").read_text()))
    assert stat.S_IMODE(Path(config.bmc_credentials_file).stat().st_mode) == 0o600
    assert [of_bmc(home, host)["personality"] for host in HOSTS] == ["dell", "hpe", "lenovo", "ami"]
    systems = {host: bmc(host).system["UUID"] for host in HOSTS}
    assert len(set(systems.values())) == len(HOSTS)
    if DMI.exists():
        assert {host: read(home, host, f"{DMI}/product_uuid") for host in HOSTS} == systems
    stranger = "https://10.77.129.1/redfish/v1/Systems"
    refused = ask(requests.get, stranger, verify=config.bmc_ca_file, auth=("edgetune", "wrong"))
    assert refused.status_code == 401
    with pytest.raises(requests.exceptions.SSLError):
        ask(requests.get, stranger)


def test_resets_reboot_hosts_and_apply_what_is_pending(
    home: Path, bmc: Callable[[str], Bmc]
) -> None:
    before = {host: read(home, host, BOOT_ID) for host in HOSTS}
    bmc("e000").set(SnoopMode="HomeSnoop")
    assert of_bmc(home, "e000")["snoop_mode"] == "early"
    bmc("e000").reset("GracefulRestart")
    bmc("e001").reset("ForceRestart")
    wait_for_boot(home, "e001", 2)
    wait_for_boot(home, "e000", 2)
    assert [host for host in HOSTS if read(home, host, BOOT_ID) != before[host]] == ["e000", "e001"]
    assert [of_bmc(home, host)["snoop_mode"] for host in HOSTS[:2]] == ["home", "early"]
    assert bmc("e000").system["PowerState"] == "On"


def test_kernel_that_would_load_a_module_has_no_drop_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    symbols = tmp_path / "kallsyms"
    monkeypatch.setattr(drops, "SYMBOLS", symbols)
    assert drops.has_drops() is False
    symbols.write_text("0 t htb_enqueue\t[sch_htb]\n0 t u32_classify_other\n")
    assert drops.has_drops() is False
    symbols.write_text("0 t htb_enqueue\t[sch_htb]\n0 T u32_classify\n")
    assert drops.has_drops() is True


def test_fault_of_a_bmc_and_its_end(
    home: Path, bmc: Callable[[str], Bmc], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGETUNE_HOME", str(home))
    assert cli.main(["lab", "fault", "bmc_stays_down", "e003"]) == 0
    assert of_bmc(home, "e003")["faults"] == ["stays_down"]
    bmc("e003").reset("ForceRestart")
    wait_until(lambda: state_of(home, "e003") == "off", "a host that does not come back")
    system = bmc("e003").system
    assert system["PowerState"] == "On"
    assert system["BootProgress"]["LastState"] != "OSRunning"
    assert cli.main(["lab", "fault", "bmc_dances", "e003"]) == 2
    assert cli.main(["lab", "heal"]) == 0
    wait_for_boot(home, "e003", 2)
    assert of_bmc(home, "e003")["faults"] == []


def test_hosts_boot_without_their_bmcs_and_down_leaves_nothing(running: Path) -> None:
    home = running
    state = pop.status(home)
    assert state is not None
    members = family(state["pid"])
    simulator = next(pid for pid, _ in members if b"lab.bmc.process" in words_of(pid))
    os.kill(simulator, signal.SIGKILL)
    pop.power(home, "e001", "reset")
    wait_for_boot(home, "e001", 3)
    assert pop.status(home)["bmcs"] is False  # type: ignore[index]
    began, used = time.monotonic(), cpu_ticks(state["pid"])
    time.sleep(0.3)
    assert cpu_ticks(state["pid"]) - used < 50 * (time.monotonic() - began)
    members = family(state["pid"])
    pop.down(home)
    assert not [member for member in members if is_alive(member)]
    assert [path.name for path in Layout(home).secrets if path.exists()] == []
