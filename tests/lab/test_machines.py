# SPDX-License-Identifier: Apache-2.0
"""Virtual machines of a lab, as far as that is seen without one (tests/machine has one)."""

from __future__ import annotations

import json
import socket
import tarfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from lab.machines import console
from lab.machines.machine import Card, Machine, Running, qemu
from lab.machines.monitor import Monitor
from lab.pop.files import write_inventory
from lab.pop.layout import LabError, Layout, addresses, sites
from lab.pop.requirements import missing_packages

# Recorded from QEMU 7.2.22 of Debian 12.
GREETING = (
    b'{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package":'
    b' "Debian 1:7.2+dfsg-7+deb12u18+b3"}, "capabilities": ["oob"]}}\r\n'
)
SHUTDOWN = (
    b'{"timestamp": {"seconds": 1795646022, "microseconds": 265515}, "event": "SHUTDOWN",'
    b' "data": {"guest": false, "reason": "host-qmp-system-reset"}}\r\n'
)


def done(number: int) -> bytes:
    return b'{"return": {}, "id": %d}\r\n' % number


DONE = done(1)


@pytest.fixture
def ends() -> Iterator[tuple[Monitor, socket.socket]]:
    own, of_qemu = socket.socketpair()
    with own, of_qemu:
        yield Monitor(own), of_qemu


Ends = tuple[Monitor, socket.socket]


def test_an_event_before_an_answer_is_kept_and_no_answer_and_a_refusal_are_errors(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor, qemu = ends
    qemu.sendall(GREETING + DONE + SHUTDOWN + done(2))
    assert monitor.execute("system_reset") == {}
    (event,) = monitor.take_events()
    assert event["data"]["reason"] == "host-qmp-system-reset"
    assert monitor.take_events() == []
    monkeypatch.setattr("lab.machines.monitor.ANSWER_SECONDS", 0.05)
    with pytest.raises(OSError, match="did not answer system_reset"):
        monitor.execute("system_reset")
    why = {"class": "CommandNotFound", "desc": "The command x has not been found"}
    qemu.sendall(json.dumps({"id": 4, "error": why}).encode() + b"\r\n")
    with pytest.raises(OSError, match="QEMU refuses x: The command x has not been found"):
        monitor.execute("x")


@pytest.mark.parametrize(
    ("guest", "reason", "returns"),
    [
        ("true", "guest-reset", True),
        ("false", "host-qmp-system-reset", True),
        ("true", "guest-shutdown", False),
        ("false", "host-qmp-quit", False),
    ],
)
def test_why_qemu_ended_says_whether_the_machine_boots_again(
    ends: Ends, guest: str, reason: str, returns: bool
) -> None:
    monitor, qemu = ends
    running = Running(SimpleNamespace(pid=7), monitor)
    data = f'{{"guest": {guest}, "reason": "{reason}"}}'
    qemu.sendall(GREETING + DONE + f'{{"event": "SHUTDOWN", "data": {data}}}\r\n'.encode())
    assert running.happened() == []
    assert running.rebooted is returns


class Guest:
    """What QEMU's agent says, after the end of an answer to a conversation that broke off."""

    def __init__(self, place: Path, *answers: dict[str, object]) -> None:
        self.asked: list[dict[str, object]] = []
        self._answers = answers
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(place))
        self._listener.listen(1)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection, connection.makefile("rb") as lines:
            sync = json.loads(next(lines).lstrip(b"\xff"))
            connection.sendall(b'{"return": {"pid": 7}}\n')
            connection.sendall(b'\xff{"return": %d}\n' % sync["arguments"]["id"])
            for answer in self._answers:
                self.asked.append(json.loads(next(lines)))
                connection.sendall(json.dumps(answer).encode() + b"\n")

    def close(self) -> None:
        self._thread.join()
        self._listener.close()


def test_a_late_answer_of_an_earlier_conversation_is_passed_over(tmp_path: Path) -> None:
    ended = {"exited": True, "exitcode": 3, "out-data": "aGVsbG8K", "err-data": "b2gK"}
    with closing(Guest(tmp_path / "agent", {"return": {"pid": 512}}, {"return": ended})) as guest:
        done = console.run(tmp_path / "agent", ["echo", "hello"], timeout=5)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"hello\n", b"oh\n")
    started, status = guest.asked
    assert started["arguments"]["arg"] == ["--signal=KILL", "5", "echo", "hello"]  # type: ignore[index]
    assert status["arguments"] == {"pid": 512}


def test_a_machine_that_goes_down_is_no_command_that_succeeded(tmp_path: Path) -> None:
    with closing(Guest(tmp_path / "agent", {"return": {"pid": 512}})), pytest.raises(OSError):
        console.run(tmp_path / "agent", ["true"], timeout=5)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    cards = Card("tap0", "02:77:00:00:00:02"), Card("tap1", "02:78:00:00:00:02")
    return Machine(tmp_path / "e002", "e002", "a-uuid", "a-serial", *cards, tmp_path / "console")


def test_no_secret_and_no_card_of_another_machine_is_in_its_command(machine: Machine) -> None:
    words = qemu(machine, 9)
    assert "tap0" in " ".join(words) and "02:78:00:00:00:02" in " ".join(words)
    assert words[words.index("-uuid") + 1] == "a-uuid"
    assert "-no-reboot" in words  # else a reboot would be none of the lab's
    assert not any("PRIVATE" in word for word in words)


@pytest.mark.processes
@pytest.mark.skipif(bool(missing_packages(machines=True)), reason="machines need their packages")
def test_its_identity_is_for_nobody_else_to_read(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(b"\0" * 512)
    machine.make(tmp_path / "image", {"etc/ssh/key": (0o600, "SECRET"), "etc/name": (0o644, "e")})
    (place,) = machine.directory.glob("*.tar")
    assert place.stat().st_mode & 0o077 == 0 and machine.directory.stat().st_mode & 0o077 == 0
    with tarfile.open(place) as archive:
        modes = {entry.name: entry.mode for entry in archive}
    assert modes == {"etc/ssh/key": 0o600, "etc/name": 0o644}


def test_the_last_hosts_are_the_machines_and_a_stratum_of_their_own(tmp_path: Path) -> None:
    own = addresses(4, machines=2)
    assert [host.is_machine for host in own] == [False, False, True, True]
    assert len({mac for host in own for mac in (host.mac, host.back_mac, host.wire_mac)}) == 12
    layout = Layout(tmp_path)
    layout.lab.mkdir()
    write_inventory(layout, sites(own, 1))
    pop = yaml.safe_load(layout.inventory.read_text())["pops"]["lab1"]
    hardware = {name: host["hardware"] for name, host in pop["hosts"].items()}
    assert hardware == {"e000": "lab", "e001": "lab", "e002": "qemu", "e003": "qemu"}


@pytest.mark.parametrize(("hosts", "machines"), [(2, 3), (2, -1)])
def test_there_are_no_more_machines_than_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts: int, machines: int
) -> None:
    from lab.pop import control

    monkeypatch.setattr(control, "missing_requirements", lambda *given: [])
    with pytest.raises(LabError, match="cannot be machines"):
        control.up(tmp_path, hosts=hosts, machines=machines)
