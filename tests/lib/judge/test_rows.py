# SPDX-License-Identifier: Apache-2.0
"""The rows of a baseline's or a block's hosts, as documents keep them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgetune.base.documents.baseline import in_columns
from edgetune.base.documents.look import Moment
from edgetune.base.documents.reading import decoded, encoded
from edgetune.base.errors import InputError
from edgetune.judge.look import take_look
from edgetune.judge.measured import halves_of, packed_rows, rows_in, rows_of
from edgetune.judge.ring import PopRecord, judge_ring
from tests.support.soaked_fleet import Fleet

Document = dict[str, Any]
HOSTS = ["e2", "e0", "e1"]
ROWS = np.array([[1.0, 2, 3, 4, 5], [1e-9, np.nan, 1 / 3, 0, 1e30], [6, 7, 8, 9, 123456789]])


def of_0_7(document: Any) -> Document:
    """As version 0.7 wrote it: a list for each host, and the names in each metric alone."""
    whole = json.loads(json.dumps(encoded(document)))
    hosts = whole.pop("hosts")
    for metric, own in whole["metrics"].items():
        rows = rows_of([document], metric, hosts)[0].tolist()
        own["hosts"] = dict(zip(hosts, rows))
        del own["rows"]
        if "halves" in own:
            halves = np.hstack(halves_of(document, metric, hosts)).tolist()
            own["halves"] = dict(zip(hosts, halves))
    return dict(whole)


def read_again(document: Any) -> Any:
    """What today's version makes of it."""
    return decoded("document", type(document), in_columns(of_0_7(document)))


def in_order_of(hosts: list[str], text: str, known: list[str] = HOSTS, width: int = 5) -> Any:
    return rows_in(text, known, hosts, [width], "metrics.cpu.rows")


def test_rows_come_back_as_they_were_in_any_order_of_hosts() -> None:
    text = packed_rows(ROWS)
    np.testing.assert_allclose(in_order_of(HOSTS, text), ROWS, rtol=1e-7)
    found = in_order_of(["e1", "unknown", "e2"], text)
    np.testing.assert_allclose(found, [ROWS[2], [np.nan] * 5, ROWS[0]], rtol=1e-7)
    assert in_order_of([], text).shape == (0, 5)


def test_numbers_that_no_host_counts_stay_large_and_finite() -> None:
    text = packed_rows(np.array([[1e300, -1e300, 5e-324]])[[0, 0, 0]])
    found = in_order_of(HOSTS, text, width=3)
    assert found[0].tolist() == pytest.approx([3.4e38, -3.4e38, 0.0], rel=1e-2)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        (packed_rows(ROWS[:2]), HOSTS),
        (packed_rows(ROWS[:, :4]), HOSTS),
        (packed_rows(ROWS), HOSTS[:1]),
        (packed_rows(ROWS), [*HOSTS, "e3"]),
        ("AAAA", HOSTS),
        ("?", HOSTS),
        ("\xe4", HOSTS),
        ("", []),
    ],
)
def test_what_are_no_rows_of_its_hosts_is_refused_by_name(text: str, known: list[str]) -> None:
    with pytest.raises(InputError, match="^record: metrics.cpu.rows: are no rows of its hosts$"):
        in_order_of(HOSTS, text, known)


@pytest.mark.parametrize(
    "rows",
    [
        {"e2": [1.0] * 5, "e0": [1.0] * 4},
        {"e2": [1.0] * 6, "e0": [1.0] * 4},
        {"e2": ["1"] * 5},
        {"e2": None},
        {"e2": [10**400] * 5},
        {},
    ],
)
def test_lists_of_an_earlier_version_that_are_no_rows_are_refused(rows: Any) -> None:
    found = in_columns({"metrics": {"cpu": {"hosts": rows}}})
    with pytest.raises(InputError, match="are no rows of its hosts"):
        in_order_of(HOSTS, found["metrics"]["cpu"]["rows"], found["hosts"])


def test_records_of_version_0_7_are_judged_as_those_of_today(tmp_path: Path) -> None:
    """Rollouts go on while the pack is upgraded: some of their blocks are old."""
    fleet = Fleet(tmp_path).intends("improve", "listen_drops", "packet_drops", "health_slowest")
    looks = fleet.soaks()
    today, blocks = looks[-1], fleet.blocks
    ring = judge_ring({"pop5": PopRecord(fleet.plan, _strata(fleet), fleet.baseline, blocks)})
    fleet.baseline = read_again(fleet.baseline)
    fleet.blocks = [*map(read_again, blocks[:2]), *blocks[2:]]
    moment = Moment(4, 4, 1.0)
    mixed = take_look(fleet.plan, _strata(fleet), fleet.baseline, fleet.blocks, moment, looks[-2])
    assert mixed == today
    record = PopRecord(fleet.plan, _strata(fleet), fleet.baseline, fleet.blocks)
    assert judge_ring({"pop5": record}) == ring


def _strata(fleet: Fleet) -> Any:
    return fleet.plan.strata
