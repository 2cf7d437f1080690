# SPDX-License-Identifier: Apache-2.0
"""Names of PoPs and hosts: how they are spelled, and how many of them stand in a sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence

from edgetune.base.sanitize import Pattern

NAME = Pattern(
    r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}", "letters, digits, _ . and -, a letter or digit first"
)
"""Of PoPs and hosts: such names stand in keys of records and in commands to load balancers."""

SPANS = 8
"""As many runs of names are shown at most."""


def listed(names: Sequence[str]) -> str:
    """Names in a sentence, of many the first ones."""
    if len(names) > 12:
        return f"{', '.join(names[:8])} and {len(names) - 8} more"
    return ", ".join(names) or "none"


def few(texts: Sequence[str], joint: str = "; ") -> str:
    """Texts in a sentence, of many the first three: ``a; b; c; and 2 more``, ``a, b, c and 2 more``
    of names, which are joined by a comma."""
    more = f"{'; ' if joint == '; ' else ' '}and {len(texts) - 3} more" if len(texts) > 3 else ""
    return joint.join(texts[:3]) + more


def several(number: int, noun: str) -> str:
    """So many of what a noun names, such as ``1 host`` and ``0 hosts``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def hosts_text(names: Sequence[str]) -> str:
    """Names of hosts, with ``e000..e011`` for those that are numbered in a row."""
    spans = [
        f"{span[0]}..{span[-1]}" if len(span) > 2 else ", ".join(span) for span in _spans(names)
    ]
    shown, rest = spans[:SPANS], sum(len(span) for span in _spans(names)[SPANS:])
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def _spans(names: Sequence[str]) -> list[list[str]]:
    spans: list[list[str]] = []
    for name in sorted(names):
        if spans and _follower(spans[-1][-1]) == name:
            spans[-1].append(name)
        else:
            spans.append([name])
    return spans


def _follower(name: str) -> str:
    match = re.fullmatch(r"(.*?)(\d+)", name)
    if match is None:
        return ""
    head, number = match.groups()
    return f"{head}{int(number) + 1:0{len(number)}}"
