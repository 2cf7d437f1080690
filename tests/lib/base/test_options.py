# SPDX-License-Identifier: Apache-2.0
"""Options: what a field of a dataclass says is what is read, checked and told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from edgetune.base.documents.options import Options
from edgetune.base.errors import InputError
from edgetune.base.fields import Fields
from edgetune.base.options import Option, check_options, option, options_of, read_options
from edgetune.site.config import Config

EVERY = [*options_of(Config), *options_of(Options)]
NUMBERS = [each for each in EVERY if each.type in ("int", "float")]


@dataclass(frozen=True)
class Chosen:
    place: Path = option("Where.")
    names: tuple[str, ...] = option("Which.", ())
    share: float = option("How much.", 0.5, least=0, most=1)
    step: int = option("How often.", 60, is_time=True, least=1)
    span: float = option("How long.", 3600, is_time=True, multiples={"step": 2}, most=86400)
    pairs: tuple[int, ...] = option("Each of.", (), item=lambda each: each.whole("x"))
    one: int = option("Of one.", 7, item=lambda only: only.whole("x", 7))


def read(**given: Any) -> Chosen:
    return read_options(Fields({"place": "/x", **given}, "file"), Chosen)


def test_what_is_not_given_has_its_default() -> None:
    assert read() == Chosen(place=Path("/x"))


def test_what_is_given_is_of_the_type_of_its_field() -> None:
    given = {"names": ["a"], "step": "2m", "span": "1d", "share": 1}
    made = read(**given, pairs=[{"x": 1}, {"x": 2}], one={"x": 3})
    assert made == Chosen(Path("/x"), ("a",), 1, 120, 86400, (1, 2), 3)
    assert type(made.step) is int


def test_what_may_not_be_given_keeps_its_default() -> None:
    given = Fields({"place": "/x", "share": 0.1}, "file")
    with pytest.raises(InputError, match="file: share: is not known here"):
        read_options(given, Chosen, without=("share",))


@pytest.mark.parametrize("each", NUMBERS, ids=lambda each: each.name)
def test_the_bounds_of_an_option_are_those_that_are_told(each: Option) -> None:
    """Those of other options aside, which the texts name."""
    low, high = (1e-9, 0.999999) if each.is_time or each.type == "float" else (1, 1)
    for bound, beyond in ((each.least, -low), (each.most, high)):
        if bound is not None:
            assert each.shown(bound) in each.bounds
            with pytest.raises(InputError, match=f"{each.name}: .* is (below|above) "):
                each.check(bound + beyond, 0, lambda *said: InputError("parameter", *said))
            each.check(bound, 0, lambda *said: InputError("parameter", *said))


def test_every_option_tells_its_meaning_in_sentences_and_has_a_fit_default() -> None:
    for each in EVERY:
        assert each.means[0].isupper() and each.means.endswith("."), each.name
    check_options(Options(), lambda *said: InputError("parameter", *said))
    with pytest.raises(InputError, match="test_fraction: nan is below 0.05"):
        Options(test_fraction=float("nan")).checked()
