# SPDX-License-Identifier: Apache-2.0
"""The clients that bench.fanout compares. Each asks all hosts once and raises BenchError."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable

import paramiko

from bench._ssh_hosts import Site
from bench._table import BenchError
from edgetune import AGENT_PROTOCOL
from edgetune.agent import bundle
from edgetune.net.hosts import helpers
from edgetune.net.hosts.conversation import BOOTSTRAP
from edgetune.net.hosts.fleet import Fleet, packed
from edgetune.site.config import read_config
from edgetune.site.inventory import Host

PARALLEL = 16
"""How many hosts each client asks at once: what ssh_threads is when nobody sets it."""

COMMAND = "python3 -I -S -c pass"
TIMEOUT = 60
Peer = Callable[[Sequence[str]], None]


def fleet_config(site: Site) -> dict[str, object]:
    """How edgetune reaches the hosts of a site."""
    return {
        "inventory": "none",
        "ssh_user": site.user,
        "ssh_key_file": str(site.key),
        "ssh_known_hosts": str(site.known_hosts),
        "ssh_threads": PARALLEL,
    }


def fleet(site: Site, alone: bool = False) -> Peer:
    """edgetune itself, keys and known_hosts read anew as in every action.

    ``alone``: without helpers, and so on one core, however many hosts there are.
    """
    config = read_config(fleet_config(site))
    usual = helpers.FROM

    def ask(addresses: Sequence[str]) -> None:
        hosts = [Host(address, address, site.port, "", "", address) for address in addresses]
        helpers.FROM = sys.maxsize if alone else usual
        try:
            results = Fleet(config).ask(hosts, "facts", lambda host: {})
        finally:
            helpers.FROM = usual
        for result in results.values():
            if result.failed:
                raise BenchError(f"Fleet: {result.error}")

    return ask


def bare_paramiko(site: Site, nodelay: bool) -> Peer:
    """The least that paramiko needs for the same work; as it comes it lets Nagle wait."""
    document = request_text("facts", {})

    def ask(addresses: Sequence[str]) -> None:
        known = paramiko.HostKeys(str(site.known_hosts))
        key = paramiko.Ed25519Key.from_private_key_file(str(site.key))

        def one(address: str) -> None:
            # The client is left first: closing its socket under it makes paramiko log an error.
            with connect(address, site.port, nodelay) as sock, paramiko.SSHClient() as client:
                name = f"[{address}]:{site.port}"
                for kind, host_key in (known.lookup(name) or {}).items():
                    client.get_host_keys().add(name, kind, host_key)
                log_in(client, address, site, key, sock)
                stdin, stdout, _ = client.exec_command(BOOTSTRAP, timeout=TIMEOUT)
                stdin.channel.sendall(document)
                stdin.channel.shutdown_write()
                _check("paramiko", address, stdout.read())

        _for_all(one, addresses)

    return ask


def openssh(site: Site, with_agent: bool) -> Peer:
    """One `ssh` process a host, started as `xargs -P` would, host keys verified."""
    document = site.folder / "agent-and-request"
    document.write_bytes(request_text("facts", {}))

    def one(address: str) -> None:
        command = ["ssh", *ssh_options(site), address, BOOTSTRAP if with_agent else COMMAND]
        with open(document if with_agent else os.devnull, "rb") as stdin:
            done = subprocess.run(command, stdin=stdin, capture_output=True, timeout=TIMEOUT)
        if done.returncode:
            raise BenchError(f"ssh: {address}: {last_line(done.stderr)}")
        if with_agent:
            _check("ssh", address, done.stdout)

    return lambda addresses: _for_all(one, addresses)


def ansible(site: Site) -> Peer:
    """`ansible -m raw`; without ControlPersist, which would stay behind for a minute."""
    configuration = site.folder / "ansible.cfg"
    configuration.write_text("")
    environment = {
        "ANSIBLE_CONFIG": str(configuration),
        "ANSIBLE_HOME": str(site.folder / "ansible"),
        "ANSIBLE_SSH_ARGS": " ".join(ssh_options(site)),
    }

    def ask(addresses: Sequence[str]) -> None:
        inventory = site.folder / "ansible-hosts"
        inventory.write_text("\n".join(addresses) + "\n")
        words = ["-i", str(inventory), "-m", "raw", "-a", COMMAND, "-f", str(PARALLEL)]
        run_program(["ansible", "all", *words], site.folder, environment)

    return ask


def pyinfra_inventory(site: Site, addresses: Sequence[str]) -> Path:
    """The file that tells pyinfra how to reach these hosts of a site."""
    data = {
        "ssh_user": site.user,
        "ssh_port": site.port,
        "ssh_key": str(site.key),
        "ssh_known_hosts_file": str(site.known_hosts),
        "ssh_allow_agent": False,
        "ssh_look_for_keys": False,
    }
    file = site.folder / "pyinfra_hosts.py"
    file.write_text(f"hosts = ({list(addresses)!r}, {data!r})\n")
    return file


def pyinfra(site: Site) -> Peer:
    """`pyinfra ... exec`."""

    def ask(addresses: Sequence[str]) -> None:
        inventory = pyinfra_inventory(site, addresses)
        words = ["-y", "--parallel", str(PARALLEL), str(inventory), "exec", "--"]
        run_program(["pyinfra", *words, *COMMAND.split()], site.folder, {})

    return ask


def parallel_ssh(site: Site) -> Peer:
    """`pssh.clients.ParallelSSHClient`, which does not verify host keys."""
    clients: Any = importlib.import_module("pssh.clients")

    def ask(addresses: Sequence[str]) -> None:
        client = clients.ParallelSSHClient(
            list(addresses),
            site.user,
            port=site.port,
            pkey=str(site.key),
            pool_size=PARALLEL,
            allow_agent=False,
            identity_auth=False,
            timeout=TIMEOUT,
        )
        outputs = client.run_command(COMMAND, stop_on_errors=True)
        client.join(outputs)
        for output in outputs:
            if output.exit_code:
                raise BenchError(f"parallel-ssh: {output.host}: status {output.exit_code}")

    return ask


def has_program(name: str) -> bool:
    """Whether a peer that is a program can be found."""
    return shutil.which(name) is not None


def has_module(name: str) -> bool:
    """Whether a peer that is a library can be imported."""
    return importlib.util.find_spec(name) is not None


def ssh_version() -> str:
    """Of OpenSSH's client."""
    said = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=True).stderr
    return said.split()[0].rstrip(",").replace("OpenSSH_", "")


def request_text(verb: str, request: Mapping[str, Any]) -> bytes:
    """What goes to the agent's standard input, as Fleet sends it."""
    body = json.dumps({**request, "protocol": AGENT_PROTOCOL, "verb": verb}).encode()
    return packed(bundle.make()) + body


def log_in(
    client: paramiko.SSHClient,
    address: str,
    site: Site,
    key: paramiko.PKey,
    sock: socket.socket,
    **more: Any,
) -> None:
    """With this key alone; ``more`` are options of paramiko's ``connect``."""
    client.connect(
        address,
        site.port,
        site.user,
        pkey=key,
        sock=sock,
        allow_agent=False,
        look_for_keys=False,
        **more,
    )


def connect(address: str, port: int, nodelay: bool, timeout: float = TIMEOUT) -> socket.socket:
    """A connection on which small packets wait for nothing, or as it comes."""
    sock = socket.create_connection((address, port), timeout)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, nodelay)
    return sock


def ssh_options(site: Site) -> list[str]:
    """For host keys that are checked, this key alone, and nothing of the user's own files."""
    words = ["-F", "none", "-i", str(site.key), "-l", site.user, "-p", str(site.port)]
    for option in (
        f"UserKnownHostsFile={site.known_hosts}",
        f"GlobalKnownHostsFile={os.devnull}",
        "StrictHostKeyChecking=yes",
        "BatchMode=yes",
        "IdentitiesOnly=yes",
        "IdentityAgent=none",
        "ControlMaster=no",
    ):
        words += ["-o", option]
    return words


def _for_all(one: Callable[[str], None], addresses: Sequence[str]) -> None:
    with ThreadPoolExecutor(min(PARALLEL, len(addresses))) as pool:
        list(pool.map(one, addresses))


def _check(client: str, address: str, reply: bytes) -> None:
    if b'"ok": true' not in reply:
        raise BenchError(f"{client}: {address}: answered {reply[:60]!r}")


def run_program(command: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        command, env={**os.environ, **environment}, cwd=folder, capture_output=True
    )
    if done.returncode:
        raise BenchError(f"{command[0]}: {last_line(done.stderr or done.stdout)}")


def last_line(output: bytes) -> str:
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "ended without a word"
