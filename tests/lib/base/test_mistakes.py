# SPDX-License-Identifier: Apache-2.0
"""Whatever a document holds, reading it on ends, and what one reading finds comes first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from edgetune.base.errors import InputError
from edgetune.base.fields import Fields
from edgetune.base.files import load_yaml
from edgetune.base.mistakes import MOST, line_of, read_on

NAMES = st.sampled_from(["name", "nme", "way", "port", "e0.example", "x"])
VALUES: Any = st.recursive(
    st.none() | st.integers() | st.sampled_from(["up", "dwn", "down", ""]),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(NAMES, below, max_size=4),
    max_leaves=20,
)


def read(data: Any) -> list[str]:
    """A reader with all that readers have."""
    top = Fields(data, "file")
    names = [_item(own) for own in top.each("items")]
    names += [_item(own) for _, own in top.inside("named", {}).named()]
    if not names:
        raise top.wrong("items", "is empty")
    top.done()
    return names


def _item(fields: Fields) -> str:
    fields.whole("port", 22, minimum=1)
    fields.text("way", "up", choices=("up", "down"))
    name = fields.text("name", pattern=r"[a-z]+")
    fields.done()
    return str(name)


@given(st.fixed_dictionaries({}, optional={"items": VALUES, "named": VALUES, "x": VALUES}))
def test_reading_on_ends_and_begins_with_what_a_reader_finds_first(document: Any) -> None:
    found = read_on(document, read, "file")
    fields = [str(error.field) for error in found.mistakes]
    assert len({*fields}) == len(fields) <= MOST
    try:
        assert (read(document), []) == (found.value, found.mistakes)
    except InputError as error:
        assert str(found.mistakes[0]) == str(error)


def test_items_of_a_list_keep_their_numbers_and_lines(tmp_path: Path) -> None:
    file, lines = tmp_path / "file.yaml", dict[str, int]()
    file.write_text(
        "items:\n- {name: 1}\n- name: a\n- {name: b, prt: 1,\n   way: dwn}\n- port: 0\n"
        "named:\n  e0.example:\n    name: c\n    port: x\n"
    )
    found = read_on(load_yaml(file, lines), read, "file").mistakes
    told = [(line_of(str(error.field), lines), error.field) for error in found]
    assert told == [
        (2, "items[0].name"),
        (5, "items[2].way"),
        (4, "items[2].prt"),
        (6, "items[3].port"),
        (6, "items[3].name"),
        (10, "named.e0.example.port"),
    ]


def test_no_more_are_named_than_somebody_reads() -> None:
    many = {"items": [{"name": number} for number in range(3 * MOST)]}
    assert len(read_on(many, read, "file").mistakes) <= MOST


def test_what_another_file_says_ends_it() -> None:
    def fails(data: Any) -> None:
        raise InputError("other", "name", "is wrong")

    (error,) = read_on({"name": 1}, fails, "file").mistakes
    assert str(error) == "other: name: is wrong"
