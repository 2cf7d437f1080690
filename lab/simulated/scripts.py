# SPDX-License-Identifier: Apache-2.0
"""The programs of simulated hosts: files that ask, and the lab's own process, which answers."""

from __future__ import annotations

import asyncio
import os
import shlex
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Callable

from . import asking

Answer = tuple[int, str, str]
"""Exit status, output and complaints."""


def install_programs(root: Path, names: Iterable[str]) -> None:
    """Have programs on the root of a host, which is HOSTS/NAME/root."""
    host, folder = root.parent, root.parent.parent
    for name in names:
        # A shell script, because a path in a #! line must be short and without blanks.
        words = [sys.executable, "-I", "-S", asking.__file__, str(folder), host.name, name]
        path = root / "usr/local/sbin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
        path.chmod(0o755)


async def serve_programs(
    folder: Path, answers: Mapping[str, Callable[[str, Sequence[str]], Answer]]
) -> asyncio.Server:
    """Answer the programs of all hosts of a folder, each by its host's function."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, name, *words = (await reader.read()).decode().split("\0")
        try:
            status, output, complaints = answers[host](name, words)
        except Exception as error:  # words that this double does not know end the program alone
            status, output, complaints = 1, "", f"{name}: {error!r}\n"
        try:
            writer.write("\0".join((str(status), output, complaints)).encode())
            await writer.drain()
        except OSError:  # killed meanwhile
            pass
        finally:
            writer.close()

    folder.mkdir(parents=True, exist_ok=True)
    listening, before = socket.socket(socket.AF_UNIX), Path.cwd()
    os.chdir(folder)  # the address of a Unix socket is short
    try:
        listening.bind(asking.SOCKET)
    finally:
        os.chdir(before)
    return await asyncio.start_unix_server(serve, sock=listening)
