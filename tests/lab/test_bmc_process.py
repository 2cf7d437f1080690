# SPDX-License-Identifier: Apache-2.0
"""The lab's BMC process: driven by lines, silent about secrets, gone with its input."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab.bmc import Machine
from lab.bmc.personality import PERSONALITIES
from lab.bmc.server import IDLE_SECONDS
from tests.support import ROOT
from tests.support.lab_bmc import PASSWORD, Bmc, certificates

pytestmark = pytest.mark.processes

HOSTS = 8


class Running:
    def __init__(self, directory: Path, **options: Any) -> None:
        self.files = certificates(directory)
        password = directory / "password"
        password.write_text(PASSWORD + "\n")
        self.hosts = {f"e{i:03d}": PERSONALITIES[i % 4] for i in range(HOSTS)}
        document = {
            "certificate": str(self.files.certificate),
            "key": str(self.files.key),
            "password_file": str(password),
            "hosts": [
                {"name": name, "personality": personality, "address": "127.0.0.1", "port": 0}
                for name, personality in self.hosts.items()
            ],
            **options,
        }
        command = [sys.executable, "-E", "-s", "-S", "-m", "lab.bmc.process"]
        self.process = subprocess.Popen(
            [*command, json.dumps(document)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.urls = self.line()["ready"]

    def line(self) -> Any:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def tell(self, text: str) -> Any:
        assert self.process.stdin
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        return self.line()

    def do(self, verb: str, host: str | None = None, **arguments: Any) -> Any:
        request = {"do": verb, **({"host": host} if host else {}), **arguments}
        return self.tell(json.dumps(request))

    @contextmanager
    def bmc(self, host: str) -> Iterator[Bmc]:
        """A client of a host's BMC; its machine only says which vendor it is."""
        bmc = Bmc(Machine(host, self.hosts[host]), self.urls[host], self.files.authority)
        bmc.log_in()
        yield bmc
        bmc.client.close()

    def end(self) -> int:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait(IDLE_SECONDS - 5)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("bmcs"))
    yield running
    assert running.end() == 0


def test_each_host_has_a_bmc_of_its_own_and_what_arrived_is_counted(lab: Running) -> None:
    before = lab.do("status", "e007")
    for host in ("e000", "e001", "e002", "e003", "e007"):
        with lab.bmc(host) as bmc:
            assert bmc.get("system")["HostName"] == host
            after = lab.do("status", host)
    status = lab.do("status")
    assert PASSWORD not in json.dumps(status)
    assert PASSWORD not in " ".join(map(str, lab.process.args))  # type: ignore[arg-type]
    assert {name: one["personality"] for name, one in status["hosts"].items()} == lab.hosts
    assert after["requests"] == {"POST": 1, "GET": 1}
    assert (before["connections"], after["connections"]) == (0, 1)
    assert (before["sessions"], after["sessions"]) == (0, 1)


def test_faults_are_broken_and_healed_while_it_runs(lab: Running) -> None:
    with lab.bmc("e006") as bmc:
        assert lab.do("fault", "e006", fault="busy", answers=1) == {"ok": True}
        assert [bmc.ask("GET", "system").status_code for _ in range(2)] == [503, 200]
    lab.do("fault", "e006", fault="stays_down")
    lab.do("fault", "e006", fault="no_registry")
    lab.do("begin_post", "e006")
    assert lab.do("end_post", "e006") == {"ok": True, "snoop_mode": "early", "up": False}
    lab.do("heal", "e006", fault="stays_down")
    assert lab.do("status", "e006")["faults"] == ["no_registry"]
    assert lab.do("end_post", "e006")["up"]
    lab.do("heal", "e006")
    assert lab.do("status", "e006")["faults"] == []


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "7", '{"do": "dance"}', '{"do": "status", "host": "e999"}']
    + ['{"do": "fault", "host": "e000", "fault": "grumpy"}', '{"do": "power", "host": "e000"}'],
)
def test_a_bad_line_gets_one_error(lab: Running, text: str) -> None:
    answer = lab.tell(text)
    assert answer["ok"] is False
    assert "\n" not in answer["error"]


def test_it_ends_with_its_input_whoever_is_still_connected(tmp_path: Path) -> None:
    running = Running(tmp_path, driven=False, post_seconds=0.0)
    with running.bmc("e000"):
        assert running.end() == 0


def test_one_socket_may_listen_for_all(tmp_path: Path) -> None:
    """As in a network namespace of their own: the address tells the machine."""
    running = Running(tmp_path, listen="127.0.0.1")
    assert set(running.urls) == set(running.hosts)
    assert running.end() == 0
