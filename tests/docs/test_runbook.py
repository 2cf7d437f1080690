# SPDX-License-Identifier: Apache-2.0
"""Pages that people wrote: rules and commands of the lab exist; texts of the runbook are real.

In the runbook a block marked ``text``, the first column of a table and any code of several words
that is no command show what edgetune prints, with « » around what differs.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import lru_cache

import pytest

from edgetune.base.files import load_yaml
from lab.bmc import FAULTS as BMC_FAULTS
from lab.cli import _parser
from lab.pop.faults import FAULTS
from tests.support import ROOT

WRITTEN = ("README.md", "docs/*.md", "docs/how-to/*.md")
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for pattern in WRITTEN
    for path in sorted(ROOT.glob(pattern))
}
RUNBOOK = PAGES["docs/runbook.md"]
SOURCES = ("lib/edgetune", "workflows", "actions")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# A line of the runbook's texts that is indented goes on from the one before.
_GOES_ON = re.compile(r"\n {4,}(?=\S)")
CODE = re.compile(r"`([^`]+)`")
# What is typed or named: a program with its words, a key, a rule of old, what configurations say.
TYPED = re.compile(
    r"(st2|st2ctl|edgetune|echo|ssh|ssh-keyscan|ls|nc|amtool|python3) |edgetune\.|recover_orphan$"
    r"|(detectable_effect|optional|checks): |appendonly |epoch=$"
)
# What SQLite, Python, the kernel and agents of HAProxy say.
OF_OTHERS = {
    *("unable to open database file", "can't open file", "up ready"),
    *("timed out", "Connection refused", "No route to host"),
}
GAP = "\0"
LOOP = "for rule in "


def fenced(page: str, *kinds: str) -> Iterator[str]:
    for kind, text in FENCE.findall(page):
        if kind in kinds:
            whole = _GOES_ON.sub(" ", text) if kind == "text" else text
            yield from whole.replace("\\\n", " ").splitlines()


def code(page: str) -> Iterator[str]:
    """Lines of code blocks, and what stands in backquotes in a paragraph or a table."""
    yield from fenced(page, "", "sh")
    yield from re.findall(r"`([^`\n]+)`", FENCE.sub("", page))


def commands(page: str, *program: str) -> Iterator[list[str]]:
    """The words after ``program`` wherever it is called, alone or beside others."""
    for line in code(page):
        with_comments = shlex.shlex(line, posix=True, punctuation_chars="|;&")
        with_comments.whitespace_split = True
        try:
            words = list(with_comments)
        except ValueError:
            continue
        words = [word.rsplit("/", 1)[-1] if word.startswith(".venv") else word for word in words]
        if tuple(words[: len(program)]) == program:
            yield words[len(program) :]


@pytest.mark.parametrize("page", PAGES)
def test_every_rule_exists(page: str) -> None:
    names = {path.stem for path in (ROOT / "rules").glob("*.yaml")}
    enabled = [words[0] for words in commands(PAGES[page], "st2", "rule", "enable")]
    assert {name.partition(".")[2] for name in enabled if "$" not in name} <= names


# It retires a tuning from the whole fleet.
APART = "retire_harmful"


def test_one_line_enables_every_rule_that_ships_disabled_but_one() -> None:
    (line,) = (text for text in code(PAGES["docs/how-to/automation.md"]) if text.startswith(LOOP))
    shown = line.partition(";")[0].split()[3:]
    rules = {path.stem: load_yaml(path) for path in (ROOT / "rules").glob("*.yaml")}
    disabled = (name for name, rule in rules.items() if not rule["enabled"])
    assert sorted([*shown, APART]) == sorted(disabled)


def test_the_kill_switch_is_called_by_its_key() -> None:
    from edgetune.rollout.ownership.kill_switch import STOP_KEY

    keys = {w[0] for page in PAGES.values() for w in commands(page, "st2", "key", "set")}
    assert keys == {STOP_KEY}


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_the_lab_is_understood(page: str) -> None:
    for words in commands(PAGES[page], "edgetune"):
        if not words or not words[0].isalpha():
            continue  # a user of that name, alone or in sudoers
        options, rest = _parser().parse_known_args(words)
        assert all("=" in word for word in rest), words
        if hasattr(options, "fault"):
            known = {*FAULTS, *(f"bmc_{name}" for name in ("NAME", *BMC_FAULTS))}
            assert options.fault in known, words


@pytest.mark.slow
def test_every_text_shown_comes_from_the_sources() -> None:
    known = printed()
    texts = [*shown_in_line(RUNBOOK), *fenced(RUNBOOK, "text")]
    pieces = [piece for text in texts for piece in fixed_parts(text)]
    assert len(pieces) > 150
    assert [piece for piece in pieces if piece not in known] == []


def shown_in_line(page: str) -> Iterator[str]:
    """Code in first columns, and code of several words that calls no program."""
    for line in FENCE.sub("", page).replace("\\|", "").splitlines():
        assert line.count("`") % 2 == 0, f"code goes on in the next line: {line}"
        first, _, rest = line[1:].partition("|") if line.startswith("|") else ("", "", line)
        texts = CODE.findall(first) + [text for text in CODE.findall(rest) if " " in text]
        yield from (text for text in texts if text not in OF_OTHERS and not TYPED.match(text))


def fixed_parts(line: str) -> list[str]:
    """What of a shown text is not marked as differing, in words that can be looked for."""
    parts = re.split(r"«[^»]*»|\bHOST\b|\.\.\.", line)
    return [part.strip(" .:,;'") for part in parts if re.search(r"[A-Za-z]{3}", part)]


@lru_cache(maxsize=1)
def printed() -> str:
    """All texts of the sources, with a gap where a value is filled in."""
    texts: list[str] = []
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            texts += constants(ast.parse(path.read_text()))
        texts += [path.read_text() for path in sorted((ROOT / folder).rglob("*.yaml"))]
    return "\n".join(re.sub(r" +", " ", text) for text in texts)


def constants(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [p.value if isinstance(p, ast.Constant) else GAP for p in node.values]
            yield "".join(str(part) for part in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
