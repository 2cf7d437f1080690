# SPDX-License-Identifier: Apache-2.0
"""What the inventory has for a driver of a load balancer, or for a metric source."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from docs.pages.markdown import code, paragraph, table
from edgetune.base.fields import Field


def entry(heading: str, told: str | None, fields: Mapping[str, Field]) -> str:
    """A section of its docstring and its fields."""
    parts = [heading, paragraph(inspect.cleandoc(told or "").replace("``", "`"))]
    rows = [(code(own), its.meaning, _usual(its), _example(its)) for own, its in fields.items()]
    return "\n\n".join([*parts, *([table("field, meaning, usual, example", rows)] if rows else [])])


def _example(field: Field) -> str:
    return "" if field.example == field.default else code(field.example)


def _usual(field: Field) -> str:
    return "required" if field.default is None else code(field.default) if field.default else "none"
