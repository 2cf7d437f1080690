# SPDX-License-Identifier: Apache-2.0
"""Markdown: tables, code in a line, paragraphs, and sections between markers."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from edgetune.base.errors import InputError
from edgetune.base.files import load_yaml

Document = Mapping[str, Any]

WIDTH = 120
"""Of a line of Markdown outside tables and code."""

_KEPT = "\x1b"
_NOTE = "<!-- Written by `python docs/generate.py`: edit its sources instead. -->"


def page(name: str, **parts: str) -> str:
    """The page ``NAME.md.in`` with each of its lines ``[[part]]`` replaced by that part."""
    template = Path(__file__).with_name(f"{name}.md.in")
    title, _, text = template.read_text(encoding="utf-8").partition("\n")
    wanted = re.findall(r"^\[\[(\w+)\]\]$", text, re.MULTILINE)
    if sorted(wanted) != sorted(parts):
        raise InputError(f"docs/pages/{template.name}", None, f"must have once each of {[*parts]}")
    for part, made in parts.items():
        text = text.replace(f"\n[[{part}]]\n", f"\n{made}\n")
    return f"{title}\n\n{_NOTE}\n{text}"


def paragraph(text: str, indent: str = "") -> str:
    """Text in lines of at most ``WIDTH`` characters, those after the first with ``indent``.

    Code stays on one line.
    """
    joined = re.sub(r"`[^`]+`", lambda own: own[0].replace(" ", _KEPT), " ".join(text.split()))
    filled = textwrap.fill(
        joined, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return filled.replace(_KEPT, " ")


def items(texts: Iterable[str]) -> str:
    """A list with one item for each text."""
    return "\n".join(paragraph(f"* {text}", "  ") for text in texts)


def table(headings: str, rows: Iterable[Sequence[str]]) -> str:
    """A table; ``headings`` are separated by commas."""
    columns = headings.split(", ")
    lines = [columns, ["---"] * len(columns), *([cell(text) for text in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cell(text: str) -> str:
    """Text on one line in which no pipe ends the cell, not even one in code."""
    return " ".join(text.split()).replace("|", "\\|")


def code(value: Any) -> str:
    """A value as YAML would have it, as code."""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str) and not value:
        return '`""`'
    return f"`{value}`"


def codes(values: Iterable[Any]) -> str:
    """Several values, with commas between them."""
    return ", ".join(map(code, values))


def yes(value: Any) -> str:
    return "yes" if value else "no"


def documents(root: Path, folder: str) -> list[Document]:
    """The YAML files of one folder of the pack, by name."""
    return [load_yaml(path) for path in sorted((root / folder).glob("*.yaml"))]


def replace_section(text: str, name: str, content: str, page: str) -> str:
    """A page with what stands between the markers of one section replaced."""
    begin, end = (f"<!-- {word} GENERATED {name} -->\n" for word in ("BEGIN", "END"))
    for marker in (begin, end):
        if text.count(marker) != 1:
            raise InputError(page, None, f"must have one line {marker.strip()}")
    before, _, rest = text.partition(begin)
    if end not in rest:
        raise InputError(page, None, f"{end.strip()} stands before its beginning")
    return f"{before}{begin}{content}\n{end}{rest.partition(end)[2]}"
