# SPDX-License-Identifier: Apache-2.0
"""Parameters: as `st2 run` parses them, and as StackStorm renders, casts and checks them."""

from __future__ import annotations

from typing import Any

import pytest

from lab.runner import Pack, ParameterError
from lab.runner.metadata import Action
from lab.runner.parameters import final, from_words, live
from tests.support import FIXTURES

PACK = FIXTURES / "runner_pack"
CONTEXT = {"user": "someone", "pack": "probe"}
CONFIG = {"greeting": "hi", "count": 3}
RENDERED_DEFAULTS = {"text": "hi", "count": 3}


@pytest.fixture(scope="module")
def echo() -> Action:
    return Pack(PACK).action("probe.echo")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("text=a=b", {"text": "a=b"}),
        ("text=7", {"text": "7"}),
        ("count=7", {"count": 7}),
        ("ratio=7", {"ratio": 7.0}),
        ("flag=True", {"flag": True}),
        ("flag=false", {"flag": False}),
        ("names=a,b", {"names": ["a", "b"]}),
        ('names=["a,b"]', {"names": ["a,b"]}),
        ("names=a names=b", {"names": ["a", "b"]}),
        ("names=1", {"names": [1]}),
        ('options={"a":[1]}', {"options": {"a": [1]}}),
        ("options=a=1,b=2", {"options": {"a": "1", "b": "2"}}),
    ],
)
def test_words_are_parsed_by_type(echo: Action, words: str, expected: dict[str, Any]) -> None:
    assert from_words(echo, words.split()) == expected


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("count", '"count" is not of the form key=value'),
        ("cuont=1", 'probe.echo has no parameter "cuont", did you mean "count"?'),
        ("count=some", 'parameter "count" must be of type integer, not "some"'),
        ("ratio=some", 'parameter "ratio" must be of type number, not "some"'),
        ("flag=yes", 'parameter "flag" must be of type boolean, not "yes"'),
        ("options={", 'parameter "options" must be of type object, not "{"'),
        ("fixed=x", 'parameter "fixed" of probe.echo is immutable'),
    ],
)
def test_bad_words_are_named(echo: Action, word: str, reason: str) -> None:
    with pytest.raises(ParameterError) as error:
        from_words(echo, [word])
    assert str(error.value) == reason


# Each case was compared with st2common.util.param of StackStorm 3.10dev.
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"text": None, "count": None}, {}),
        ({"text": "{% if %}"}, {"text": "{% if %}"}),
        ({"text": "{{ label }}!", "label": "zz"}, {"text": "zz!", "label": "zz"}),
        ({"count": "5"}, {"count": 5}),
        ({"count": 2.7}, {"count": 2}),
        ({"flag": "TRUE"}, {"flag": True}),
        ({"names": "['q']"}, {"names": ["q"]}),
        ({"names": ["{{ text }}", "x"]}, {"names": ["hi", "x"]}),
        ({"options": {"a": "{{count}}"}}, {"options": {"a": "3"}}),
        ({"options": {"a": "{{ratio}}"}, "ratio": 1}, {"options": {"a": 1}, "ratio": 1.0}),
        ({"options": "{{ {'a': 1} }}"}, {"options": {"a": 1}}),
        ({"label": None}, {"label": None}),
        ({"mode": None}, {"mode": "fast"}),
        ({"label": "{{ action_context.user }}"}, {"label": "someone"}),
    ],
)
def test_live_parameters(echo: Action, given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert live(echo, given, CONTEXT, CONFIG) == {**RENDERED_DEFAULTS, **expected}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"text": 5}, "must be of type string"),
        ({"text": "{{ oops }}"}, 'refers to "oops"'),
        ({"text": "{{ label }}", "label": "{{ text }}"}, "refer to themselves"),
        ({"text": "{{ config_context.none }}"}, 'parameter "text" cannot be rendered'),
        ({"count": 0}, 'parameter "count" of probe.echo'),
        ({"count": "x"}, "must be of type integer"),
        ({"flag": 1}, 'parameter "flag"'),
        ({"names": [1]}, 'parameter "names.0"'),
        ({"names": "a,b"}, 'parameter "names"'),
        ({"options": [1]}, 'parameter "options"'),
        ({"mode": "other"}, 'parameter "mode"'),
        ({"label": "ABC"}, 'parameter "label"'),
        ({"log_level": "LOUD"}, 'parameter "log_level"'),
        ({"timeout": "soon"}, 'parameter "timeout"'),
    ],
)
def test_bad_live_parameters_are_named(echo: Action, given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ParameterError) as error:
        live(echo, given, CONTEXT, CONFIG)
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


def test_a_required_parameter_is_named() -> None:
    with pytest.raises(ParameterError, match='probe.step requires the parameter "name"'):
        live(Pack(PACK).action("step"), {}, CONTEXT, CONFIG)


def test_final_parameters_are_split_and_not_rendered_again(echo: Action) -> None:
    recorded = {"text": "{{ 1 }}", "count": 4, "timeout": 9}
    runner, own = final(echo, recorded, CONTEXT, CONFIG)
    assert (runner["timeout"], runner["log_level"]) == (9, "INFO")
    assert (own["text"], own["count"], own["fixed"], own["ratio"]) == ("{{ 1 }}", 4, "stone", None)
    assert set(own) == set(echo.parameters) - {"log_level"}
