# SPDX-License-Identifier: Apache-2.0
"""The option ``alertmanager``: where alerts of hosts are silenced, how, and for how long."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from dataclasses import fields as members

from edgetune.base.addresses import filled
from edgetune.base.dataclass import dataclass
from edgetune.base.fields import Fields
from edgetune.base.sanitize import Pattern
from edgetune.base.secret_files import HttpLogin

BOUND = 1800.0
"""Seconds, unless given."""
_URL = Pattern(
    r"https?://[A-Za-z0-9._:\[\]-]+(/[A-Za-z0-9._~/-]*)?", "http(s)://HOST[:PORT][/PATH]"
)
_LABEL = Pattern(r"[A-Za-z_][A-Za-z0-9_]*", "letters, digits and _, a letter or _ first")
_TEMPLATE = Pattern(
    r"([^{}]|\{(name|address|pop)\})+", "text with {name}, {address} or {pop} of a host"
)
_OF_A_HOST = re.compile(r"\{(name|address)\}")


@dataclass(frozen=True)
class Alertmanager(HttpLogin):
    """Members of one cluster by ``url``, of which any will do; none where nothing is silenced.

    ``matchers`` has for each label of an alert the value that it has on a host: a text with
    ``{name}``, ``{address}`` and ``{pop}``. No silence lasts longer than ``bound`` seconds unless
    it is renewed.
    """

    url: tuple[str, ...] = ()
    matchers: Mapping[str, str] = field(default_factory=dict)
    bound: float = BOUND

    def matchers_of(self, pop: str, name: str, address: str) -> dict[str, str]:
        """The labels of the alerts of one host, with their values."""
        values = {"pop": pop, "name": name, "address": address}
        return {label: filled(text, values) for label, text in self.matchers.items()}


def read_alertmanager(fields: Fields) -> Alertmanager:
    """The option as it is given, where that is empty the one that silences nothing; InputError
    names the field."""
    if not fields.names():
        return Alertmanager()
    read = Alertmanager(
        url=_read_urls(fields),
        matchers=_read_matchers(fields.inside("matchers")),
        bound=fields.duration("bound", BOUND, minimum=60),
        **{each.name: fields.text(each.name, "") for each in members(HttpLogin)},
    )
    fields.done()
    _refuse_halves(fields, read)
    if not any(_OF_A_HOST.search(text) for text in read.matchers.values()):
        raise fields.wrong("matchers", "name no host: one has to have {name} or {address}")
    return read


def _read_urls(fields: Fields) -> tuple[str, ...]:
    """One URL, or a list of them."""
    one = isinstance(fields.raw("url"), str)
    urls = (fields.text("url"),) if one else fields.texts("url")
    for url in urls:
        # It may hold a password, so it is not shown.
        if not re.fullmatch(_URL, url):
            raise fields.wrong("url", f"must be {_URL.words}, and holds no password")
    if not urls:
        raise fields.wrong("url", "is empty")
    return tuple(url.rstrip("/") for url in urls)


def _read_matchers(fields: Fields) -> dict[str, str]:
    for label in fields.names():
        if not re.fullmatch(_LABEL, label):
            raise fields.wrong(repr(label), f"is no name of a label: {_LABEL.words}")
    return {label: fields.text(label, pattern=_TEMPLATE) for label in fields.names()}


def _refuse_halves(fields: Fields, read: Alertmanager) -> None:
    """What needs another field to have any effect."""
    if bool(read.username) != bool(read.password_file):
        raise fields.wrong("username", "and password_file belong together")
    if bool(read.certificate_file) != bool(read.key_file):
        raise fields.wrong("certificate_file", "and key_file belong together")
    if read.username and read.bearer_token_file:
        raise fields.wrong("bearer_token_file", "is given beside username: give one of them")
