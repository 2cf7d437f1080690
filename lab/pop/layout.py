# SPDX-License-Identifier: Apache-2.0
"""Names and addresses of the PoP, and the files it keeps under HOME/lab."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

CONTROLLER = "10.77.0.2"
LOAD_BALANCER = "10.77.0.3"
SECOND_BALANCER = "10.77.0.6"  # of a lab with --balancers 2
CLIENT = "10.77.0.4"
BMC = "10.77.0.5"
ANYCAST = "10.79.0.1"  # announced by each host of a lab with --anycast
FIRST_PORT = 80  # of the load balancer, for the first PoP
PROMETHEUS = "127.0.0.1:9090"  # where the controller is
ALERTMANAGER = "127.0.0.1:9093"
EXPORT = "127.0.0.1:9464"  # of `edgetune serve --metrics 9464`
EXPORTER_PORT = 9100  # on each host
BACK_CONTROLLER = "10.78.0.2"  # in the second network, which only machines have
# As Debian's node_exporter has it; the same in image/usr/local/lib/lab/run_exporter.
TEXTFILES = "/var/lib/prometheus/node-exporter"
MAX_HOSTS = 1000
MAX_POPS = 9
PERSONALITIES = ("dell", "hpe", "lenovo", "ami")  # of lab.bmc
NAMESPACED, VIRTUAL = "lab", "qemu"  # hardware, in the inventory: what a host is made of


_Host = TypeVar("_Host")


FAILED, INPUT, REFUSED = "failed", "input", "refused"
"""Reasons of a LabError, words of ``lab.runner.ending``."""


class LabError(Exception):
    """The lab cannot do what was asked; the message is one line for a person.

    ``reason`` says whose turn it is: INPUT where that cannot be asked for, REFUSED where the lab is
    not as that needs it, FAILED where it tried.
    """

    def __init__(self, message: str, reason: str = FAILED) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Address:
    """Where one host is found; the MAC stays the same over its reboots. `bmc` is an IP, too, and so
    is `back`, which a machine has at its second card. `hardware` is NAMESPACED or VIRTUAL.
    """

    name: str
    ip: str
    mac: str
    rack: str
    bmc: str
    personality: str
    hardware: str = NAMESPACED

    @property
    def is_machine(self) -> bool:
        return self.hardware == VIRTUAL

    @property
    def back(self) -> str:
        return self.ip.replace("10.77.", "10.78.", 1)

    @property
    def back_mac(self) -> str:
        return self.mac.replace("02:77:", "02:78:", 1)

    @property
    def wire_mac(self) -> str:
        """Of the cable's end where a machine's cards are plugged in."""
        return self.mac.replace("02:77:", "02:79:", 1)


def addresses(count: int, machines: int = 0) -> list[Address]:
    """e000 is 10.77.1.1, e001 10.77.1.2 and so on, 250 to a /24, their BMCs 10.77.129.1 and so on;
    racks r1 and r2 take turns, and so do the vendors of BMCs. The last ones are the `machines`.
    """
    return [
        Address(
            name=f"e{index:03d}",
            ip=f"10.77.{1 + index // 250}.{1 + index % 250}",
            mac=f"02:77:00:00:{index >> 8:02x}:{index & 255:02x}",
            rack=f"r{1 + index % 2}",
            bmc=f"10.77.{129 + index // 250}.{1 + index % 250}",
            personality=PERSONALITIES[index % len(PERSONALITIES)],
            hardware=NAMESPACED if index < count - machines else VIRTUAL,
        )
        for index in range(count)
    ]


@dataclass(frozen=True)
class Site:
    """One PoP of the lab: HAProxy takes its requests at `port`, for its hosts in `backend`."""

    name: str
    backend: str
    port: int
    hosts: tuple[Address, ...]


def shared(hosts: Sequence[_Host], pops: int) -> dict[str, tuple[_Host, ...]]:
    """{PoP: its hosts} for lab1, lab2 and so on, all of one size; LabError when there is none."""
    if not 1 <= pops <= MAX_POPS or len(hosts) % pops:
        raise LabError(
            f"{pops} PoPs (1 to {MAX_POPS}) cannot share {len(hosts)} hosts evenly", INPUT
        )
    size = len(hosts) // pops
    return {
        f"lab{index + 1}": tuple(hosts[index * size : (index + 1) * size]) for index in range(pops)
    }


def sites(hosts: Sequence[Address], pops: int) -> list[Site]:
    """lab1 has backend edges at port 80, lab2 edges2 at 81 and so on; LabError as `shared`."""
    return [
        Site(name, f"edges{index + 1}" if index else "edges", FIRST_PORT + index, own)
        for index, (name, own) in enumerate(shared(hosts, pops).items())
    ]


@dataclass(frozen=True)
class Layout:
    """Paths of a lab; `home` is absolute (EDGETUNE_HOME)."""

    home: Path

    @property
    def lab(self) -> Path:
        return self.home / "lab"

    @property
    def lock(self) -> Path:
        """Held with flock() by everything that belongs to the running lab."""
        return self.lab / "lock"

    @property
    def socket(self) -> Path:
        return self.lab / "control.sock"

    @property
    def disks(self) -> Path:
        """Empty when seen from outside: a tmpfs lies on it in the supervisor's mount namespace."""
        return self.lab / "disks"

    @property
    def machines(self) -> Path:
        """A directory for each machine, with its disk and its keys."""
        return self.lab / "machines"

    @property
    def log(self) -> Path:
        return self.lab / "supervisor.log"

    @property
    def key(self) -> Path:
        return self.lab / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.lab / "known_hosts"

    @property
    def bmc_ca(self) -> Path:
        """What a client of the BMCs trusts."""
        return self.lab / "ca.pem"

    @property
    def bmc_certificate(self) -> Path:
        return self.lab / "bmc.pem"

    @property
    def bmc_key(self) -> Path:
        return self.lab / "bmc.key"

    @property
    def bmc_credentials(self) -> Path:
        return self.lab / "bmc-credentials.yaml"

    @property
    def bmc_password(self) -> Path:
        """The same password as in the credentials, for the BMCs themselves."""
        return self.lab / "bmc-password"

    @property
    def secrets(self) -> list[Path]:
        """The keys to the lab, which are gone when it is."""
        keys = [self.key, self.key.with_suffix(".pub")]
        bmc = [self.bmc_ca, self.bmc_certificate, self.bmc_key]
        return [*keys, *bmc, self.bmc_credentials, self.bmc_password]

    def forget(self) -> None:
        """Remove what says that a lab is there, and the keys to it."""
        for path in (self.state, self.socket, *self.secrets):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.machines, ignore_errors=True)

    @property
    def inventory(self) -> Path:
        return self.lab / "inventory.yaml"

    @property
    def campaigns(self) -> Path:
        return self.lab / "campaigns"

    @property
    def state(self) -> Path:
        return self.lab / "state.json"

    @property
    def client(self) -> Path:
        return self.lab / "client.json"

    @property
    def client_lost(self) -> Path:
        return self.lab / "client-lost.jsonl"

    @property
    def client_unready(self) -> Path:
        return self.lab / "client-unready.jsonl"

    @property
    def configuration(self) -> Path:
        return self.home / "edgetune.yaml"

    def console(self, host: str) -> Path:
        return self.lab / "console" / f"{host}.log"
