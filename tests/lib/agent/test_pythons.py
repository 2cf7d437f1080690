# SPDX-License-Identifier: Apache-2.0
"""The host agent on every Python from 3.6 on that is installed here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from edgetune.agent import bundle
from tests.support.agent_root import agent_root, channels, nginx, rps, sysctl, thp
from tests.support.boot_loaders.grub import GrubDouble
from tests.support.kernels import GRACE, cmdline

pytestmark = pytest.mark.processes

VERSIONS = [f"3.{minor}" for minor in range(6, 14)]

IMPORT_ALL = """
import sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    __import__(name)
"""


def interpreter(version: str) -> str:
    """A Python that really is of that version (a shim of that name may have nothing behind it)."""
    versions = Path.home() / ".pyenv" / "versions"
    installed = [str(path) for path in versions.glob(f"{version}.*/bin/python3")]
    for python in [shutil.which(f"python{version}"), *installed]:
        command = [python or "false", "-I", "-S", "-c", "import sys; print(*sys.version_info[:2])"]
        done = subprocess.run(command, env={"PATH": "/usr/bin:/bin"}, capture_output=True)
        if done.stdout.decode().split() == version.split("."):
            return command[0]
    pytest.skip(f"there is no Python {version} here")


@pytest.mark.parametrize("version", VERSIONS)
def test_every_module_can_be_imported(version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    modules = bundle.modules()
    for name, code in modules.items():
        package = any(other.startswith(f"{name}.") for other in modules)
        own = name.replace(".", "/") + ("/__init__.py" if package else ".py")
        (tmp_path / own).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / own).write_text(code)
    command = [python, "-I", "-S", "-W", "error", "-c", IMPORT_ALL, str(tmp_path), *modules]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.long
@pytest.mark.parametrize("version", VERSIONS)
def test_from_plan_over_a_boot_to_restore(version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    own = [sysctl("4096", only="raise"), channels(2), rps("0-1"), thp("never")]
    own.append(nginx("LimitNOFILE", "65536"))
    with agent_root(tmp_path / "host", python=python) as host:
        before = host.tree()
        assert host.ask("facts")["python"].startswith(f"{version}.")
        assert host.apply(*own, confirm_within=300, grace_boots=1)["state"] == "provisional"
        assert "python3" in host.read("etc/init.d/S99edgetune")
        assert host.boot().stderr == ""
        assert host.ask("confirm", epoch=1, tuning="t", settings=own)["confirmed"]
        assert host.ask("sample", health_url="http://127.0.0.1:1/")["gauges"]["health_failed"] == 1
        assert host.ask("diagnose", seconds=0)["tunings"] == {"t": "confirmed"}
        assert host.fail("restore", epoch=[])["field"] == "epoch"
        host.restore()
        host.write("proc/sys/kernel/random/boot_id", "x")
        boot_id = "proc/sys/kernel/random/boot_id"
        assert {**host.tree(), boot_id: None} == {**before, boot_id: None}


@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
def test_a_command_line_is_tried_and_forgotten(version: str, tmp_path: Path) -> None:
    """With programs of its own process, which write GRUB's environment as GRUB has it."""
    python = interpreter(version)
    with agent_root(tmp_path / "host", init="systemd", python=python) as host:
        double = GrubDouble(host)
        release, line = double.boot()
        host.write("proc/sys/kernel/osrelease", f"{release}\n")
        host.write("proc/cmdline", line)
        env = str(host.path / "boot/grub/grubenv")
        saved = f"saved_entry={double.default}"
        for name, line in (("grub-reboot", 'next_entry="$1"'), ("grub-editenv", "")):
            text = f"#!/bin/sh\nprintf '%s\\n' '# GRUB' '{saved}' {line} > {env}\n"
            host.write(f"usr/local/sbin/{name}", text).chmod(0o755)
        before = host.plan(cmdline("mitigations=off"))
        assert before[0]["runtime"] == before[0]["persistent"] == "mitigations=auto"
        assert host.apply(cmdline("mitigations=off"), **GRACE)["changed"]
        assert "mitigations=off" in double.boot()[1].split()
        host.write("boot/grub/grubenv", f"# GRUB\n{saved}\nnext_entry=edgetune-trial\n")
        host.restore()
        assert host.plan(cmdline("mitigations=off")) == before
        assert not host.exists("boot/grub/custom.cfg") and not double.once
