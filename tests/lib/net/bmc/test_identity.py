# SPDX-License-Identifier: Apache-2.0
"""Whether a host and its BMC are the same machine."""

from __future__ import annotations

from typing import Any

import pytest

from edgetune.net.bmc.identity import mismatch

OWN = "4c4c4544-0058-4a10-8031-b6c04f483432"
SWAPPED = "44454c4c-5800-104a-8031-b6c04f483432"
OTHER = "4c4c4544-0058-4a10-8031-b6c04f483433"

ZEROS, ONES = "00000000-0000-0000-0000-000000000000", "FFFFFFFF-FFFF-FFFF-FFFF-ffffffffffff"
NOTHING = ["", " ", "0", ZEROS, ONES, "03000200-0400-0500-0006-000700080009"]
NOTHING += ["Default string", "Not Specified", "none"]


def _mismatch(host: tuple[str, str], bmc: tuple[str, str, str]) -> str | None:
    machine = dict(zip(("uuid", "serial"), host))
    return mismatch(machine, dict(zip(("system", "serial", "sku"), bmc)))


@pytest.mark.parametrize(
    ("host", "bmc"),
    [
        ((OWN, ""), (OWN, "", "")),
        ((OWN, ""), (OWN.upper(), "", "")),
        ((OWN, ""), (SWAPPED, "", "")),
        ((SWAPPED.upper(), ""), (OWN, "", "")),
        ((OWN, "6XJ1H42"), (OTHER, "6xj1h42 ", "")),
        ((OWN, "6XJ1H42"), (OTHER, "CN7475151H0021", "6XJ1H42")),
        (("", "6XJ1H42"), (OTHER, "6XJ1H42", "")),
        (("no UUID", ""), ("No UUID", "", "")),
    ],
)
def test_one_thing_that_matches_is_enough(host: Any, bmc: Any) -> None:
    assert _mismatch(host, bmc) is None


@pytest.mark.parametrize(
    ("host", "bmc"),
    [
        ((OWN, ""), (OTHER, "", "")),
        ((OWN, "6XJ1H42"), (OTHER, "6XJ1H43", "")),
        ((OWN, ""), ("", "6XJ1H42", "")),
        ((OWN, "None"), (OTHER, "None", "")),
        ((OWN, "0123456789"), (OTHER, "", "0123456789")),
        ((OWN, "To be filled by O.E.M."), (OTHER, "To Be Filled By O.E.M.", "")),
        (("no UUID", ""), (OWN, "", "")),
    ],
)
def test_what_both_tell_and_nothing_of_it_matches_are_two_machines(host: Any, bmc: Any) -> None:
    assert _mismatch(host, bmc)


@pytest.mark.parametrize("nothing", NOTHING)
def test_what_nobody_wrote_tells_nothing(nothing: str) -> None:
    assert _mismatch((nothing, nothing), (OWN, "6XJ1H42", "6XJ1H42")) is None
    assert _mismatch((OWN, "6XJ1H42"), (nothing, nothing, nothing)) is None


def test_what_has_another_shape_tells_nothing() -> None:
    assert mismatch(None, {"system": OWN}) is None
    assert mismatch({"uuid": OWN, "serial": 7}, {"system": ["x"], "serial": {}}) is None


def test_both_are_named_by_all_that_they_tell() -> None:
    assert _mismatch((OWN, "6XJ1H42"), (OTHER, "Default string", "6XJ1H43\x1b")) == (
        f"the host is UUID {OWN}, serial 6XJ1H42, and that BMC's machine UUID {OTHER}, SKU 6XJ1H43"
    )
