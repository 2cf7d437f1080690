# SPDX-License-Identifier: Apache-2.0
"""Drivers and sources by name, and those of a package that is installed beside edgetune."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgetune.base.errors import InputError
from edgetune.net.inventories import INVENTORIES, read_pop
from edgetune.net.metrics.sources import SOURCES
from edgetune.net.traffic import DRIVERS, DrainDriver, open_driver

POP = {"load_balancer": {"driver": "beside"}, "hosts": {"e000": {"address": "10.0.0.1"}}}


@pytest.fixture(autouse=True)
def _looked_for_anew() -> Iterator[None]:
    """A process looks for packages once."""
    vars(DRIVERS).pop("_entry_points", None)
    yield
    vars(DRIVERS).pop("_entry_points", None)


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with a driver of its own, and one that calls itself as one of ours."""
    (tmp_path / "beside_edgetune.py").write_text(
        "from edgetune.net.traffic.drivers.flag import DRIVER\n"
        "from edgetune.net.traffic import DrainDriver\n"
        "class Beside(DrainDriver):\n"
        "    fields = {}\n"
        "Wrong = None\n"
    )
    installed = tmp_path / "beside_edgetune-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: beside-edgetune\n")
    (installed / "entry_points.txt").write_text(
        "[edgetune.net.traffic.drivers]\n"
        "beside = beside_edgetune:Beside\n"
        "haproxy = beside_edgetune:Wrong\n"
        "no_class = beside_edgetune:Wrong\n"
        "not_there = gone_from_here:Driver\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


def test_a_driver_of_another_package_serves_as_any_other(beside: None) -> None:
    assert read_pop("inventory", "lab1", POP).load_balancer.driver == "beside"
    assert DrainDriver in DRIVERS["beside"].__mro__
    assert "beside" in [*DRIVERS] and "beside" not in SOURCES


def test_none_replaces_one_of_ours(beside: None) -> None:
    assert DRIVERS["haproxy"].__module__ == "edgetune.net.traffic.drivers.haproxy"
    assert [*DRIVERS].count("haproxy") == 1


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("no_class", "beside_edgetune:Wrong is no class"),
        ("not_there", "gone_from_here:Driver cannot be loaded: ModuleNotFoundError: No module"),
        ("twice", "is claimed by a_third:Driver and by gone_from_here:Driver"),
    ],
)
def test_a_package_that_gives_no_driver_is_named(
    beside: None, tmp_path: Path, name: str, problem: str
) -> None:
    other = tmp_path / "a_third-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: a-third\n")
    claims = "\n".join(f"twice = {place}:Driver" for place in ("a_third", "gone_from_here"))
    (other / "entry_points.txt").write_text(f"[edgetune.net.traffic.drivers]\n{claims}\n")
    entry = {**POP, "load_balancer": {"driver": name}}
    with pytest.raises(
        InputError, match=f"^entry points edgetune.net.traffic.drivers: {name}: {problem}"
    ):
        read_pop("inventory", "lab1", entry)


def test_a_name_of_none_is_told_with_those_there_are() -> None:
    with pytest.raises(InputError, match="'beside' is none of .*flag, haproxy, http_hook"):
        read_pop("inventory", "lab1", POP)
    with pytest.raises(KeyError):
        open_driver("beside", {}, list)
    assert "_reading" not in INVENTORIES


def test_no_entry_point_is_looked_for_where_a_file_has_the_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused() -> None:
        raise AssertionError("each action would pay for it")

    monkeypatch.setattr("importlib.metadata.entry_points", refused)
    assert "haproxy" in DRIVERS and DRIVERS["haproxy"].fields
