# SPDX-License-Identifier: Apache-2.0
"""Doctor warns of certificates before they expire: of the user, of files, of load balancers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from edgetune.rollout.steps.doctor_pop import doctor_pop
from tests.support.builders import inventory_document, write_yaml
from tests.support.real_sshd import keygen, make_key
from tests.support.world import EmptyWorld

HOUR = 3600.0
DAY = 24 * HOUR


def certificate(seconds: float, encoding: Encoding = Encoding.PEM) -> bytes:
    """One that ends in so many seconds."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(timezone.utc)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lb")])
    built = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    built = built.not_valid_before(now - timedelta(days=60))
    built = built.not_valid_after(now + timedelta(seconds=seconds))
    return built.sign(key, hashes.SHA256()).public_bytes(encoding)


@pytest.fixture
def world(tmp_path: Path) -> EmptyWorld:
    return EmptyWorld(tmp_path)


def check(world: EmptyWorld) -> tuple[str, list[str]]:
    """What the check means, and what it finds; "" without one."""
    rows = doctor_pop(world.context, "lab1")["checks"]
    own: list[Any] = [row for row in rows if row["check"] == "certificates"]
    if not own:
        return "", []
    assert all(row["advice"] == "renew it" for row in own[0]["findings"])
    return str(own[0]["means"]), [row["what"] for row in own[0]["findings"]]


def shows(world: EmptyWorld, monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
    found: Mapping[str, bytes] = {
        f"tls://192.0.2.{number}:9999": certificate(left, Encoding.DER)
        for number, left in enumerate(seconds, 1)
    }
    monkeypatch.setattr(world.balancer, "certificates", lambda: found, raising=False)


def with_haproxy(folder: Path, **fields: str) -> EmptyWorld:
    """One whose inventory has these fields of an HAProxy."""
    world = EmptyWorld(folder)
    document = inventory_document()
    entry = {"driver": "haproxy", "address": "tls://127.0.0.1:1", "backend": "edges", **fields}
    document["pops"]["lab1"]["load_balancer"] = entry
    write_yaml(Path(world.config["inventory"]), document)
    return world


def test_without_a_certificate_nothing_is_said(world: EmptyWorld) -> None:
    assert check(world) == ("", [])


def test_what_load_balancers_show_is_warned_of_with_the_days_left(
    world: EmptyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    shows(world, monkeypatch, 15 * DAY, 3 * DAY + HOUR, 400 * DAY)
    means, (found,) = check(world)
    assert means == "none of 3 expires within 14d"
    told = "the certificate that tls://192.0.2.2:9999 shows expires in 3d"
    assert found.startswith(told), found
    assert found.endswith("Z")
    failed = doctor_pop(world.context, "lab1")
    assert failed["failed"] == ["certificates"]


def test_the_threshold_is_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for within, count in (("14d", 0), ("20d", 1)):
        world = EmptyWorld(tmp_path, certificate_warning=within)
        shows(world, monkeypatch, 15 * DAY)
        means, found = check(world)
        assert (means, len(found)) == (f"none of 1 expires within {within}", count)


def test_one_that_has_expired_says_when(world: EmptyWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    shows(world, monkeypatch, -HOUR)
    (found,) = check(world)[1]
    assert "shows has expired at 2" in found


@pytest.mark.parametrize(("field", "left"), [("ca_file", 0), ("certificate_file", 1)])
def test_files_of_the_inventory_are_read(tmp_path: Path, field: str, left: int) -> None:
    """Of authorities the last to end does for all; of ours the first that ends stops a login."""
    file = tmp_path / "own.pem"
    file.write_bytes(certificate(2 * DAY + HOUR) + certificate(60 * DAY))
    means, found = check(with_haproxy(tmp_path, **{field: str(file)}))
    assert means == "none of 1 expires within 14d"
    assert len(found) == left
    assert not left or f"the certificate of load_balancer.{field} {file} expires in 2d" in found[0]


def test_a_file_that_cannot_be_read_is_left_to_its_own_check(tmp_path: Path) -> None:
    world = with_haproxy(tmp_path, ca_file=str(tmp_path / "gone.pem"))
    assert check(world) == ("", [])
    (tmp_path / "gone.pem").write_text("no certificate")
    assert check(world) == ("", [])


@pytest.mark.processes
@pytest.mark.parametrize(("valid", "days"), [("+5d2h", "5d"), ("+30d", ""), ("", "")])
def test_the_certificate_of_the_user_is_read(tmp_path: Path, valid: str, days: str) -> None:
    """By OpenSSH's own tool; one without an end has none to be warned of."""
    authority, key = make_key(tmp_path / "ca"), make_key(tmp_path / "id")
    until = ["-V", valid] if valid else []
    keygen("-s", authority, "-I", "ana", "-n", "root", *until, f"{key}.pub")
    means, found = check(EmptyWorld(tmp_path, ssh_key_file=str(key)))
    assert (means == "none of 1 expires within 14d") == bool(valid)
    assert len(found) == bool(days)
    assert not days or f"the user certificate {key}-cert.pub expires in {days}" in found[0]
