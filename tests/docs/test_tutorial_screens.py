# SPDX-License-Identifier: Apache-2.0
"""The screens of the tutorial are those that a newcomer sees, and no line is too long for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import simulated
from tests.support import ROOT
from tests.support.terminal import Terminal

pytestmark = pytest.mark.processes

SHORT = ["baseline=10s", "soak=22s", "interval=2s", "warmup=2s"]
PLAN = ["run", "rollout_pop", "pop=lab1", "tuning=accept_queue", *SHORT, "wait=true"]

# What differs from run to run, or between a simulated lab and one of Linux hosts.
_DIFFERS = (
    (r"lab1-\d{8}T\d{6}-[0-9a-f]{4}", "ID"),
    (r"sha256:[0-9a-f]{16}", "DIGEST"),
    (r"\d\d:\d\d:\d\d", "TIME"),
    (r"e\d{3}(, e\d{3})*", "HOSTS"),
    (r"\b(\d+[dhms])+\b", "SPAN"),
    (r"(Linux|simulated) hosts", "KIND hosts"),
    (r"(inconclusive|improved), wait", "VERDICT, wait"),
    # A busy machine says how far apart its samples are.
    (r"(?<=measuring the baseline); interval=.*", ""),
    (r"\d+(\.\d+)?", "N"),
)
_CUT = 40


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("tutorial")
    try:
        yield home
    finally:
        simulated.down(home)


def screen(home: Path, *words: str, code: int = 0) -> list[str]:
    """All lines that a command leaves on a terminal, none of them longer than it is wide."""
    terminal = Terminal(home, list(words))
    found, lines = terminal.all_lines()
    assert found == code, lines
    assert [line for line in [*lines, *terminal.living()] if len(line) > 80] == []
    return lines


def shown() -> list[list[str]]:
    """The screens of the tutorial, in order, without the command that each begins with."""
    page = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return [block.splitlines() for block in blocks]


def alike(lines: list[str]) -> list[str]:
    """Lines without what differs; of one that is cut only what every run shows of it."""
    found = []
    for line in lines:
        told = line
        for pattern, word in _DIFFERS:
            told = re.sub(pattern, word, told)
        told = " ".join(told.split())
        found.append(told[:_CUT] if line.endswith("...") else told)
    return found


@pytest.mark.slow
@pytest.mark.quiet
def test_the_screens_of_the_tutorial(home: Path) -> None:
    up, plan, rollout, back = shown()
    assert alike(screen(home, "lab", "up", "--simulated")) == alike(up)
    planned = screen(home, *PLAN)
    assert alike(planned)[-len(plan) :] == alike(plan)
    assert len(plan) < 24
    carry_out = planned[-1].split()
    assert carry_out[:3] == ["edgetune", "run", "rollout_pop"]
    lines = screen(home, *carry_out[1:])
    told = lines[: len(rollout) - 4]
    assert alike([*told, *lines[-3:]]) == alike([*rollout[:-4], *rollout[-3:]])
    way_back = lines[-1].split()
    assert way_back[:5] == ["roll", "back:", "edgetune", "run", "roll_back_pop"]
    lines = screen(home, *way_back[3:])
    assert alike(lines)[: len(back)] == alike(back)


@pytest.mark.parametrize(
    ("words", "code", "last"),
    [
        (["run"], 0, "--all lists steps of workflows"),
        (["run", "rollout_pop", "--help"], 0, ""),
        (["run", "nosuch"], 2, "edgetune run"),
        (["run", "rollout_pop", "pop=lab1", "pop=lab2"], 2, "edgetune run rollout_pop --help"),
        (["serve", "--enable", "nosuch"], 2, "edgetune rule list"),
        (["rule", "list"], 0, ""),
        (["--help"], 0, ""),
    ],
)
def test_other_screens_fit(tmp_path: Path, words: list[str], code: int, last: str) -> None:
    assert last in screen(tmp_path, *words, code=code)[-1]
