# SPDX-License-Identifier: Apache-2.0
"""Documents with one place in them put wrong, for tests of those who read them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

JUNK: list[Any] = [
    *(None, True, -1, 0, 1.5, 1e300, 10**400, float("nan"), float("inf")),
    *("", "x", "9" * 5000, "\ud800", "\x00", [], [None], [[]], ["x"], {}, {"x": None}, [1, 2, 3]),
    json.loads("[" * 500 + "]" * 500),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to everything inside of a document."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for name, below in inside:
        yield (*path, name)
        if isinstance(below, (dict, list)):
            yield from places(below, (*path, name))


def put(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with another value at a place."""
    changed = copy.deepcopy(document)
    _holder(changed, path)[path[-1]] = value
    return changed


def without(document: Any, path: tuple[Any, ...]) -> Any:
    """A copy without what stood at a place."""
    changed = copy.deepcopy(document)
    del _holder(changed, path)[path[-1]]
    return changed


def _holder(document: Any, path: tuple[Any, ...]) -> Any:
    for name in path[:-1]:
        document = document[name]
    return document


@st.composite
def damaged(draw: st.DrawFn, document: Any) -> str:
    """The text of a document in which one thing is not as it was, or that was cut."""
    path = draw(st.sampled_from(list(places(document))))
    how = draw(st.sampled_from(["other", "junk", "gone", "renamed", "cut"]))
    if how == "cut":
        text = json.dumps(document)
        return text[: draw(st.integers(0, len(text) - 1))]
    if how == "other":
        return json.dumps(put(document, path, draw(_VALUES)))
    if how == "junk":
        return json.dumps(put(document, path, draw(st.sampled_from(JUNK))))
    changed = without(document, path)
    if how == "renamed" and isinstance(_holder(changed, path), dict):
        _holder(changed, path)[draw(st.text(max_size=8))] = None
    return json.dumps(changed)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=4), below),
    max_leaves=5,
)
