# SPDX-License-Identifier: Apache-2.0
"""The commands that people are shown: in pages, in messages, and in the pack's metadata."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from edgetune.base.sanitize import command
from tests.support import ROOT

NAMES = ("README.md", "CONTRIBUTING.md", "docs/**/*.md", "tests/st2/README.md")
PAGES = [path for name in NAMES for path in sorted(ROOT.glob(name))]
FOLDERS = ("actions", "aliases", "policies", "rules", "sensors", "triggers", "tunings", "workflows")
SOURCES = ("actions", "lab", "lib/edgetune", "sensors")
ACTIONS = "|".join(sorted(path.stem for path in (ROOT / "actions").glob("*.yaml")))
VALUE = "value"

# A command ends with its line, its quotation or its cell, and before a comment.
_COMMAND = re.compile(
    r"(?<![\w./-])(st2|(?:\.venv/bin/)?edgetune run) ((?!is )[a-z](?:\"[^\"\n]*\"|[^`»#;|&\n])*)"
)
_PART = re.compile(rf"`((?:{ACTIONS}) [^`\n]+)`")
_PART_OF_MESSAGE = re.compile(rf"(?<![\w.])(?:edgetune\.)?(?:{ACTIONS}) (?:{VALUE}\b|\w+=)")


@dataclass(frozen=True)
class Printed:
    """A command: where it stands, and its words after ``st2``.

    The local runner's ``edgetune run ACTION`` stands for ``st2 run edgetune.ACTION``.
    """

    where: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.where}: st2 {' '.join(self.words)}"


def of_pages() -> Iterator[Printed]:
    for path in PAGES:
        text = path.read_text().replace("\\\n", " ").replace("«", "")
        yield from commands(_name(path), text)


def parts_of_pages() -> Iterator[Printed]:
    """An action and the parameters that are spoken of, but not each that it needs."""
    for path in PAGES:
        for part in _PART.findall(path.read_text()):
            yield Printed(_name(path), ("run", *shlex.split(part)))


def of_metadata() -> Iterator[Printed]:
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.yaml"))]
    for path in [*files, *ROOT.glob("*.yaml*"), *ROOT.glob("lib/edgetune/report/*.html")]:
        yield from commands(_name(path), path.read_text())


@cache
def of_messages() -> list[Printed]:
    """Of the texts of the sources, with ``VALUE`` where they differ."""
    return [*_of_messages()]


def _of_messages() -> Iterator[Printed]:
    for name, tree in _trees():
        for text in _texts(tree):
            yield from commands(name, text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "command":
                yield from commands(name, _rendered(node))


def parts_of_messages() -> list[str]:
    """Texts that name an action and what it is given, and yet are no command."""
    found = [(name, text) for name, tree in _trees() for text in _texts(tree)]
    return [f"{name}: {text}" for name, text in found if _PART_OF_MESSAGE.search(text)]


def commands(where: str, text: str) -> Iterator[Printed]:
    for program, rest in _COMMAND.findall(text):
        words = tuple(shlex.split(rest))
        if program != "st2":
            own = [word for word in words[1:] if not word.startswith("--")]
            words = ("run", f"edgetune.{words[0]}", *own)
        # One word alone is the name of a command; ACTION, or nothing, stands for any action.
        if words[1:] and words[1] not in ("edgetune.ACTION", "edgetune."):
            yield Printed(where, words)


@cache
def _trees() -> list[tuple[str, ast.AST]]:
    return [
        (_name(path), ast.parse(path.read_text()))
        for folder in SOURCES
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _texts(tree: ast.AST) -> Iterator[str]:
    """What is no docstring; a template once, as a whole."""
    nodes = [*ast.walk(tree)]
    templates = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    pieces = {id(piece) for template in templates for piece in template.values}
    pieces |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for template in templates:
        filled = (p.value if isinstance(p, ast.Constant) else VALUE for p in template.values)
        yield "".join(str(piece) for piece in filled)
    for node in nodes:
        if isinstance(node, ast.Constant) and id(node) not in pieces:
            yield str(node.value)


def _rendered(call: ast.Call) -> str:
    """What ``edgetune.base.sanitize.command`` makes of a call."""
    (action,) = call.args
    values = {str(each.arg): each.value for each in call.keywords}
    given = {n: v.value if isinstance(v, ast.Constant) else VALUE for n, v in values.items()}
    return command(ast.literal_eval(action), **given)
