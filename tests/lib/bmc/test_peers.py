# SPDX-License-Identifier: Apache-2.0
"""Beside what others wrote: sushy, a client, and sushy-emulator, a BMC (both OpenStack's)."""

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

from edgetune.hosts.result import HostResult
from lab.bmc.certificates import make_certificates
from tests.support import FIXTURES
from tests.support.bmc_site import PASSWORD, Site, bmcs, give_changes_up_soon, host, setting

TURBO = {"ProcTurboMode": "Enabled"}


class TestLateAnswer:
    """A BMC that resets the machine at once, and answers when nobody listens any more."""

    @pytest.fixture
    def late(self, tmp_path: Path) -> Iterator[Site]:
        site = Site(tmp_path, "dell")
        site.machines["e000"].faults.add("late")
        yield site
        site.close()

    def test_edgetune_sends_one_reset(self, late: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        give_changes_up_soon(monkeypatch)
        request = {"kind": "ForceRestart", "os_answers": True}
        assert late.ask("reset", request).reason == "unknown"
        assert late.machines["e000"].resets == ["ForceRestart"]

    def test_sushy_sends_several(self, late: Site) -> None:
        sushy = pytest.importorskip("sushy")
        bmc = late.hosts[0].bmc
        assert bmc is not None
        root = sushy.Sushy(
            bmc.address,
            username="edgetune",
            password=PASSWORD,
            verify=str(late.certificates.authority),
            server_side_retries=3,
            server_side_retries_delay=0.01,
        )
        try:
            system = root.get_system()
            root._conn._default_request_timeout = 0.5
            with pytest.raises(sushy.exceptions.ConnectionError):
                system.reset_system(sushy.ResetType.FORCE_RESTART)
        finally:
            root._conn.close()
        assert late.machines["e000"].resets == ["ForceRestart"] * 3


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
