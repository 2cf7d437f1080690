# SPDX-License-Identifier: Apache-2.0
"""Every command that people are shown is one that StackStorm takes.

The parser is that of StackStorm's released client, which `make test` installs in an environment of
its own. What it understood is checked by the metadata of the actions, as StackStorm's API does.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.pages.metadata import DURATION
from edgetune.base.errors import InputError
from edgetune.base.fields import Fields
from edgetune.base.sanitize import command
from lab.cli import _parser
from lab.pop.faults import FAULTS
from lab.pop.files import CAMPAIGN
from lab.runner import MetadataError, Pack, ParameterError
from lab.runner.parameters import from_words, live
from lab.usage import UsageError
from tests.support import ROOT
from tests.support.printed import (
    Printed,
    of_messages,
    of_metadata,
    of_pages,
    parts_of_messages,
    parts_of_pages,
)

CLIENT = Path(sys.prefix) / "st2client/bin/python"
PACK = Pack(ROOT)
RULES = {path.stem for path in (ROOT / "rules").glob("*.yaml")}
KNOWN = {
    "pop": {"lab1", "lab2"},
    "tuning": {path.stem for path in (ROOT / "tunings").glob("*.yaml")},
    "campaign": {yaml.safe_load(CAMPAIGN)["name"]},
}
"""What parameters of the tutorial may name: there is one lab, with one campaign."""
SOURCES = {"pages": of_pages, "metadata": of_metadata, "messages": of_messages}
MOST = {"pages": 100, "metadata": 1, "messages": 30}

needs_client = pytest.mark.skipif(
    not CLIENT.exists(), reason="StackStorm's client is not installed; `make client` does that"
)


@pytest.mark.processes
@needs_client
@pytest.mark.parametrize("source", SOURCES)
def test_every_command_is_taken(source: str) -> None:
    printed = list(SOURCES[source]())
    assert len(printed) >= MOST[source]
    assert refused(printed) == []


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
def test_the_local_runner_takes_the_same(source: str) -> None:
    runs = {each.words[1:] for each in SOURCES[source]() if each.words[0] == "run"}
    for ref, *words in runs:
        assert from_words(PACK.action(ref), words).keys() == {w.partition("=")[0] for w in words}


def test_a_part_of_a_command_names_parameters_that_there_are() -> None:
    parts = list(parts_of_pages())
    assert parts
    for part in parts:
        _, action, *words = part.words
        assert from_words(PACK.action(action), words), part


@pytest.mark.slow
def test_no_message_shows_a_part_of_a_command() -> None:
    """It would be typed as it stands; `edgetune.base.sanitize.command` makes it whole."""
    assert parts_of_messages() == []


def test_every_command_of_the_tutorial_is_one() -> None:
    """Nothing else stands in its blocks, so a newcomer can type them all."""
    lines = list(lines_of_code(ROOT / "docs/tutorial.md"))
    assert len(lines) >= 20
    assert [line for line in lines if why_no_step(line)] == []


def lines_of_code(page: Path) -> Iterator[list[str]]:
    """The words of each line of a block of code that is marked as no language, without comments."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    for block in [text for kind, text in blocks if kind in ("", "sh")]:
        for line in block.replace("\\\n", " ").splitlines():
            with contextlib.suppress(ValueError):
                words = shlex.split(line, comments=True)
                if words:
                    yield words


def targets_of_make() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def why_no_step(words: list[str]) -> str:
    """Why a line of the tutorial would fail in a lab; "" if it would not."""
    program, *rest = words
    if program == "make":
        return "".join(f"make has no target {w}" for w in rest if w not in targets_of_make())
    if program == "export":  # so that shown commands can be copied as they are
        return ""
    if program != "edgetune":
        return f"{program} is neither make nor edgetune"
    try:
        options, more = _parser().parse_known_args(rest)
    except UsageError:
        return f"edgetune refuses it: {rest}"
    given = [*getattr(options, "words", []), *more]
    try:
        name = getattr(options, "action", None)
        values = from_words(PACK.action(name), given) if name else {}
    except (MetadataError, ParameterError) as error:
        return str(error)
    unknown = [
        *(
            str(values[name])
            for name in KNOWN
            if name in values and values[name] not in KNOWN[name]
        ),
        *({getattr(options, "pop", "lab1")} - KNOWN["pop"]),
        *(set(filter(None, getattr(options, "enable", "").split(","))) - RULES - {"all"}),
        *({getattr(options, "fault", "cut")} - FAULTS.keys()),
    ]
    return f"there is no {', '.join(unknown)}" if unknown else ""


def test_a_value_is_one_word_whatever_it_holds() -> None:
    for value in ("lab1-7", "a b", "it's; rm -r *", "", "$(reboot)"):
        words = shlex.split(command("release_record", rollout=value))
        assert words == ["st2", "run", "edgetune.release_record", f"rollout={value}"]


def refused(printed: Iterable[Printed]) -> list[str]:
    """Each command that StackStorm would refuse, and why."""
    given = list(printed)
    answers = zip(given, understood([each.words for each in given]))
    return [f"{each}: {why}" for each, answer in answers if (why := why_refused(each, answer))]


def understood(asked: list[tuple[str, ...]]) -> list[dict[str, Any]]:
    """What StackStorm's client makes of the words after ``st2``."""
    actions = {
        ref: {"parameters": action.parameters, "runner_parameters": action.runner_parameters}
        for ref, action in PACK.actions.items()
    }
    done = subprocess.run(
        [CLIENT, ROOT / "tests/support/st2client_words.py"],
        input=json.dumps({"actions": actions, "commands": asked}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


def why_refused(printed: Printed, answer: dict[str, Any]) -> str:
    if "error" in answer:
        return str(answer["error"])
    if printed.words[0] != "run":
        return ""
    try:
        action = PACK.action(printed.words[1])
        live(action, answer["parameters"], {"user": "ana"}, {})
        for name, value in answer["parameters"].items():
            if f" {DURATION} " in action.parameters[name].get("description", ""):
                Fields({name: value}, "parameter").duration(name)
    except (MetadataError, ParameterError, InputError) as error:
        return str(error)
    return ""
