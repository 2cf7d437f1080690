# SPDX-License-Identifier: Apache-2.0
"""Certificates of OpenSSH, of hosts and of users: what one says, and whether that holds now.

The format is PROTOCOL.certkeys of OpenSSH; cryptography reads it and verifies the signature.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Container, Iterable

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    SSHCertificate,
    SSHCertificateType,
    load_ssh_public_identity,
)

from edgetune.base import clock

SUFFIX = "-cert-v01@openssh.com"
"""Of the types of certificates; before it stands the type of the key."""

_HOST, _USER = SSHCertificateType.HOST, SSHCertificateType.USER
# SHA-1 is no signature any more; OpenSSH takes none from an authority either.
_RSA_SIGNATURES = (b"rsa-sha2-256", b"rsa-sha2-512")


def blob_of(key: object) -> bytes:
    """A public key of cryptography as SSH sends it."""
    line: bytes = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)  # type: ignore[attr-defined]
    return base64.b64decode(line.split()[1])


def read_certificate(line: bytes) -> SSHCertificate:
    """Of ``TYPE BASE64``; ValueError if it is no certificate that can be read."""
    try:
        certificate = load_ssh_public_identity(line)
    except (ValueError, UnsupportedAlgorithm, InvalidSignature):
        raise ValueError("is no certificate of OpenSSH that can be read") from None
    if not isinstance(certificate, SSHCertificate):
        raise ValueError("is a public key, and no certificate")
    return certificate


def check_user(certificate: SSHCertificate, key: bytes) -> None:
    """ValueError says why it logs nobody in with a key (as SSH sends it) now."""
    if certificate.type is not _USER:
        raise ValueError("is the certificate of a host, and not of a user")
    if blob_of(certificate.public_key()) != key:
        raise ValueError("is not for the key of ssh_key_file")
    _check_time(certificate)


def check_host(
    blob: bytes,
    key: bytes,
    name: str,
    authorities: Container[bytes],
    revoked: Container[bytes],
) -> None:
    """ValueError says why a certificate does not prove that ``key`` is that of the host ``name``.

    As with OpenSSH a name in it is no pattern.
    """
    size = int.from_bytes(blob[:4], "big")
    certificate = read_certificate(blob[4 : 4 + size] + b" " + base64.b64encode(blob))
    authority = blob_of(certificate.signature_key())
    if authority not in authorities:
        raise ValueError("is not by a @cert-authority that known_hosts has for it")
    if authority in revoked:
        raise ValueError("is by an authority that is revoked in known_hosts")
    _check_signature(certificate, blob)
    if blob_of(certificate.public_key()) != key:
        raise ValueError("is for another key")
    if certificate.type is not _HOST:
        raise ValueError("is the certificate of a user, and not of a host")
    if certificate.critical_options:
        raise ValueError(f"has options that are not known: {_listed(certificate.critical_options)}")
    if name.encode() not in certificate.valid_principals:
        names = _listed(certificate.valid_principals) or "no name"
        raise ValueError(f"is for {names}, and not for {name}")
    _check_time(certificate)


def _check_signature(certificate: SSHCertificate, blob: bytes) -> None:
    authority = certificate.signature_key()
    try:
        # The signature ends a certificate: its type, and as many bytes as the key of RSA has.
        if isinstance(authority, RSAPublicKey):
            before = blob[: -4 - (authority.key_size + 7) // 8]
            if not before.endswith(_RSA_SIGNATURES):
                raise ValueError("is by SHA-1")
        certificate.verify_cert_signature()
    except (InvalidSignature, UnsupportedAlgorithm, ValueError):
        raise ValueError("has a signature that does not hold") from None


def _check_time(certificate: SSHCertificate) -> None:
    now = clock.wall()
    if now < certificate.valid_after:
        raise ValueError(f"is not valid before {_day(certificate.valid_after)}")
    if now >= certificate.valid_before:
        raise ValueError(f"expired on {_day(certificate.valid_before)}")


def _day(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def _listed(names: Iterable[bytes]) -> str:
    """Some of what another machine wrote."""
    shown = [ascii(name[:60].decode("latin-1")) for name in [*names][:3]]
    return ", ".join(shown)
