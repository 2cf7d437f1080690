# SPDX-License-Identifier: Apache-2.0
"""Faults of a simulated BMC, as far as no test of the client in tests/lib/bmc sees them."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from lab.bmc import FAULTS
from lab.bmc.certificates import Certificates
from lab.bmc.personality import PERSONALITIES
from lab.bmc.server import IDLE_SECONDS
from tests.support import ROOT
from tests.support.lab_bmc import Bmc, certificates, message_ids, running
from tests.support.virtual_clock import VirtualClock

PATIENCE = 0.3  # s, of a client in these tests


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(tmp_path_factory.mktemp("bmc"))


@pytest.fixture
def bmc(files: Certificates) -> Iterator[Bmc]:
    with running(files, "dell") as bmc:
        yield bmc


def test_a_late_answer_comes_in_the_end(bmc: Bmc) -> None:
    bmc.machine.faults.add("late")
    bmc.machine.late_seconds = PATIENCE
    began = time.monotonic()
    assert bmc.reset().ok
    assert time.monotonic() - began >= PATIENCE


def test_what_is_pending_stays_when_taking_it_back_is_ignored(bmc: Bmc) -> None:
    job = bmc.patch(bmc.home).headers["Location"].rpartition("/")[2]
    bmc.machine.faults.add("ignores")
    assert bmc.ask("DELETE", bmc.machine.personality.paths["jobs"] + f"/{job}").ok
    assert bmc.machine.pending == bmc.home


def test_a_busy_bmc_is_well_after_some_answers(bmc: Bmc) -> None:
    bmc.machine.busy_answers = 2
    bmc.machine.faults.add("busy")
    answers = [bmc.ask("GET", "system") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [503, 503, 200]
    assert answers[0].headers["Retry-After"] == "1"
    assert bmc.machine.faults == set()


@pytest.mark.parametrize(
    ("personality", "identity"),
    [("dell", "IDRAC.1.6.SYS518"), ("hpe", "iLO.0.10.InvalidOperationForSystemState")],
)
def test_in_post_no_change_is_taken(files: Certificates, personality: str, identity: str) -> None:
    with running(files, personality) as bmc:
        bmc.machine.faults.add("in_post")
        for answer in (bmc.patch(bmc.home), bmc.reset()):
            assert message_ids(answer) == [identity]
        assert (bmc.machine.pending, bmc.machine.phase) == ({}, "os")
        assert bmc.get("bios")


@pytest.mark.parametrize("personality", PERSONALITIES)
def test_hostile_text_is_where_text_is_shown(files: Certificates, personality: str) -> None:
    with running(files, personality) as bmc:
        bmc.patch(bmc.home)
        bmc.reset()
        bmc.machine.faults.add("hostile")
        system = bmc.get("system")
        shown = [system["Model"], system["BiosVersion"]]
        shown += [entry["Message"] for entry in bmc.get("entries")["Members"]]
        assert len(shown) == 4
        for text in shown:
            assert "\x1b[" in text and "<% ctx() %>" in text and "\n" in text and len(text) > 5000
        assert bmc.home.items() <= bmc.values().items()


def test_a_deaf_bmc_takes_connections_and_hears_when_it_is_healed(bmc: Bmc) -> None:
    bmc.machine.faults.add("deaf")
    with pytest.raises(requests.exceptions.Timeout):  # on the connection that is open
        bmc.ask("GET", "system", timeout=PATIENCE)
    bmc.machine.faults.clear()
    assert bmc.ask("GET", "system").ok


@pytest.mark.parametrize("driven", [False, True])
def test_a_machine_that_stays_down_never_gets_through_post(
    files: Certificates, driven: bool
) -> None:
    clock = VirtualClock(look=0.0)
    with running(files, "dell", clock=clock.monotonic, driven=driven) as bmc:
        bmc.machine.faults.add("stays_down")
        bmc.patch(bmc.home)
        bmc.reset()
        bmc.machine.begin_post()
        clock.wait(1200)
        if driven:
            assert not bmc.machine.end_post()
            (entry,) = bmc.get("entries")["Members"]
            assert entry["Severity"] == "Critical"
        system = bmc.get("system")
        assert system["BootProgress"]["LastState"] == "MemoryInitializationStarted"
        assert system["Status"]["Health"] == "Critical"
        assert bmc.machine.snoop_mode == "early"
        bmc.machine.faults.clear()
        bmc.machine.end_post()
        assert bmc.machine.snoop_mode == "home"


def test_a_client_that_drips_harms_nobody_else(bmc: Bmc) -> None:
    port = int(bmc.url.rpartition(":")[2])
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    idle[0].sendall(b"\x16")
    # Sooner than the server gives those up that are idle.
    assert bmc.ask("GET", "system", timeout=IDLE_SECONDS - 5).ok
    for connection in idle:
        connection.close()


def test_many_at_once_are_one_after_another(bmc: Bmc) -> None:
    """Of many clients that all set something one gets the job."""
    body = {"Attributes": bmc.home, "@Redfish.SettingsApplyTime": {"ApplyTime": "OnReset"}}
    path = bmc.url + bmc.machine.personality.paths["settings"]
    headers = {"X-Auth-Token": str(bmc.client.headers["X-Auth-Token"])}

    def set_home(_: int) -> int:
        with requests.Session() as client:
            client.trust_env, client.verify = False, str(bmc.authority)
            return client.patch(path, json=body, headers=headers, timeout=60).status_code

    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(set_home, range(8)))
    assert sorted(statuses) == [202] + [400] * 7
    assert len(bmc.machine.jobs) == 1


def test_every_fault_is_tested_and_told_of() -> None:
    page = (ROOT / "docs" / "lab-bmc.md").read_text()
    tests = Path(__file__).read_text() + (ROOT / "tests/lib/bmc/test_bios.py").read_text()
    tests += (ROOT / "tests/lib/bmc/test_bmcs.py").read_text()
    assert [name for name in FAULTS if f'"{name}"' not in tests] == []
    assert [name for name in FAULTS if f"| `{name}` |" not in page] == []
