# SPDX-License-Identifier: Apache-2.0
"""The option ``alertmanager``: what is taken, what is refused by name, and whom matchers mean."""

from __future__ import annotations

from typing import Any

import pytest

from edgetune.alertmanager import BOUND, Alertmanager
from edgetune.config import read_config
from edgetune.errors import InputError

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
    assert _read(OWN) == Alertmanager((URL,), {"host": "{name}"}, BOUND)
    several = {**OWN, "url": [f"{URL}/", "https://[2001:db8::1]/alertmanager"], "bound": "1h"}
    read = _read(several)
    assert read.url == (URL, "https://[2001:db8::1]/alertmanager")
    assert read.bound == 3600


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"url": None}, "alertmanager.url: is missing"),
        ({"url": []}, "alertmanager.url: is empty"),
        ({"url": "alerts:9093"}, "alertmanager.url: must be http(s)://HOST[:PORT][/PATH], and "),
        ({"url": [URL, "http://ana:secret@host"]}, "alertmanager.url: must be http(s)://HOST"),
        ({"url": 7}, "alertmanager.url: must be a list, not a number"),
        ({"matchers": None}, "alertmanager.matchers: is missing"),
        ({"matchers": {}}, "alertmanager.matchers: name no host: one has to have {name} or "),
        ({"matchers": {"pop": "{pop}"}}, "alertmanager.matchers: name no host"),
        ({"matchers": {"host": "{nmae}"}}, "alertmanager.matchers.host: '{nmae}' does not match"),
        ({"matchers": {"host": ""}}, "alertmanager.matchers.host: '' does not match"),
        ({"matchers": {"a-b": "{name}"}}, "alertmanager.matchers.'a-b': is no name of a label"),
        ({"bound": "59s"}, "alertmanager.bound: 59s is below 1m"),
        ({"bound": "15m"}, "alertmanager.bound: must be longer than owner_timeout, 15m"),
        ({"username": "ana"}, "alertmanager.username: and password_file belong together"),
        ({"key_file": "/k"}, "alertmanager.certificate_file: and key_file belong together"),
        (
            {"username": "ana", "password_file": "/p", "bearer_token_file": "/t"},
            "alertmanager.bearer_token_file: is given beside username",
        ),
        ({"bearer_token": "s3cret"}, "alertmanager.bearer_token: is not known here"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        _read({**OWN, **change})
    assert f"configuration: {says}" in str(caught.value)
    assert "secret@" not in str(caught.value)


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
    settings = Alertmanager((URL,), {"instance": template, "job": "node"})
    assert settings.matchers_of("lab1", "e000", address) == {"instance": value, "job": "node"}
