# SPDX-License-Identifier: Apache-2.0
"""Every file that people write: plain data in it, or one line that says what is wrong, at once."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from edgetune.base.errors import InputError
from edgetune.base.fields import Fields
from edgetune.base.files import MOST_VALUES, load_json, load_yaml
from tests.support import ROOT, hostile_files
from tests.support.cases import rows
from tests.support.examples import examples

CASES = Path(__file__).with_name("cases") / "files.yaml"


def written(folder: Path, text: str) -> Path:
    """A file with that text."""
    path = folder / "hostile.yaml"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


def refusal(folder: Path, text: str) -> str:
    """What is said of it, without the name of the file."""
    with pytest.raises(InputError) as caught:
        load_yaml(written(folder, text))
    return str(caught.value).partition("hostile.yaml: ")[2]


@pytest.fixture(scope="module")
def read_apart(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What another process said of each hostile file; it ended, within its memory."""
    folder = tmp_path_factory.mktemp("hostile")
    command = [sys.executable, "-m", "tests.support.hostile_files", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.processes
def test_each_danger_is_one_line_that_names_file_and_field(
    read_apart: list[Any], tmp_path: Path
) -> None:
    for kind, own in hostile_files.FILES.items():
        file = written(tmp_path, own["text"].replace("NUMBER", own["usual"]))
        assert hostile_files.KINDS[kind](file), "without a danger it is read"
    said = {(kind, danger): text for kind, danger, text, _ in read_apart[:-1]}
    dangers = {*hostile_files.NUMBERS, *hostile_files.ADDED, *hostile_files.BYTES, "UTF-16"}
    assert {danger for kind, danger in said if kind == "inventory"} == dangers
    assert len(said) > 4 * len(dangers)
    for (kind, danger), text in said.items():
        assert text, f"{danger} in {kind}"
        assert "hostile.yaml: " in text or text.startswith("configuration: ")
        assert text.isprintable()
        assert len(text) < 2300
    # Each costs two seconds and 200 MB at most.
    assert [row for row in read_apart[:-1] if row[3] > 2] == [] and read_apart[-1] < 200
    fields = {
        "inventory": "line 3: pops.lab1.reboot_time: ",
        "tuning": "line 4: intent.margin: ",
        "campaign": "line 3: rollout.soak: ",
        "config": "line 4: claim_grace: ",
    }
    named = {
        own: text
        for own, text in said.items()
        if own[0] in fields and own[1] in hostile_files.NUMBERS
    }
    assert len(named) == len(fields) * (len(hostile_files.NUMBERS) - 1) + 1
    for (kind, danger), text in named.items():
        assert f"hostile.yaml: {fields[kind]}" in text, danger


@pytest.mark.processes
def test_a_secret_is_not_in_what_is_said(read_apart: list[Any]) -> None:
    rows = [row for row in read_apart[:-1] if row[0] == "credentials"]
    assert {re.sub(r"line \d+", "line", row[2].partition("hostile.yaml: ")[2]) for row in rows} <= {
        "line: is not YAML (put what is secret in quotes)",
        "is not YAML (put what is secret in quotes)",
        "2026-01-31: must be a mapping, not a number",
        "zz: must be a mapping, not text",
        "a b: must be a mapping, not a number",
        f"{'x' * 197}...: must be a mapping, not a number",
    }


NUMBERS = "022 -017 0x1f 1_0 1_0.5 16:00 190:20:30.15 18446744073709551617"
TEXTS = ["00:30", "08", "1.2.3", "10.0.0.1", "2001:db8::1", "2026-01-31", "2026-01-31 18:00:00"]
READ: dict[str, Any] = {
    **{"0": 0, "+5": 5, "-5": -5, "18446744073692774399": 18446744073692774399, "! 5": "5"},
    **{"0.25": 0.25, ".5": 0.5, "1.5e+3": 1500.0, "yes": True, "off": False, "~": None},
    **{"'022'": "022", '"no"': "no", "!!str 022": "022", "!!str no": "no", "!!int 5": 5},
    **{text: text for text in (*TEXTS, "1e5", "+", "=")},
}


def test_a_number_is_what_a_person_reads_there(tmp_path: Path) -> None:
    for text in NUMBERS.split():
        assert refusal(tmp_path, f"a: {text}\n").startswith("line 1: a: "), text
    for text, value in READ.items():
        assert load_yaml(written(tmp_path, f"a: {text}\n")) == {"a": value}, text


@pytest.mark.parametrize(
    "text",
    rows(CASES, "merges_and_anchors_mean_what_they_mean_in_pyyaml"),
)
def test_merges_and_anchors_mean_what_they_mean_in_pyyaml(tmp_path: Path, text: str) -> None:
    assert load_yaml(written(tmp_path, text)) == yaml.safe_load(text)


def test_what_is_merged_is_checked_like_everything_else(tmp_path: Path) -> None:
    """A host whose fields come by a merge; and one of its own goes before it."""
    base = "x-host: &h {address: 10.0.0.1, colour: red}\n"
    assert "'colour' is given twice" in refusal(
        tmp_path, f"{base}e: {{<<: *h, colour: 1, colour: 2}}"
    )
    read = Fields(load_yaml(written(tmp_path, f"{base}e: {{<<: *h, address: 10.0.0.2}}")), "f")
    below = read.inside("e")
    assert below.text("address") == "10.0.0.2"
    with pytest.raises(InputError, match=r"f: e\.colour: is not known here"):
        below.done()


def test_aliases_are_counted_with_what_they_stand_for(tmp_path: Path) -> None:
    many = 1000
    fits = MOST_VALUES // (many + 1) - 2
    text = f"a: &a [{'1, ' * many}]\nb: [{'*a, ' * fits}]\n"
    assert len(load_yaml(written(tmp_path, text))["b"]) == fits
    assert "holds more than" in refusal(tmp_path, text.replace("b: [", f"b: [{'*a, ' * 3}"))


_PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.text(max_size=20)
    | st.floats(-1e9, 1e9),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4)
    ),
    max_leaves=12,
)


@examples(200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_PLAIN)
def test_what_pyyaml_writes_is_read_as_it_was(tmp_path: Path, value: Any) -> None:
    text = yaml.safe_dump([value, value], allow_unicode=False)
    try:
        assert load_yaml(written(tmp_path, text)) == [value, value]
    except InputError as error:
        assert "a character that is none" in str(error)


@examples(400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text("ab01.:-_[]{}&*<>!|?#'\" \n\t,~\\xu%@`", max_size=60) | st.binary(max_size=60))
def test_any_text_is_data_or_one_line(tmp_path: Path, text: str | bytes) -> None:
    path = tmp_path / "hostile.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    try:
        json.dumps(load_yaml(path), allow_nan=False).encode()
    except InputError as error:
        assert str(error).isprintable()
        assert len(str(error)) < 2300


def _places(document: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where there is a value in a document."""
    below = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in below:
        yield (*place, key)
        if isinstance(value, (dict, list)):
            yield from _places(value, (*place, key))


_ODD = _PLAIN | st.sampled_from(
    [float("nan"), float("inf"), 1e300, -1, 0.5, 10**19, 70000, "x" * 20_000, "\x07", "{{ 1 }}"]
    + ["{% for", "{{ 'x' * 99999999 }}", "2026-01-31", "9999-12-31", "0001-01-01", "a" * 300]
    + ["tcp://[::1]:99999", "https://[", "http://x:99999/", "/", "unix:///\0", "Europe", "../x"]
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", hostile_files.KINDS)
@examples(150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_value_anywhere_is_taken_or_named(tmp_path: Path, kind: str, data: Any) -> None:
    own = hostile_files.FILES[kind]
    document = yaml.safe_load(own["text"].replace("NUMBER", own["usual"]) + own.get("more", ""))
    for _ in range(data.draw(st.integers(1, 2))):
        *way, last = data.draw(st.sampled_from([*_places(document)]))
        inside = document
        for key in way:
            inside = inside[key] if isinstance(inside, (dict, list)) else {}
        if isinstance(inside, (dict, list)) and (isinstance(inside, dict) or inside):
            inside[last] = data.draw(_ODD)
    try:
        hostile_files.KINDS[kind](written(tmp_path, yaml.safe_dump(document)))
    except InputError as error:
        assert str(error).isprintable()
        assert len(str(error)) < 2300


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', "[" * 100_000, '{"a": 1', "9" * 5000 + "x"])
def test_json_of_no_use_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="."):
        load_json(text)
