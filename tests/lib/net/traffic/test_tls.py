# SPDX-License-Identifier: Apache-2.0
"""The runtime APIs of two real HAProxies over TCP with TLS, client certificates required.

A ``stats socket`` with ``ssl`` is no such API: HAProxy 2.6.12 takes the word and answers in plain
text. So HAProxy has its own socket behind a ``listen`` section, which knows TLS.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509

from edgetune.base.errors import DrainError
from edgetune.net.traffic.drivers.haproxy import Haproxy
from lab.bmc.certificates import make_certificates
from tests.support.programs import free_port
from tests.support.real_haproxy import RealHaproxy, needs_haproxy, running

pytestmark = needs_haproxy

_API = """
listen api
    mode tcp
    bind 127.0.0.1:{port} ssl crt {folder}/own.pem {verify}
    server socket unix@FOLDER/admin
"""
_SERVERS = ("edges", [f"server e00{number} 192.0.2.{number + 1}:80" for number in range(3)])


class Site(NamedTuple):
    """Two HAProxies, and the PEM files of both sides."""

    haproxies: list[RealHaproxy]
    address: str
    ca: str
    client: str

    def driver(self, **other: str) -> Haproxy:
        files = {"ca_file": self.ca, "certificate_file": self.client, **other}
        return Haproxy(self.address, "edges", **{"server_name": "lb.example.org", **files})


def _made(folder: Path, name: str) -> tuple[str, str]:
    """A CA, and a file with a certificate and its key."""
    folder.mkdir()
    made = make_certificates(folder, [name])
    both = folder / "own.pem"
    both.write_bytes(made.certificate.read_bytes() + made.key.read_bytes())
    return str(made.authority), str(both)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("tls")
    ca, own = _made(folder / "server", "lb.example.org")
    client_ca, client = _made(folder / "client", "edgetune")
    verify = f"ca-file {client_ca} verify required"
    with ExitStack() as stack:
        ports = [free_port(), free_port()]
        texts = [_API.format(port=port, folder=Path(own).parent, verify=verify) for port in ports]
        started = [stack.enter_context(running([_SERVERS], text)) for text in texts]
        address = " ".join(f"tls://127.0.0.1:{port}" for port in ports)
        yield Site(started, address, ca, client)


def test_both_are_asked_and_changed(site: Site) -> None:
    driver = site.driver()
    assert driver.refuses_changes() == ""
    driver.isolate("e001")
    for haproxy in site.haproxies:
        assert haproxy.driver().servers()["e001"].withdrawn == "maint"
    assert driver.servers()["e001"].withdrawn == "maint"
    driver.restore("e001")
    assert driver.servers()["e001"].is_serving


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"certificate_file": ""}, "CERTIFICATE_REQUIRED|certificate required"),
        ({"server_name": "other.example.org"}, "Hostname mismatch.*other.example.org"),
        ({"server_name": ""}, "IP address mismatch.*127.0.0.1"),
        ({"ca_file": ""}, "certificate verify failed"),
        ({"ca_file": "/nowhere/ca.pem"}, "ca_file /nowhere/ca.pem: No such file"),
        ({"certificate_file": "/nowhere.pem"}, "certificate_file /nowhere.pem: No such file"),
    ],
)
def test_nobody_is_believed_or_believes_without_the_right_certificates(
    site: Site, other: dict[str, str], told: str
) -> None:
    driver = site.driver(**other)
    for call in (driver.servers, driver.refuses_changes, lambda: driver.isolate("e000")):
        with pytest.raises(DrainError, match=told):
            call()
    assert site.haproxies[0].driver().servers()["e000"].is_serving


def test_a_certificate_of_another_ca_opens_nothing(site: Site, tmp_path: Path) -> None:
    _, stranger = _made(tmp_path / "stranger", "edgetune")
    with pytest.raises(DrainError, match="HAProxy does not answer"):
        site.driver(certificate_file=stranger).servers()
    with pytest.raises(DrainError):
        Haproxy(site.address.replace("tls:", "tcp:"), "edges").servers()


def test_the_certificates_of_both_are_told_and_of_one_that_is_not_believed_none(site: Site) -> None:
    shown = site.driver().certificates()
    assert [*shown] == site.address.split()
    for data in shown.values():
        found = x509.load_der_x509_certificate(data)
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == ["lb.example.org"]
    assert site.driver(ca_file="").certificates() == {}
    assert Haproxy("tcp://127.0.0.1:1", "edges").certificates() == {}
