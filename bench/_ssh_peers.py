# SPDX-License-Identifier: Apache-2.0
"""Clients that ask many hosts over SSH, each once, and the tools that programs share."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from socket import IPPROTO_TCP, TCP_NODELAY, create_connection
from typing import Any, Callable, Optional

import paramiko

from bench._ssh_hosts import HANG, Site
from bench._table import BenchError
from edgetune import AGENT_PROTOCOL
from edgetune.agent import bundle
from edgetune.net.hosts import workers
from edgetune.net.hosts.conversation import BOOTSTRAP
from edgetune.net.hosts.fleet import Fleet, packed
from edgetune.site.config import read_config
from edgetune.site.inventory import Host

PARALLEL = 16
"""How many hosts each client asks at once: what ssh_threads is when nobody sets it."""

COMMAND = "python3 -I -S -c pass"
NOT_INSTALLED = "not installed"
TIMEOUT = 60
Peer = Callable[[Sequence[str]], Optional[Mapping[str, str]]]
"""Asks hosts by their addresses, and says why some failed, if it can tell; else BenchError."""


def ask_all(name: str, peer: Peer, addresses: Sequence[str], sick: Collection[str] = ()) -> None:
    """Have a client ask all; BenchError where another host failed than those that are sick."""
    failed = peer(addresses) or {}
    for address in sorted({*failed} ^ ({*addresses} & {*sick})):
        raise BenchError(f"{name}: {address}: {failed.get(address, 'is sick, and did not fail')}")


def works(peers: Mapping[str, Peer], *given: Sequence[str]) -> dict[str, Callable[[], None]]:
    """By name what is to be measured: `ask_all` with the rest of its arguments."""
    return {name: functools.partial(ask_all, name, peer, *given) for name, peer in peers.items()}


def fleet_config(site: Site) -> dict[str, object]:
    """How edgetune reaches the hosts of a site."""
    return {
        "inventory": "none",
        "ssh_user": site.user,
        "ssh_key_file": str(site.key),
        "ssh_known_hosts": str(site.known_hosts),
        "ssh_threads": PARALLEL,
    }


def host_of(site: Site, address: str) -> Host:
    """A host of a site, named by its address."""
    return Host(address, address, site.port, "", "", address)


def fleet(
    site: Site,
    alone: bool = False,
    timeout: float = TIMEOUT,
    hanging: Collection[str] = (),
    differs: Callable[[str], Mapping[str, Any]] = lambda address: {},
    **config: str,
) -> Peer:
    """edgetune itself, keys and known_hosts read anew as in every action.

    ``alone``: without workers, and so on one core, however many hosts there are. ``differs`` is
    what else is known of a host by its address, ``config`` what else is configured.
    """
    # A busy machine is slow, and no failure.
    own = read_config({**fleet_config(site), "ssh_timeout": timeout, **config})
    usual = workers.FROM

    def ask(addresses: Sequence[str]) -> dict[str, str]:
        hosts = [replace(host_of(site, each), **differs(each)) for each in addresses]
        workers.FROM = sys.maxsize if alone else usual
        try:
            told = Fleet(own).ask(hosts, "facts", lambda host: _asked(host.name, hanging), timeout)
        finally:
            workers.FROM = usual
        return {name: str(result.error) for name, result in told.items() if result.failed}

    return ask


def bare_paramiko(
    site: Site, nodelay: bool = True, timeout: float = TIMEOUT, hanging: Collection[str] = ()
) -> Peer:
    """The least that paramiko needs for the same work, with each timeout that it has; as it comes
    it lets Nagle wait."""
    limits: Any = {f"{what}_timeout": timeout for what in ("banner", "auth", "channel")}
    documents = {own: request_text("facts", _asked(own, [True])) for own in (True, False)}

    def ask(addresses: Sequence[str]) -> dict[str, str]:
        known = paramiko.HostKeys(str(site.known_hosts))
        key = paramiko.Ed25519Key.from_private_key_file(str(site.key))

        def one(address: str) -> str:
            name, place = f"[{address}]:{site.port}", (address, site.port)
            # The client is left first: closing its socket under it makes paramiko log an error.
            with create_connection(place, timeout) as sock, paramiko.SSHClient() as own:
                sock.setsockopt(IPPROTO_TCP, TCP_NODELAY, nodelay)
                for kind, host_key in (known.lookup(name) or {}).items():
                    own.get_host_keys().add(name, kind, host_key)
                own.connect(
                    *place,
                    site.user,
                    pkey=key,
                    sock=sock,
                    allow_agent=False,
                    look_for_keys=False,
                    **limits,
                )
                stdin, stdout, _ = own.exec_command(BOOTSTRAP, timeout=timeout)
                stdin.channel.sendall(documents[address in hanging])
                stdin.channel.shutdown_write()
                return _complaint(stdout.read())

        return _for_all(one, addresses)

    return ask


def openssh(
    site: Site, with_agent: bool = True, timeout: float = TIMEOUT, hanging: Collection[str] = ()
) -> Peer:
    """One `ssh` process a host, started as `xargs -P` would, host keys verified."""
    files = {own: site.folder / f"request-{own}" for own in (True, False)}
    for own, file in files.items():
        file.write_bytes(request_text("facts", _asked(own, [True])))

    def one(address: str) -> str:
        limit = ["-o", f"ConnectTimeout={timeout}"]
        command = ["ssh", *limit, *ssh_options(site), address, BOOTSTRAP if with_agent else COMMAND]
        with open(files[address in hanging] if with_agent else os.devnull, "rb") as stdin:
            done = subprocess.run(command, stdin=stdin, capture_output=True, timeout=timeout)
        if done.returncode:
            return last_line(done.stderr)
        return _complaint(done.stdout) if with_agent else ""

    return lambda addresses: _for_all(one, addresses)


def _asked(host: object, hanging: Collection[object]) -> dict[str, bool]:
    return {HANG: True} if host in hanging else {}


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
        run_program(["pyinfra", *words, *COMMAND.split()], site.folder)

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


def lacks(*programs: str) -> str:
    """Why a client is left out that needs these programs, or ""."""
    return "" if all(map(has_program, programs)) else NOT_INSTALLED


def versions(*modules: str) -> dict[str, str]:
    """Of Python, of these packages, and of OpenSSH's client where it is there."""
    found = {"python": platform.python_version()}
    found.update({name: metadata.version(name) for name in modules})
    if has_program("ssh"):
        said = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=True).stderr
        found["OpenSSH"] = said.split()[0].rstrip(",").replace("OpenSSH_", "")
    return found


def request_text(verb: str, request: Mapping[str, Any], agent: bytes | None = None) -> bytes:
    """What goes to the standard input of an agent, or of ours, as Fleet sends it."""
    body = json.dumps({**request, "protocol": AGENT_PROTOCOL, "verb": verb}).encode()
    return packed(agent or bundle.make()) + body


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


def _for_all(one: Callable[[str], str], addresses: Sequence[str]) -> dict[str, str]:
    def told(address: str) -> str:
        try:
            return one(address)
        except (OSError, EOFError, paramiko.SSHException, subprocess.TimeoutExpired) as error:
            return str(error) or type(error).__name__

    with ThreadPoolExecutor(min(PARALLEL, len(addresses))) as pool:
        return {own: why for own, why in zip(addresses, pool.map(told, addresses)) if why}


def _complaint(reply: bytes) -> str:
    return "" if b'"ok": true' in reply else f"answered {reply[:60]!r}"


def run_program(
    command: Sequence[str],
    folder: Path | None = None,
    environment: Mapping[str, str] = {},
    given: Any = b"",
) -> bytes:
    """What it prints; ``given`` (bytes, or a file) is its input. BenchError where it fails."""
    feed: dict[str, Any] = {"input": given} if isinstance(given, bytes) else {"stdin": given}
    done = subprocess.run(
        command, env={**os.environ, **environment}, cwd=folder, capture_output=True, **feed
    )
    if done.returncode:
        raise BenchError(f"{command[0]}: {last_line(done.stderr or done.stdout)}")
    output: bytes = done.stdout
    return output


def last_line(output: bytes) -> str:
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "ended without a word"
