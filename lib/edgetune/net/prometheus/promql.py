# SPDX-License-Identifier: Apache-2.0
"""Selectors of PromQL. Names and texts are quoted: none can end the string that it stands in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from edgetune.base.addresses import filled
from edgetune.base.dataclass import dataclass
from edgetune.site.inventory import Host

LABEL = r"[A-Za-z_][A-Za-z0-9_]*"
_MATCHER = rf'{LABEL} *(?:=~|!~|!=|=) *"(?:[^"\\\n]|\\[^\n])*"'
MATCHERS = rf"(?:{_MATCHER} *(?:, *{_MATCHER} *)*)?"
"""Matchers as PromQL has them between braces, without a comma at the end."""
METRIC_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"

_ONE = re.compile(rf'({LABEL}) *(=~|!~|!=|=) *"((?:[^"\\\n]|\\[^\n])*)"')
_PLACE = re.compile(r"\{(name|address)\}")


def quoted(text: str) -> str:
    """A string of PromQL."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def one_of(label: str, values: Iterable[str]) -> str:
    """The matcher of a label that has one of these values, each taken literally."""
    # RE2 takes a backslash before any character of ASCII that is no letter and no digit.
    return f"{label}=~{quoted('|'.join(map(re.escape, sorted({*values}))))}"


def selector(*matchers: str) -> str:
    """The series that all of these match."""
    return f"{{{','.join(filter(None, matchers))}}}"


@dataclass(frozen=True)
class HostMatcher:
    """How hosts are found among series: each label of ``own`` has the value that name or address
    of a host make of its template; ``fixed`` are the matchers that are the same for all."""

    own: tuple[tuple[str, str], ...]
    fixed: str

    def by_labels(self, hosts: Sequence[Host]) -> Mapping[tuple[str, ...], str]:
        """The name of each host by its values of the labels; ValueError where two have the same."""
        found: dict[tuple[str, ...], str] = {}
        for host in hosts:
            values = tuple(_value(template, host) for _, template in self.own)
            other = found.setdefault(values, host.name)
            if other != host.name:
                told = ", ".join(f"{label}={quoted(v)}" for (label, _), v in zip(self.own, values))
                raise ValueError(f"{other} and {host.name} are both {told}")
        return found

    def matchers(self, hosts: Sequence[Host]) -> list[str]:
        """Those of the series of these hosts."""
        own = [
            one_of(label, [_value(template, host) for host in hosts])
            for label, template in self.own
        ]
        return [*own, *filter(None, [self.fixed])]

    def values_in(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        """What a series has for the labels, as ``by_labels`` has it."""
        return tuple(labels.get(label, "") for label, _ in self.own)


def read_host_matcher(text: str) -> HostMatcher:
    """A template such as ``instance="{address}:9100", job="node"``; ValueError if it is none."""
    own, fixed = [], []
    for label, operator, value in _ONE.findall(text):
        if not _PLACE.search(value):
            fixed.append(f'{label}{operator}"{value}"')
        elif operator == "=" and "\\" not in value:
            own.append((label, value))
        else:
            raise ValueError(f'{label} has to be written as {label}="...", without a backslash')
    if not own:
        raise ValueError('says no host; write it like instance="{address}:9100"')
    return HostMatcher(tuple(own), ",".join(fixed))


def _value(template: str, host: Host) -> str:
    return filled(template, {"name": host.name, "address": host.address})
