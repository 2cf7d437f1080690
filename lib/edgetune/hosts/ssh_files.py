# SPDX-License-Identifier: Apache-2.0
"""Reads the private key and the known_hosts file that the configuration names."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm

from edgetune.errors import InputError
from edgetune.files import read_file
from edgetune.hosts.known_hosts import KnownHosts

_KEY_BYTES = 1 << 16
_KNOWN_HOSTS_BYTES = 32 << 20


def load_key(path: Path) -> paramiko.PKey:
    """The private key in a file; InputError says why there is none that can be used.

    As with OpenSSH, a file of this user that others can read is refused.
    """
    data = _read("ssh_key_file", path, _KEY_BYTES)
    found = path.stat()
    if found.st_uid == os.geteuid() and found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise _wrong("ssh_key_file", path, "others can read it; chmod 600 it")
    if b"PRIVATE KEY" not in data:
        raise _wrong("ssh_key_file", path, "holds no private key")
    try:
        return paramiko.PKey.from_path(str(path))
    # A key with a passphrase is a TypeError, or a ValueError, by its format.
    except (paramiko.SSHException, UnsupportedAlgorithm, ValueError, TypeError):
        text = "is no private key without a passphrase, of type ed25519, ECDSA or RSA"
        raise _wrong("ssh_key_file", path, text) from None


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
