# SPDX-License-Identifier: Apache-2.0
"""Many BMCs of the lab on loopback, in one process of their own that counts what arrives."""

from __future__ import annotations

import contextlib
import json
import secrets
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench._served import ROOT, cpu_seconds_of, end
from bench._table import BenchError
from lab.bmc.certificates import make_certificates

USER = "edgetune"
HOME = {
    "dell": {"SnoopMode": "HomeSnoop"},
    "lenovo": {"Processors_SnoopPreference": "Home Snoop"},
    "ami": {"QPIS00A": "Home Snoop"},
}
"""Home Snoop as each vendor has it; without HPE, as sushy does not find the BIOS of a Gen9."""

MAX_BMCS = 2000
POST_SECONDS = 600.0


@dataclass(frozen=True)
class Target:
    """One BMC: the name of its host, its vendor, where it is."""

    name: str
    vendor: str
    url: str


@dataclass(frozen=True)
class Traffic:
    """What came to some BMCs, from all clients so far, and the sessions open now."""

    requests: int
    connections: int
    sessions: int

    def since(self, before: Traffic) -> Traffic:
        """What came after that."""
        return Traffic(*(now - was for now, was in zip(vars(self).values(), vars(before).values())))


class Site:
    """The running BMCs, and how to log in at them."""

    def __init__(self, process: subprocess.Popen[str], authority: Path, password: str) -> None:
        assert process.stdin and process.stdout
        self._asks, self._answers = process.stdin, process.stdout
        self.cpu_seconds = partial(cpu_seconds_of, process.pid)
        self.authority, self.password = authority, password
        self.urls: Mapping[str, str] = self._read("ready")["ready"]

    def stage(self, target: Target) -> None:
        """Leave Home Snoop pending."""
        self._do("stage", target.name, attributes=HOME[target.vendor])

    def answer_late(self, target: Target) -> None:
        """From now on it does what it is asked, and does not say so."""
        self._do("fault", target.name, fault="late")

    def answer_slowly(self, target: Target, seconds: float, in_turn: bool = False) -> None:
        """From now on each answer takes so long; ``in_turn``: one after the other."""
        self._do("slow", target.name, seconds=seconds, in_turn=in_turn)

    def arrived(self, target: Target) -> Counter[str]:
        """How many requests of each method, and how many resets ("resets")."""
        status = self._do("status", target.name)
        return Counter(status["requests"], resets=len(status["resets"]))

    def traffic(self) -> Traffic:
        """Of all BMCs together."""
        hosts = self._do("status")["hosts"].values()
        return Traffic(
            sum(sum(host["requests"].values()) for host in hosts),
            sum(host["connections"] for host in hosts),
            sum(host["sessions"] for host in hosts),
        )

    def _do(self, verb: str, name: str | None = None, **arguments: Any) -> dict[str, Any]:
        request = {"do": verb, **({"host": name} if name else {}), **arguments}
        print(json.dumps(request), file=self._asks, flush=True)
        answer = self._read("ok")
        if not answer["ok"]:
            raise BenchError(f"the BMCs: {answer['error']}")
        return answer

    def _read(self, key: str) -> dict[str, Any]:
        """The next line that has this; the lines in between tell of resets."""
        for line in self._answers:
            said: dict[str, Any] = json.loads(line)
            if key in said:
                return said
        raise BenchError("the process of the BMCs has ended")


@contextlib.contextmanager
def serve(vendors: Mapping[str, str]) -> Iterator[tuple[Site, list[Target]]]:
    """A BMC for each name, of its vendor, while the context lasts; they boot for ten minutes."""
    with tempfile.TemporaryDirectory(prefix="edgetune-bench-") as name:
        folder, password = Path(name), secrets.token_urlsafe(24)
        process = _start(folder, password, vendors)
        try:
            site = Site(process, folder / "ca.pem", password)
            yield site, [Target(name, vendors[name], url) for name, url in site.urls.items()]
        finally:
            end(process)


def _start(folder: Path, password: str, vendors: Mapping[str, str]) -> subprocess.Popen[str]:
    files = make_certificates(folder, ["127.0.0.1"])
    secret = folder / "password"
    secret.touch(mode=0o600)
    secret.write_text(password)
    document = {
        "certificate": str(files.certificate),
        "key": str(files.key),
        "username": USER,
        "password_file": str(secret),
        "post_seconds": POST_SECONDS,
        "driven": False,
        "hosts": [
            {"name": name, "personality": vendor, "address": "127.0.0.1", "port": 0}
            for name, vendor in vendors.items()
        ],
    }
    return subprocess.Popen(
        [sys.executable, "-E", "-s", "-S", "-m", "lab.bmc.process", json.dumps(document)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for the client; this one ends with its standard input
    )
