# SPDX-License-Identifier: Apache-2.0
"""Reads the key, its certificate and the known_hosts file that the configuration names.

The key may be kept by an ssh-agent, which signs and never gives it away.
"""

from __future__ import annotations

import base64
import io
import os
import stat
from contextlib import suppress
from pathlib import Path

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import SSHCertificate
from paramiko.agent import AgentKey

from edgetune.base import clock
from edgetune.base.errors import InputError
from edgetune.base.files import read_file
from edgetune.net.connection import Connection, reach_path
from edgetune.net.hosts.certificates import SUFFIX, check_user, read_certificate
from edgetune.net.hosts.known_hosts import KnownHosts
from edgetune.site.config import Config

_REQUEST_IDENTITIES, _IDENTITIES = 11, 12
# OpenSSH's agent refuses longer messages itself (AGENT_MAX_LEN).
_LONGEST = 256 * 1024
_KEY_BYTES = 1 << 16
_KNOWN_HOSTS_BYTES = 32 << 20
_PUBLIC = (b"ssh-", b"ecdsa-", b"sk-")


class Agent:
    """An ssh-agent at a socket; each question has a connection, and ``seconds``, of its own.

    The protocol is draft-miller-ssh-agent. paramiko's own client knows the socket of the
    environment alone, and must not be asked by two threads at once.
    """

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


def load_login_key(config: Config) -> paramiko.PKey:
    """The key that hosts are logged in with, of a file or of an agent, with its certificate.

    InputError names the option and what is wrong, a certificate that has expired included.
    """
    path = config.ssh_key_file
    certificate = _certificate_path(config)
    if config.ssh_agent:
        key: paramiko.PKey = _key_of_agent(Path(config.ssh_agent), path, config.ssh_timeout)
    else:
        key = load_key(path)
    if certificate:
        _add_certificate(key, certificate)
    return key


def load_user_certificate(config: Config) -> list[tuple[Path, SSHCertificate]]:
    """The file and the certificate of the user, if there is one; InputError if it is none."""
    path = _certificate_path(config)
    if path is None:
        return []
    data = _read("ssh_certificate_file", path, _KEY_BYTES)
    try:
        return [(path, read_certificate(b" ".join(data.split()[:2])))]
    except ValueError as error:
        raise _wrong("ssh_certificate_file", path, str(error)) from None


def _certificate_path(config: Config) -> Path | None:
    """The one that is named, or that lies beside the key."""
    if config.ssh_certificate_file:
        return Path(config.ssh_certificate_file)
    path = config.ssh_key_file
    beside = Path(f"{path}-cert.pub" if path.suffix != ".pub" else f"{str(path)[:-4]}-cert.pub")
    return beside if beside.exists() else None


def load_key(path: Path) -> paramiko.PKey:
    """The private key in a file; InputError says why there is none that can be used.

    As with OpenSSH, a file of this user that others can read is refused.
    """
    data = _read("ssh_key_file", path, _KEY_BYTES)
    if b"PRIVATE KEY" not in data:
        hint = "; the public key is for ssh_agent" if data.startswith(_PUBLIC) else ""
        raise _wrong("ssh_key_file", path, f"holds no private key{hint}")
    status = path.stat()
    if status.st_uid == os.geteuid() and status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise _wrong("ssh_key_file", path, "others can read it; chmod 600 it")
    for kind in (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey):
        # Each refuses in its own way: a key with a passphrase, of another type, or in part.
        with suppress(
            paramiko.SSHException, UnsupportedAlgorithm, ValueError, TypeError, IndexError
        ):
            return kind.from_private_key(io.StringIO(data.decode("latin-1")))
    text = "is no private key without a passphrase, of type ed25519, ECDSA or RSA"
    raise _wrong("ssh_key_file", path, text)


def _key_of_agent(agent: Path, path: Path, seconds: float) -> paramiko.PKey:
    """The key of an agent whose public key is in a file."""
    data = _read("ssh_key_file", path, _KEY_BYTES)
    if b"PRIVATE KEY" in data:
        raise _wrong("ssh_key_file", path, "must be the public key, as ssh_agent holds the other")
    if SUFFIX.encode() in data:
        text = "is a certificate; give the public key here, and this as ssh_certificate_file"
        raise _wrong("ssh_key_file", path, text)
    try:
        wanted = base64.b64decode(data.split()[1], validate=True)
    except (IndexError, ValueError):
        raise _wrong("ssh_key_file", path, "holds no public key") from None
    try:
        return Agent(agent, seconds).key(wanted)
    except (OSError, ValueError, paramiko.SSHException) as error:
        text = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise _wrong("ssh_agent", agent, text) from None


def _add_certificate(key: paramiko.PKey, path: Path) -> None:
    """Its type and content replace those of the key when it logs in."""
    data = _read("ssh_certificate_file", path, _KEY_BYTES)
    try:
        check_user(read_certificate(b" ".join(data.split()[:2])), key.asbytes())
    except ValueError as error:
        raise _wrong("ssh_certificate_file", path, str(error)) from None
    key.load_certificate(paramiko.Message(base64.b64decode(data.split()[1])))


def load_known_hosts(path: Path) -> KnownHosts:
    """The keys of all hosts; InputError names a line whose marker cannot be obeyed."""
    data = _read("ssh_known_hosts", path, _KNOWN_HOSTS_BYTES)
    try:
        return KnownHosts(data)
    except ValueError as error:
        raise _wrong("ssh_known_hosts", path, str(error)) from None


def _read(field: str, path: Path, most: int) -> bytes:
    try:
        return read_file(path, most)
    except (OSError, ValueError) as error:
        raise InputError("configuration", field, f"cannot be read: {error}") from None


def _wrong(field: str, path: Path, text: str) -> InputError:
    return InputError("configuration", field, f"{path}: {text}")
