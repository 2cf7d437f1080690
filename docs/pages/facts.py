# SPDX-License-Identifier: Apache-2.0
"""The facts of a host, which expressions of a tuning and ``applies_to`` may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from docs.pages.markdown import code, items, page
from docs.pages.words import words
from edgetune.intent.tuning import Applicability


def facts_page() -> str:
    given = words("applies_to", (field.name for field in fields(Applicability)))
    return page(
        "facts",
        facts=_listed(words("facts")),
        nic=_listed(words("nic")),
        applies_to=_listed(given),
    )


def _listed(told: Mapping[str, str]) -> str:
    return items(f"{code(name)}: {text}" for name, text in told.items())
