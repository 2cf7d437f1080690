# SPDX-License-Identifier: Apache-2.0
"""The SSH servers of the hosts: they run the host agent on a private root, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakSet

import asyncssh

ALLOWED = ["python3", "-I", "-S", "-c"]
CANNOT_EXECUTE = 126


class HostServer:
    """One host's server at one address; the key objects keep asyncssh from re-reading files.

    ``more`` are further options of ``asyncssh.listen``.
    """

    def __init__(self, root: Path, address: str, port: int, user_key: str, **more: Any) -> None:
        self._root = root
        self._where, self._more = (address, port), more
        self._user = asyncssh.import_authorized_keys(user_key)
        self._key = asyncssh.generate_private_key("ssh-ed25519")
        self._connections: WeakSet[asyncssh.SSHServerConnection] = WeakSet()
        self._listener: asyncssh.SSHAcceptor | None = None
        self._names = (b"", b"")

    def know_as(self, everybody: str, here: str) -> None:
        """What requests to every host call `everybody` is called `here` on this one."""
        self._names = (everybody.encode(), here.encode())

    @property
    def public_key(self) -> str:
        """Its host key as it stands in known_hosts."""
        return self._key.export_public_key().decode().strip()

    async def start(self) -> None:
        """Listen; OSError if somebody else has the port."""
        self._listener = await asyncssh.listen(
            *self._where,
            config=None,
            server_host_keys=[self._key],
            authorized_client_keys=self._user,
            process_factory=self._answer,
            acceptor=self._connections.add,
            encoding=None,
            agent_forwarding=False,
            gss_host=None,
            **self._more,
        )

    def stop(self) -> None:
        """Refuse connections from now on, and cut those there are."""
        if self._listener:
            self._listener.close()
        self._listener = None
        for connection in list(self._connections):
            connection.abort()

    async def _answer(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        words = _words(process.command or "")
        # A connection that was under way when the host went down may get here after that.
        if self._listener is None or words[:4] != ALLOWED or len(words) != 5:
            process.stderr.write(b"a simulated host runs the host agent only\n")
            process.exit(CANNOT_EXECUTE)
            return
        # The client may be gone before the answer.
        with contextlib.suppress(OSError, asyncssh.Error):
            document = (await process.stdin.read()).replace(*self._names)
            status, output, errors = await run(self._root, words[1:], document)
            process.stdout.write(output)
            process.stderr.write(errors)
            process.exit(status)


async def run(root: Path, words: Sequence[str], document: bytes) -> tuple[int, bytes, bytes]:
    """Run Python on a private root: its exit status, output and errors."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=root,
        env=environment(root),
    )
    output, errors = await child.communicate(document)
    return child.returncode or 0, output, errors


def environment(root: Path) -> dict[str, str]:
    """All that a host's process is given; EDGETUNE_ROOT is how it is found again."""
    return {"EDGETUNE_ROOT": str(root), "PATH": "/usr/bin:/bin", "HOME": str(root)}


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return []
