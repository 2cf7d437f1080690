# SPDX-License-Identifier: Apache-2.0
"""Parameters: as `st2 run` parses them, and as StackStorm renders, casts and checks them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.runner import Pack, ParameterError
from lab.runner.metadata import Action
from lab.runner.parameters import final, from_words, live
from tests.support import FIXTURES
from tests.support.cases import cases

CASES = Path(__file__).parent / "cases"
PACK = FIXTURES / "runner_pack"
CONTEXT = {"user": "someone", "pack": "probe"}
CONFIG = {"greeting": "hi", "count": 3}
RENDERED_DEFAULTS = {"text": "hi", "count": 3}


@pytest.fixture(scope="module")
def echo() -> Action:
    return Pack(PACK).action("probe.echo")


@pytest.mark.parametrize("case", cases(CASES / "words.yaml"))
def test_words_are_parsed_by_type_or_named(echo: Action, case: dict[str, Any]) -> None:
    words = case["words"].split()
    if "given" in case:
        assert from_words(echo, words) == case["given"]
        return
    with pytest.raises(ParameterError) as error:
        from_words(echo, words)
    assert str(error.value) == case["refused"]


@pytest.mark.parametrize("case", cases(CASES / "parameters.yaml"))
def test_parameters_are_rendered_and_cast_or_named(echo: Action, case: dict[str, Any]) -> None:
    if "live" in case:
        expected = {**RENDERED_DEFAULTS, **case["live"]}
        assert live(echo, case["given"], CONTEXT, CONFIG) == expected
        return
    with pytest.raises(ParameterError) as error:
        live(echo, case["given"], CONTEXT, CONFIG)
    assert case["refused"] in str(error.value)
    assert "\n" not in str(error.value)


def test_final_parameters_are_split_and_not_rendered_again(echo: Action) -> None:
    recorded = {"text": "{{ 1 }}", "count": 4, "timeout": 9}
    runner, own = final(echo, recorded, CONTEXT, CONFIG)
    assert (runner["timeout"], runner["log_level"]) == (9, "INFO")
    assert (own["text"], own["count"], own["fixed"], own["ratio"]) == ("{{ 1 }}", 4, "stone", None)
    assert set(own) == set(echo.parameters) - {"log_level"}
