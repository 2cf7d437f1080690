# SPDX-License-Identifier: Apache-2.0
"""The option ``alertmanager``: what is taken, what is refused by name, and whom matchers mean."""

from __future__ import annotations

from typing import Any

import pytest

from edgetune.site.alertmanager import BOUND, Alertmanager
from edgetune.site.config import read_config

GOOD = {"inventory": "/i.yaml", "ssh_key_file": "/k", "ssh_known_hosts": "/h"}
URL = "http://alerts.example.net:9093"
OWN = {"url": URL, "matchers": {"host": "{name}"}}


def _read(given: Any, **more: Any) -> Alertmanager:
    return read_config({**GOOD, **more, "alertmanager": given}).alertmanager


@pytest.mark.parametrize("given", [None, {}])
def test_without_it_nothing_is_silenced(given: Any) -> None:
    assert _read(given) == read_config(GOOD).alertmanager == Alertmanager()
    assert Alertmanager().url == ()


def test_one_url_or_several_are_taken() -> None:
    assert _read(OWN) == Alertmanager(url=(URL,), matchers={"host": "{name}"}, bound=BOUND)
    several = {**OWN, "url": [f"{URL}/", "https://[2001:db8::1]/alertmanager"], "bound": "1h"}
    read = _read(several)
    assert read.url == (URL, "https://[2001:db8::1]/alertmanager")
    assert read.bound == 3600


@pytest.mark.parametrize(
    ("template", "address", "value"),
    [
        ("{name}.example.net", "192.0.2.7", "e000.example.net"),
        ("{address}:9100", "192.0.2.7", "192.0.2.7:9100"),
        ("{address}:9100", "2001:db8::7", "[2001:db8::7]:9100"),
        ("{address}", "2001:db8::7", "2001:db8::7"),
        ("{pop}/{name}", "192.0.2.7", "lab1/e000"),
    ],
)
def test_matchers_are_those_of_a_host(template: str, address: str, value: str) -> None:
    settings = Alertmanager(url=(URL,), matchers={"instance": template, "job": "node"})
    assert settings.matchers_of("lab1", "e000", address) == {"instance": value, "job": "node"}
