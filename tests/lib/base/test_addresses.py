# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.base.addresses import canonical, canonical_url


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2001:db8::1", "2001:DB8:0::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::ffff:a00:1", "10.0.0.1"),
        ("Edge1.Example.ORG.", "edge1.example.org"),
    ],
)
def test_one_address_has_one_spelling(one: str, other: str) -> None:
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize("text", ["10.0.0.01", "10.1", "0x0a000001", "edge.0x1", "1::2::3", "300"])
def test_what_programs_would_read_as_different_addresses_is_none(text: str) -> None:
    with pytest.raises(ValueError):
        canonical(text)


@given(st.ip_addresses())
def test_every_spelling_of_an_address_is_the_same(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    assert canonical(address.exploded.upper()) == canonical(str(address))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://BMC1", "https://bmc1:443"),
        ("https://[2001:DB8:0::1]", "https://[2001:db8::1]:443"),
        ("tcp://[::ffff:10.0.0.1]:9999", "tcp://10.0.0.1:9999"),
        ("unix:///run/HAProxy.sock", "unix:///run/HAProxy.sock"),
    ],
)
def test_one_place_has_one_url(one: str, other: str) -> None:
    assert canonical_url(one) == canonical_url(other)


@pytest.mark.parametrize("url", ["tcp://10.0.0.1:99999", "https://10.0.0.01", "https://[fe80::g]"])
def test_a_url_of_no_place_is_none(url: str) -> None:
    with pytest.raises(ValueError):
        canonical_url(url)
