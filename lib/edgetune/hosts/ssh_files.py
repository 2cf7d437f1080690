# SPDX-License-Identifier: Apache-2.0
"""Reads the private key and the known_hosts file that the configuration names."""

from __future__ import annotations

from pathlib import Path

import paramiko

from edgetune.errors import InputError


def load_key(path: Path) -> paramiko.PKey:
    """The private key of the configuration."""
    try:
        return paramiko.Ed25519Key.from_private_key_file(str(path))
    except paramiko.SSHException:
        return paramiko.PKey.from_path(str(path))
    except OSError as error:
        raise InputError("configuration", "ssh_key_file", f"cannot be read: {error}") from None


def load_known_hosts(path: Path) -> paramiko.HostKeys:
    """The keys of all hosts."""
    try:
        return paramiko.HostKeys(str(path))
    except OSError as error:
        raise InputError("configuration", "ssh_known_hosts", f"cannot be read: {error}") from None
