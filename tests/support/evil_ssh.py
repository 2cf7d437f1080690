# SPDX-License-Identifier: Apache-2.0
"""SSH servers on loopback that misbehave at one moment of a conversation, and go on doing so."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncssh
import paramiko

PAUSE = 0.02
Act = Callable[["EvilServer", Any], None]


class EvilServer(paramiko.ServerInterface):
    """Takes any user; ``reached`` is set at its moment, and it stops once ``ended`` is set.

    ``at`` is the moment at which it never answers (``auth``, ``channel`` or ``exec``), ``raw`` acts
    on the connection before there is any SSH, ``act`` on the channel once the command runs.
    After ``grace`` s without a word of the client it hangs up.
    """

    def __init__(
        self, folder: Path, at: str = "", raw: Act | None = None, act: Act | None = None
    ) -> None:
        self.reached, self.ended = threading.Event(), threading.Event()
        self.transport: paramiko.Transport | None = None
        self.window, self.grace = 0, 15.0
        self.ciphers: list[str] = []
        self._at, self._raw, self._act = at, raw, act
        self.key = new_key(folder / "host")
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        new_key(folder / "id")
        line = f"[127.0.0.1]:{self.port} {self.key.get_name()} {self.key.get_base64()}\n"
        (folder / "known_hosts").write_text(line)
        self._threads: list[threading.Thread] = []
        self._start(self._serve)

    def close(self) -> None:
        """Stop misbehaving, and end."""
        self.ended.set()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        if self.transport is not None:
            self.transport.close()
        for thread in self._threads:
            thread.join(60)

    def forever(self) -> Iterator[None]:
        """Once for each time that something is to be done, with a pause, until it ends."""
        while not self.ended.wait(PAUSE):
            yield

    def _start(self, target: Callable[..., None], *given: Any) -> None:
        self._threads.append(threading.Thread(target=target, args=given))
        self._threads[-1].start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self._start(self._converse, connection)

    def _converse(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException), connection:
            if self._raw is not None:
                self.reached.set()
                self._raw(self, connection)
                return
            self.transport = paramiko.Transport(connection)
            self.transport.banner_timeout = self.grace
            if self.window:
                self.transport.default_window_size = self.window
            if self.ciphers:
                self.transport.get_security_options().ciphers = self.ciphers
            self.transport.add_server_key(self.key)
            self.transport.start_server(server=self)
            self.ended.wait()

    def _stay(self, moment: str) -> None:
        if self._at == moment:
            self.reached.set()
            self.ended.wait()

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self._stay("auth")
        return paramiko.common.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        self._stay("channel")
        return paramiko.common.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self._stay("exec")
        if self._act is not None:
            self._start(self._run, channel)
        return True

    def _run(self, channel: paramiko.Channel) -> None:
        assert self._act is not None
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            # By its first byte the client has begun to count the time of the command.
            channel.recv(1)
            self.reached.set()
            self._act(self, channel)


def new_key(path: Path) -> paramiko.PKey:
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(str(path))
    path.chmod(0o600)
    return paramiko.Ed25519Key(filename=str(path))
