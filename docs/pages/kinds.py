# SPDX-License-Identifier: Apache-2.0
"""The kinds of settings: what each is set on, the values that it takes, and what it asks for."""

from __future__ import annotations

import json
from typing import Any

from docs.pages.markdown import code, codes, items, page, paragraph, table
from docs.pages.words import words
from edgetune import expressions
from edgetune.hosts.agent.kinds import KINDS as AGENT_KINDS
from edgetune.kinds import KINDS
from edgetune.tuning import DISRUPTIONS


def kinds_page() -> str:
    unordered = codes(name for name in _in_order() if not KINDS[name].ordered)
    return page(
        "kinds",
        kinds=_kinds(),
        targets=table("field, meaning", [(code(name), text) for name, text in _targets().items()]),
        orders=items(
            [
                f"Disruptions, from the least to the most: {codes(DISRUPTIONS)}.",
                f"Kinds that do not know `only`: {unordered}.",
            ]
        ),
        filters=paragraph(
            f"A text with an expression has at most {expressions.MOST_CHARACTERS:,} characters. "
            f"It comes to at most {expressions.MOST_MADE:,}. Filters: {codes(expressions.FILTERS)}."
        ),
    )


def example_of(name: str) -> dict[str, Any]:
    """A setting of this kind, as a tuning has it."""
    return {"kind": name, **_words()[name]["example"]}


def _kinds() -> str:
    rows = [
        (
            code(name),
            codes(KINDS[name].target) or "nothing",
            _words()[name]["takes"],
            _flow(example_of(name)),
            KINDS[name].disruption,
            _summary_of(name),
        )
        for name in _in_order()
    ]
    return table("kind, set on, value, example, asks for at least, what it is", rows)


def _summary_of(name: str) -> str:
    told = KINDS[name].summary or (AGENT_KINDS[name].__doc__ or "").partition("\n\n")[0]
    return told.replace("``", "`")


def _flow(example: dict[str, Any]) -> str:
    """An example as YAML on one line."""
    parts = [f"{key}: {_plain(value)}" for key, value in example.items() if key != "kind"]
    return code(", ".join(parts))


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_plain(part)}" for key, part in value.items()) + "}"
    if isinstance(value, bool):
        return "on" if value else "off"
    text = str(value)
    return json.dumps(text) if not text or set(text) & set("*{\n") else text


def _in_order() -> list[str]:
    return [*(name for name in KINDS if KINDS[name].by_bmc), *AGENT_KINDS]


def _words() -> Any:
    return words("kinds", KINDS)


def _targets() -> Any:
    return words("targets", {field for kind in KINDS.values() for field in kind.target})
