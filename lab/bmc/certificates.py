# SPDX-License-Identifier: Apache-2.0
"""A certificate authority of one lab, and the certificate of its BMCs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

LIFE = timedelta(days=30)


@dataclass(frozen=True)
class Certificates:
    """Files: what a client trusts, and what the BMCs show; the key's mode is 0600."""

    authority: Path
    certificate: Path
    key: Path


def make_certificates(directory: Path, addresses: Iterable[str]) -> Certificates:
    """Write ca.pem, bmc.pem and bmc.key for servers at these IP addresses or names.

    The authority's own key is written nowhere: it signs this one certificate.
    """
    signer = ec.generate_private_key(ec.SECP256R1())
    issuer = _name("edgetune lab CA")
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    authority = _builder(issuer, issuer, signer.public_key(), signer.public_key())
    authority = authority.add_extension(constraints, critical=True)
    authority = authority.add_extension(_signs(), critical=True)
    own = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([_general_name(one) for one in addresses])
    server = _builder(issuer, _name("edgetune lab BMC"), own.public_key(), signer.public_key())
    server = server.add_extension(names, critical=False)
    files = Certificates(directory / "ca.pem", directory / "bmc.pem", directory / "bmc.key")
    files.authority.write_bytes(_signed(authority, signer))
    files.certificate.write_bytes(_signed(server, signer))
    secret = own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    _write_secret(files.key, secret)
    return files


def _general_name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    issuer: x509.Name,
    subject: x509.Name,
    public: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePublicKey,
) -> x509.CertificateBuilder:
    now = datetime.now(timezone.utc)
    builder = x509.CertificateBuilder().issuer_name(issuer).subject_name(subject)
    builder = builder.public_key(public).serial_number(x509.random_serial_number())
    # Clocks of a lab may differ a little, and a test may move its own.
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + LIFE)
    own = x509.SubjectKeyIdentifier.from_public_key(public)
    other = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer)
    return builder.add_extension(own, critical=False).add_extension(other, critical=False)


def _signs() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(builder: x509.CertificateBuilder, signer: ec.EllipticCurvePrivateKey) -> bytes:
    return builder.sign(signer, hashes.SHA256()).public_bytes(Encoding.PEM)


def _write_secret(path: Path, secret: bytes) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secret)
