# SPDX-License-Identifier: Apache-2.0
"""The root of lab hosts: what happens to the machine's /etc beside a lab is not seen on hosts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lab.pop import image, missing_requirements

pytestmark = pytest.mark.skipif(
    bool(missing_requirements()), reason="needs what the namespaced lab needs"
)

# Changes the machine while a host runs on it, and lists what the host sees before and after.
LOOK = """
set -e
mount -t tmpfs none "$1"
mkdir "$1/own" "$1/work" "$1/root"
cp -a "$2" "$1/image"
mount -t overlay none -o "lowerdir=$1/image:$3,upperdir=$1/own,workdir=$1/work" "$1/root"
look() { (cd "$1/root/etc" && find . -type f -exec sha256sum {} + | sort) }
look "$1" >"$4.before"
echo another >"$3/etc/services"
echo added >"$3/etc/alternatives/added"
mkdir "$3/etc/nginx.d" && echo added >"$3/etc/nginx.d/site"
rm "$3/etc/host.conf"
look "$1" >"$4.after"
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A small machine with keys and settings of its own."""
    machine = tmp_path / "machine"
    etc = machine / "etc"
    for name in ("etc/alternatives", "etc/ssl/certs", "etc/ssl/private", "etc/ssh", "usr/bin"):
        (machine / name).mkdir(parents=True)
    for name in ("services", "host.conf", "ssl/certs/ca.pem", "ssl/private/key.pem"):
        (etc / name).write_text(f"{name} of the machine\n")
    for path in [machine, *machine.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)  # whatever the umask
    (etc / "ssl/openssl.key").touch(mode=0o600)
    (etc / "ssl/private").chmod(0o710)
    (etc / "shadow").touch(mode=0o600)
    (etc / "ssh/ssh_host_rsa_key").touch(mode=0o600)
    (etc / "alternatives/awk").symlink_to("/usr/bin/mawk")
    return machine


@pytest.mark.processes
def test_hosts_have_a_frozen_etc(machine: Path, tmp_path: Path) -> None:
    built = tmp_path / "image"
    image.build(built, "a key", False, machine)
    (tmp_path / "disk").mkdir()
    places = [str(tmp_path / "disk"), str(built), str(machine), str(tmp_path / "seen")]
    subprocess.run(["unshare", "--mount", "sh", "-c", LOOK, "sh", *places], check=True)
    before = (tmp_path / "seen.before").read_text()
    assert "./services" in before and "./ssl/certs/ca.pem" in before
    assert (tmp_path / "seen.after").read_text() == before


def test_keys_of_the_machine_are_not_copied(machine: Path, tmp_path: Path) -> None:
    image.build(tmp_path / "image", "a key", False, machine)
    copied = {str(path.relative_to(tmp_path / "image")) for path in tmp_path.glob("image/etc/**/*")}
    assert "etc/ssl/certs/ca.pem" in copied
    assert not copied & {"etc/ssl/private", "etc/ssl/openssl.key", "etc/ssh/ssh_host_rsa_key"}
    assert not (tmp_path / "image/etc/shadow").read_text().startswith("etc/shadow")
