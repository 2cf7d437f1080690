# SPDX-License-Identifier: Apache-2.0
"""Real sshd on loopback, which answers every command as an agent does that is asked for facts."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgetune.net.hosts.fleet import Fleet
from edgetune.net.result import HostResult
from edgetune.site.config import read_config
from edgetune.site.inventory import Host
from tests.support.agent_answers import RESULTS
from tests.support.programs import free_port

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin") or ""
USER = getpass.getuser()
CONFIGURATION = """
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
LogLevel VERBOSE
MaxStartups 100
"""
# As root sshd wants a directory, which is made where nobody else sees it.
OWN_RUN = "mount -t tmpfs none /run && mkdir /run/sshd && exec "


def keygen(*words: object) -> None:
    """Run ssh-keygen, quietly; it takes times for those in UTC."""
    command = ["ssh-keygen", "-q", *map(str, words)]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "TZ": "UTC"})


def make_key(path: Path, type: str = "ed25519") -> Path:
    """A new key pair at ``path`` and ``path``.pub."""
    keygen("-t", type, "-N", "", "-C", path.name, "-f", path)
    return path


def public(key: Path) -> str:
    """Its ``TYPE BASE64``."""
    return " ".join(key.with_name(f"{key.name}.pub").read_text().split()[:2])


class Sshd:
    """One server; it has a key of its own, and takes the key ``id`` of the folder."""

    def __init__(self, folder: Path, *options: str, address: str = "127.0.0.1") -> None:
        self.address = address
        self._folder = Path(folder, f"sshd-{time.monotonic_ns()}")
        self._folder.mkdir()
        self.key = make_key(self._folder / "host")
        self._user_key = folder / "id.pub"
        self._process: subprocess.Popen[bytes] | None = None
        reply = {"edgetune": 1, "verb": "facts", "ok": True, "result": RESULTS["facts"]}
        (self._folder / "answer").write_text(json.dumps(reply) + "\n")
        self.port = free_port(address)
        self.options = [
            f"ListenAddress {address}" if ":" not in address else f"ListenAddress [{address}]",
            f"Port {self.port}",
            f"HostKey {self.key}",
            f"ForceCommand cat >/dev/null; cat {self._folder}/answer",
            *options,
        ]
        if not any(own.startswith("AuthorizedKeysFile") for own in options):
            self.options.append(f"AuthorizedKeysFile {self._user_key}")

    def start(self) -> Sshd:
        """Listen."""
        place = self._folder / "sshd_config"
        place.write_text(CONFIGURATION + "\n".join(self.options) + "\n")
        command = [SSHD, "-D", "-e", "-f", str(place)]
        if os.geteuid() == 0:
            command = ["unshare", "--mount", "sh", "-c", OWN_RUN + " ".join(command)]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(command, stderr=log, stdin=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while "Server listening" not in self.log:
            assert self._process.poll() is None and time.monotonic() < end, self.log
            time.sleep(0.02)
        return self

    def close(self) -> None:
        """End it; its sessions end with their connections."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    @property
    def logins(self) -> int:
        return self.log.count("Accepted publickey")

    @property
    def known_as(self) -> str:
        return f"[{self.address}]:{self.port}"

    @property
    def known(self) -> str:
        """Its line of known_hosts."""
        return f"{self.known_as} {public(self.key)}\n"

    def host(self, name: str = "e000", **more: Any) -> Host:
        return Host(name, self.address, self.port, "", "", name, **more)


def fleet(folder: Path, **more: Any) -> Fleet:
    """A fleet with the key ``id`` and the file ``known_hosts`` of a folder."""
    config = {
        "inventory": "none",
        "ssh_user": USER,
        "ssh_key_file": str(folder / "id"),
        "ssh_known_hosts": str(folder / "known_hosts"),
        "ssh_timeout": 60,
        **more,
    }
    return Fleet(read_config(config))


def ask(folder: Path, hosts: Sequence[Host], **more: Any) -> list[HostResult]:
    """What each host answers."""
    return list(fleet(folder, **more).ask(hosts, "facts", lambda host: {}, 120).values())


def ask_one(folder: Path, host: Host, **more: Any) -> str:
    """Why a host does not answer; "" if it does."""
    return ask(folder, [host], **more)[0].error or ""
