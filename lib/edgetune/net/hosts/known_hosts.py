# SPDX-License-Identifier: Apache-2.0
"""Which keys a host may show: known_hosts in the format of OpenSSH.

Names are matched as OpenSSH matches them: plain, ``[ADDRESS]:PORT``, hashed, with wildcards and
negations. Three things differ, each to the safe side:

* a key that is ``@revoked`` on any line is refused for every host;
* a certificate that names no host is good for none;
* a line without a port does not hold for another port than 22.
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hmac
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import paramiko

from edgetune.base.addresses import KEY_TYPES, canonical
from edgetune.net.hosts.certificates import SUFFIX, check_host
from edgetune.site.inventory import Host


class _Line(NamedTuple):
    number: int
    marker: str
    names: str
    type: str
    key: str

    def blob(self) -> bytes:
        """The public key; ValueError if this is none of its type."""
        name = self.type.encode("latin-1")
        try:
            blob = base64.b64decode(self.key, validate=True)
        except binascii.Error:
            blob = b""
        if not name or not blob.startswith(len(name).to_bytes(4, "big") + name):
            raise ValueError(f"line {self.number}: is no public key of the type {self.type!a}")
        return blob


class KnownHosts:
    """A file of known hosts; ValueError names a line with a marker that cannot be obeyed."""

    def __init__(self, data: bytes) -> None:
        self._plain: dict[str, list[_Line]] = {}
        self._hashed: list[tuple[bytes, bytes, _Line]] = []
        self._patterns: list[_Line] = []
        self._revoked: set[bytes] = set()
        self._by_name: dict[str, list[_Line]] = {}
        for line in _lines(data):
            if line.marker == "@revoked":
                self._revoked.add(line.blob())
            elif line.marker not in ("", "@cert-authority"):
                raise ValueError(f"line {line.number}: {line.marker[:40]!a} is no marker")
            elif line.names.startswith("|"):
                self._hashed += [(*parts, line) for parts in _salt_and_hash(line.names)]
            elif re.search(r"[*?!]", line.names):
                self._patterns.append(line)
            else:
                for name in line.names.split(","):
                    self._plain.setdefault(name, []).append(line)

    def keys_of(self, address: str, port: int) -> HostKeys:
        """The keys a server may show; SSHException says why there is none."""
        # OpenSSH writes an IPv6 address in one spelling, and all else as it is given.
        name = canonical(address) if ":" in address else address.lower()
        return self._keys_of(name, name if port == 22 else f"[{name}]:{port}")

    def keys_of_host(self, host: Host) -> HostKeys:
        """The keys of a host: pinned, of its alias, or of its address."""
        if host.host_keys:
            lines = [_Line(0, "", "", *text.split()) for text in host.host_keys]
            blobs = {line.blob(): line.type for line in lines}
            none: frozenset[bytes] = frozenset()
            return HostKeys(host.address, blobs, none, frozenset(self._revoked), "the inventory")
        if host.host_key_alias:
            alias = host.host_key_alias.lower()
            return self._keys_of(alias, alias)
        return self.keys_of(host.address, host.port)

    def _keys_of(self, name: str, known_as: str) -> HostKeys:
        lines = [line for line in self._lines_of(known_as) if line.type in KEY_TYPES]
        try:
            blobs = {line.blob(): line.type for line in lines if not line.marker}
            authorities = frozenset(line.blob() for line in lines if line.marker)
        except ValueError as error:
            raise paramiko.SSHException(f"known_hosts: {error}") from None
        if blobs or authorities:
            return HostKeys(name, blobs, authorities, frozenset(self._revoked))
        unusable = self._lines_of(known_as)
        if unusable:
            types = ", ".join(sorted({line.type for line in unusable}))
            raise paramiko.SSHException(f"known_hosts: its keys are of unusable types: {types!a}")
        without = known_as != name and self._lines_of(name)
        hint = f"; write {known_as} where it is named without its port" if without else ""
        raise paramiko.SSHException(f"its SSH host key is not in known_hosts{hint}")

    def _lines_of(self, name: str) -> list[_Line]:
        """Remembered: every line with a hash costs some microseconds."""
        if name not in self._by_name:
            wanted = name.encode()
            self._by_name[name] = [
                *self._plain.get(name, ()),
                *(
                    line
                    for salt, hash, line in self._hashed
                    if hmac.digest(salt, wanted, "sha1") == hash
                ),
                *(line for line in self._patterns if _matches(name, line.names)),
            ]
        return self._by_name[name]


class HostKeys(paramiko.MissingHostKeyPolicy):
    """The keys that one host may show: asks for a key of their types, refuses any other key.

    A certificate by one of the ``authorities`` (their public keys) is asked for first.
    """

    def __init__(
        self,
        name: str,
        types: dict[bytes, str],
        authorities: frozenset[bytes],
        revoked: frozenset[bytes],
        place: str = "known_hosts",
    ) -> None:
        self._name, self._place = name, place
        self._types = types
        self._authorities = authorities
        self._revoked = revoked

    def transport(
        self, kind: type[paramiko.Transport], *given: Any, **options: Any
    ) -> paramiko.Transport:
        """A transport that asks first for keys that are known, and for ciphers that are quick
        (``transport_factory``)."""
        transport = kind(*given, **options)
        wanted = transport.get_security_options()
        # AES-GCM, as OpenSSH 10 prefers it: paramiko compares the MACs of all others byte by byte.
        wanted.ciphers = sorted(wanted.ciphers, key=lambda name: "-gcm@" not in name)
        keys = sorted(wanted.key_types, key=self._is_unknown)
        certificates = [f"{type}{SUFFIX}" for type in wanted.key_types if self._authorities]
        wanted.key_types = [*certificates, *keys]
        return transport

    def missing_host_key(
        self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
    ) -> None:
        """Called with every key that a host shows, as the client knows none itself."""
        plain = key.asbytes()
        if plain in self._revoked:
            raise paramiko.SSHException("its SSH host key is revoked in known_hosts")
        if plain in self._types:
            return
        if key.public_blob is not None and self._authorities:
            blob = key.public_blob.key_blob
            try:
                check_host(blob, plain, self._name, self._authorities, self._revoked)
            except ValueError as error:
                raise paramiko.SSHException(f"its SSH host certificate {error}") from None
        elif self._authorities:
            text = "its SSH host key is not in known_hosts, and it shows no certificate"
            raise paramiko.SSHException(text)
        else:
            raise paramiko.SSHException(f"its SSH host key is not the one in {self._place}")

    def _is_unknown(self, algorithm: str) -> bool:
        type = "ssh-rsa" if algorithm.startswith("rsa-sha2-") else algorithm
        return type not in self._types.values()


def _lines(data: bytes) -> Iterator[_Line]:
    for number, text in enumerate(data.split(b"\n"), 1):
        # A name that is no ASCII is no address of ours; as Latin-1 every byte is a letter.
        words = [word.decode("latin-1") for word in text.split(None, 4)]
        if words and not words[0].startswith("#"):
            marker = words.pop(0) if words[0].startswith("@") else ""
            names, type, key = (*words, "", "", "")[:3]
            # The case of a hash matters, the case of a name does not.
            names = names if names.startswith("|") else names.lower()
            yield _Line(number, marker, names, type, key)


def _salt_and_hash(names: str) -> list[tuple[bytes, bytes]]:
    """Of ``|1|SALT|HASH``, both in base64; none if it is something else."""
    parts = names.split("|")
    if len(parts) != 4 or parts[1] != "1":
        return []
    try:
        return [(binascii.a2b_base64(parts[2]), binascii.a2b_base64(parts[3]))]
    except ValueError:
        return []


def _matches(name: str, names: str) -> bool:
    """Whether one of the patterns is the name's, and none that begins with ! is."""
    patterns = names.split(",")
    refused = any(_fits(name, each[1:]) for each in patterns if each.startswith("!"))
    return not refused and any(_fits(name, each) for each in patterns)


def _fits(name: str, pattern: str) -> bool:
    # OpenSSH knows * and ?, and [ is part of a name.
    return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))
