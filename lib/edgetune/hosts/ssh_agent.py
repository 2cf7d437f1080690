# SPDX-License-Identifier: Apache-2.0
"""A private key that an ssh-agent keeps: it signs, and never gives the key away.

The protocol is draft-miller-ssh-agent; paramiko's own client knows the socket of the environment
alone, and must not be asked by two threads at once.
"""

from __future__ import annotations

from pathlib import Path

import paramiko
from paramiko.agent import AgentKey

from edgetune import clock
from edgetune.net.connection import Connection, reach_path

_REQUEST_IDENTITIES, _IDENTITIES = 11, 12
# OpenSSH's agent refuses longer messages itself (AGENT_MAX_LEN).
_LONGEST = 256 * 1024


class Agent:
    """What listens at a socket; each question has a connection, and ``seconds``, of its own."""

    def __init__(self, path: Path, seconds: float) -> None:
        self._path, self._seconds = path, seconds

    def key(self, wanted: bytes) -> AgentKey:
        """Its key with that public key (as SSH sends it); OSError or ValueError if it has none."""
        type, answer = self._send_message(bytes([_REQUEST_IDENTITIES]))
        if type != _IDENTITIES:
            raise ValueError("is no ssh-agent, or does not tell its keys")
        blobs = [(answer.get_binary(), answer.get_text())[0] for _ in range(answer.get_int())]
        if not blobs:
            raise ValueError("holds no keys; it may be locked")
        if wanted not in blobs:
            raise ValueError(f"does not hold the key of ssh_key_file, but {len(blobs)} others")
        return AgentKey(self, wanted)  # type: ignore[arg-type]

    def _send_message(self, message: object) -> tuple[int, paramiko.Message]:
        """Type and content of the answer; paramiko's keys of agents ask so for a signature."""
        asked = message if isinstance(message, bytes) else bytes(message.asbytes())  # type: ignore[attr-defined]
        ends = clock.monotonic() + self._seconds
        with Connection(reach_path(str(self._path), ends), ends) as connection:
            connection.sendall(len(asked).to_bytes(4, "big") + asked)
            size = int.from_bytes(_received(connection, 4), "big")
            if not 0 < size <= _LONGEST:
                raise ValueError("is no ssh-agent")
            answer = _received(connection, size)
        return answer[0], paramiko.Message(answer[1:])


def _received(connection: Connection, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ValueError("ended the connection")
        data += part
    return data
