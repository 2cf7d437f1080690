# SPDX-License-Identifier: Apache-2.0
"""The rooms of lib: a picture of their floors, from the import contracts, and a line for each."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from docs.pages.markdown import code, page, table
from edgetune.base.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
_LAYERS = re.compile(
    r'^containers = \["([a-z_.]+)"\]\n(?:.*\n)*?layers = (\[[^]]*\])', re.MULTILINE
)
_WIDEST = 62


def map_page() -> str:
    """InputError names a room that does not say what it holds."""
    contracts = {
        container: [line.split(" | ") for line in ast.literal_eval(layers)]
        for container, layers in _LAYERS.findall((ROOT / "pyproject.toml").read_text())
    }
    floors = contracts["edgetune"]
    rows = []
    for name in (name for floor in floors for name in floor):
        rows.append((code(f"{name}/"), _line(name)))
        rows += [(code(f"{name}/{below}/"), _line(f"{name}/{below}")) for below in _rooms(name)]
    return page(
        "map",
        picture=_picture(contracts),
        rooms=table("room of lib/edgetune, what it holds", rows),
    )


def _picture(contracts: dict[str, list[list[str]]]) -> str:
    """A floor a line; a room with floors of its own has them beside it."""
    lines = []
    for floor in contracts["edgetune"]:
        for name in floor:
            inside = contracts.get(f"edgetune.{name}")
            beside = " > ".join(", ".join(own) for own in inside or [])
            first, *more = _folded(beside)
            lines += [f"{name:<9}{first}", *(f"{'':<9}{part}" for part in more)]
    return "```\n" + "\n".join(line.rstrip() for line in lines) + "\n```"


def _folded(text: str) -> list[str]:
    lines = [""]
    for word in text.split(" > "):
        joined = f"{lines[-1]} > {word}" if lines[-1] else word
        lines = [*lines[:-1], joined] if len(joined) <= _WIDEST else [*lines, f"> {word}"]
    return lines


def _rooms(name: str) -> list[str]:
    """Folders inside a room."""
    inside = (ROOT / "lib/edgetune" / name).glob("*/__init__.py")
    return sorted(path.parent.name for path in inside)


def _line(name: str) -> str:
    file = ROOT / "lib/edgetune" / name / "__init__.py"
    said = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    if not said:
        raise InputError(f"lib/edgetune/{name}/__init__.py", None, "says not what the room holds")
    return said.partition("\n\n")[0].replace("\n", " ")
