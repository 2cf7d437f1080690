# SPDX-License-Identifier: Apache-2.0
"""Beside what others wrote: sushy-emulator, a BMC (of OpenStack)."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgetune.net.result import HostResult
from lab.bmc.certificates import make_certificates
from tests.support import FIXTURES
from tests.support.bmc_site import bmcs, host, setting

TURBO = {"ProcTurboMode": "Enabled"}


class Emulator:
    """A sushy-emulator with ``sushy-emulator.conf``, over TLS, on a free port."""

    def __init__(self, directory: Path) -> None:
        self.certificates = make_certificates(directory, ["127.0.0.1"])
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        config = (FIXTURES / "sushy-emulator.conf").read_text(encoding="utf-8")
        own = {
            "SUSHY_EMULATOR_SSL_CERT": str(self.certificates.certificate),
            "SUSHY_EMULATOR_SSL_KEY": str(self.certificates.key),
            "SUSHY_EMULATOR_STATE_DIR": str(directory),
            "SUSHY_EMULATOR_LISTEN_IP": "127.0.0.1",
            "SUSHY_EMULATOR_LISTEN_PORT": self.port,
        }
        lines = [f"{name} = {value!r}" for name, value in own.items()]
        place = directory / "emulator.conf"
        place.write_text("\n".join([*lines, config]), encoding="utf-8")
        program = "from sushy_tools.emulator.main import main; main()"
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", program, "--fake", "--config", str(place)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": ""},
        )
        self._wait()

    def _wait(self) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise AssertionError("sushy-emulator did not come up")

    def ask(self, verb: str, **request: Any) -> HostResult:
        asker = bmcs(self.certificates.authority)
        hosts = [host("e000", f"https://127.0.0.1:{self.port}")]
        return asker.ask(hosts, verb, lambda host: request)["e000"]

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(60)


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    pytest.importorskip("sushy_tools")
    made = Emulator(tmp_path_factory.mktemp("emulator"))
    yield made
    made.close()


@pytest.mark.processes
def test_emulator_is_read_set_and_reset(emulator: Emulator) -> None:
    """No sessions, no versions of resources, no apply times, no jobs; `/BIOS`, not `/Bios`."""
    rows = emulator.ask("plan", settings=[setting("ProcTurboMode", "Enabled")], ours={})
    assert rows.error is None
    assert rows.data["settings"][0]["status"] == "change"
    assert rows.data["resets"].count("ForceRestart") == 1
    done = emulator.ask("set", attributes=TURBO, ours={})
    assert (done.error, done.changed, done.data["boot"]) == (None, True, True)
    again = emulator.ask("set", attributes=TURBO, ours=TURBO)
    assert (again.error, again.changed) == (None, False)
    looked = emulator.ask("plan", settings=[setting("ProcTurboMode", "Enabled")], ours={})
    assert looked.reason == "refused" and "ProcTurboMode" in str(looked.error)
    assert emulator.ask("check", attributes=TURBO, job="", ours=TURBO).data["state"] == "boot"
    assert emulator.ask("reset", kind="ForceRestart", os_answers=False).reason == "refused"
    assert emulator.ask("reset", kind="ForceRestart", os_answers=True).data == {"sent": True}
    assert emulator.ask("check", attributes=TURBO, job="", ours=TURBO).data["state"] == "done"
    assert emulator.ask("evidence").data["power"] == "On"
