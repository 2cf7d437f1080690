# SPDX-License-Identifier: Apache-2.0
"""Many SSH hosts on loopback addresses, 127.78.x.y, in one process of their own.

That process makes a private folder with the user key and known_hosts, and removes it when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import asyncssh

from bench._served import say, served
from edgetune.intent.metrics.catalogue import METRICS
from lab.simulated.ssh import HostServer

ACCESS = "access"
"""Canned ones with certificates, a jump host, and one host at ::1 as well."""
SERVERS = ("canned", "agent", ACCESS)

JUMP = "127.79.0.1"
CERTIFIED = "certified"
"""Folder with a key that has a certificate, and known_hosts with an authority alone."""

HANG = "hang"
"""A field of a request; a canned host that finds it never answers."""

MAX_HOSTS = 4000

_FACTS = json.loads(Path(__file__).with_name("facts.json").read_text(encoding="utf-8"))
_SAMPLE = {
    "boot_id": _FACTS["boot_id"],
    "uptime": 86400.25,
    "counters": {name: 1_000_000 + place for place, name in enumerate(METRICS.counters)},
    "gauges": {"drifted": 0},
    "drift": [],
    "health": "",
    "log": "",
}
REPLIES = {
    verb: json.dumps({"edgetune": 1, "verb": verb, "ok": True, "result": result}).encode()
    for verb, result in (("facts", _FACTS), ("sample", _SAMPLE))
}
"""What a canned host answers, by verb."""


@dataclass(frozen=True)
class Site:
    """The running hosts: where they are, how to log in, and the CPU seconds they have used."""

    addresses: tuple[str, ...]
    port: int
    user: str
    folder: Path
    cpu_seconds: Callable[[], float]

    @property
    def key(self) -> Path:
        return self.folder / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"


@contextlib.contextmanager
def serve(count: int, server: str) -> Iterator[Site]:
    """Hosts that answer while the context lasts; BenchError if they do not start."""
    with served("bench._ssh_hosts", str(count), server) as hosts:
        said = hosts.said
        folder = Path(said["folder"])
        yield Site(tuple(said["addresses"]), said["port"], "root", folder, hosts.cpu_seconds)


# What follows runs in the process of the hosts.


class _Through(asyncssh.SSHServer):
    """Lets connections through to other hosts, as a jump host does."""

    def connection_requested(self, *given: object) -> bool:
        return True


class _CannedServer(HostServer):
    """Reads what the agent is sent to its end and answers the same facts, or the same sample, each
    time, without starting a process."""

    def __init__(
        self, address: str, port: int, user_key: str, authority: asyncssh.SSHKey | None = None
    ) -> None:
        super().__init__(Path(), address, port, user_key, server_factory=_Through)
        if authority:
            own = authority.generate_host_certificate(self._key, address, principals=[address])
            self._more["server_host_certs"] = [own]

    async def _answer(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        with contextlib.suppress(OSError, asyncssh.Error):  # the client may be gone
            asked: Mapping[str, object] = {"verb": "facts"}
            if "stdin" in (process.command or ""):
                asked = _asked(await process.stdin.read())
            if HANG in asked:
                await process.wait_closed()
            process.stdout.write(REPLIES[str(asked["verb"])])
            process.exit(0)


def _asked(sent: bytes) -> Mapping[str, object]:
    """What an agent is asked that was sent with its request (`fleet.packed`)."""
    length, _, rest = sent.partition(b"\n")
    asked: Mapping[str, object] = json.loads(rest[int(length) :])
    return asked


def _servers(kind: str, folder: Path, port: int, count: int, key: str) -> dict[str, Any]:
    addresses = [f"127.78.{index // 250}.{1 + index % 250}" for index in range(count)]
    if kind == ACCESS:
        return _with_access(folder, port, [*addresses, JUMP, "::1"], key)
    if kind == "canned":
        return {address: _CannedServer(address, port, key) for address in addresses}
    return {address: _agent_server(folder / address, address, port, key) for address in addresses}


def _with_access(folder: Path, port: int, addresses: Sequence[str], key: str) -> dict[str, Any]:
    authority = asyncssh.generate_private_key("ssh-ed25519")
    public = authority.export_public_key().decode().strip()
    certified = folder / CERTIFIED
    certified.mkdir()
    (certified / "known_hosts").write_text(f"@cert-authority [127.78.*]:{port} {public}\n")
    user = asyncssh.import_public_key(key)
    certificate = authority.generate_user_certificate(user, "bench", principals=["root"])
    certificate.write_certificate(str(certified / "id_ed25519-cert.pub"))
    (certified / "id_ed25519").touch(mode=0o600)
    (certified / "id_ed25519").write_bytes((folder / "id_ed25519").read_bytes())
    (folder / "id_ed25519.pub").write_text(key)
    keys = f"{key}\ncert-authority {public}\n"
    return {address: _CannedServer(address, port, keys, authority) for address in addresses}


def _agent_server(root: Path, address: str, port: int, key: str) -> Any:
    from lab.simulated import host

    host.install(root, address, address)
    host.start_kernel(root, address)
    return HostServer(root, address, port, key)


def _free_port() -> int:
    """One that is free on the first address: all hosts have the same, as servers do."""
    with socket.create_server(("127.78.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


async def _run(count: int, kind: str, folder: Path) -> None:
    user = asyncssh.generate_private_key("ssh-ed25519")
    key_file = folder / "id_ed25519"
    key_file.touch(mode=0o600)
    key_file.write_bytes(user.export_private_key())
    port = _free_port()
    servers = _servers(kind, folder, port, count, user.export_public_key().decode())
    for server in servers.values():
        await server.start()
    lines = [f"[{address}]:{port} {server.public_key}\n" for address, server in servers.items()]
    (folder / "known_hosts").write_text("".join(lines))
    say({"addresses": list(servers), "port": port, "folder": str(folder)})
    await _answer_until_end()
    for server in servers.values():
        server.stop()


async def _answer_until_end() -> None:
    ended = asyncio.Event()

    def answer() -> None:
        asked = os.read(0, 4096)
        for _ in range(asked.count(b"\n")):
            say(sum(os.times()[:4]))
        if not asked:
            ended.set()

    loop = asyncio.get_running_loop()
    loop.add_reader(0, answer)
    await ended.wait()
    loop.remove_reader(0)


def _main(count: int, kind: str) -> None:
    with tempfile.TemporaryDirectory(prefix="edgetune-bench-") as name:
        asyncio.run(_run(count, kind, Path(name)))
        if kind == "agent":
            from lab.simulated import processes

            processes.end_below(Path(name))


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2])
