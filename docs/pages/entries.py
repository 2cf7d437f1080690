# SPDX-License-Identifier: Apache-2.0
"""What the inventory has for a driver of a load balancer, or for a metric source."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from docs.pages.markdown import code, items, paragraph
from edgetune.base.fields import Field


def entry(heading: str, told: str | None, fields: Mapping[str, Field]) -> str:
    """A section of its docstring and its fields."""
    parts = [heading, paragraph(inspect.cleandoc(told or "").replace("``", "`"))]
    listed = items(f"{code(own)} ({_usual(its)}): {its.meaning}" for own, its in fields.items())
    return "\n\n".join([*parts, *([listed] if listed else [])])


def _usual(field: Field) -> str:
    """Its usual value, and an example of another one."""
    usual = (
        "required" if field.default is None else code(field.default) if field.default else "none"
    )
    return usual if field.example == field.default else f"{usual}; such as {code(field.example)}"
