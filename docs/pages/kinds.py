# SPDX-License-Identifier: Apache-2.0
"""The kinds of settings: what each is set on, the values that it takes, and what it asks for."""

from __future__ import annotations

import json
from typing import Any

from docs.pages.markdown import code, codes, items, page, paragraph, table
from edgetune.agent.vocabulary import SYSTEMS
from edgetune.agent.vocabulary.kind import DISRUPTIONS, EXPERIMENTAL, Kind
from edgetune.agent.vocabulary.kinds import KINDS
from edgetune.intent import expressions


def kinds_page() -> str:
    unordered = codes(name for name, kind in KINDS.items() if not kind.ordered)
    return page(
        "kinds",
        kinds=items(map(_told, KINDS.values())),
        targets=table("field, of, meaning", _targets()),
        orders=items(
            [
                f"Disruptions, from the least to the most: {codes(DISRUPTIONS)}.",
                f"Kinds that do not know `only`: {unordered}.",
            ]
        ),
        experimental=paragraph(
            f"{', '.join(SYSTEMS[own] for own in EXPERIMENTAL)} is *experimental*: "
            "no real host has run these kinds yet."
        ),
        filters=paragraph(
            f"A text with an expression has at most {expressions.MOST_CHARACTERS:,} characters. "
            f"It comes to at most {expressions.MOST_MADE:,}. Filters: {codes(expressions.FILTERS)}."
        ),
    )


def _targets() -> list[tuple[str, ...]]:
    """What each field of a target means, and in which kinds."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, kind in KINDS.items():
        for field, own in kind.target.items():
            found.setdefault((field, own.meaning), []).append(name)
    return [(code(field), codes(names), meaning) for (field, meaning), names in found.items()]


def _told(kind: Kind) -> str:
    example = code(", ".join(f"{key}: {_plain(value)}" for key, value in kind.example.items()))
    bounds = f"{kind.disruption}; {_systems(kind)}"
    return f"{code(kind.name)} ({bounds}). {kind.summary} Value: {kind.takes} {example}"


def _systems(kind: Kind) -> str:
    """The systems of the hosts that have it; what a BMC sets does not depend on them."""
    return "any" if kind.by_bmc else ", ".join(SYSTEMS[own] for own in kind.systems)


def _plain(value: Any) -> str:
    """A value as YAML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_plain(part)}" for key, part in value.items()) + "}"
    text = str(value)
    return json.dumps(text) if not text or set(text) & set("*{\n") else text
