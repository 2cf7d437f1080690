# SPDX-License-Identifier: Apache-2.0
"""The rows of a baseline's or a block's hosts, as documents keep them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgetune.errors import InputError
from edgetune.judge.look import Moment, take_look
from edgetune.judge.measured import halves_of, rows_of
from edgetune.judge.ring import PopRecord, judge_ring
from edgetune.judge.rows import packed_rows, rows_in
from tests.soaked_fleet import Fleet

Document = dict[str, Any]
HOSTS = ["e2", "e0", "e1"]
ROWS = np.array([[1.0, 2, 3, 4, 5], [1e-9, np.nan, 1 / 3, 0, 1e30], [6, 7, 8, 9, 123456789]])


def made(rows: Any = ROWS, hosts: list[str] = HOSTS) -> Document:
    return {"hosts": hosts, "metrics": {"cpu": {"rows": packed_rows(rows)}}}


def as_of_0_7(document: Document) -> Document:
    """As version 0.7 wrote it: a list for each host, and the names in each metric alone."""
    whole = json.loads(json.dumps(document))
    hosts = whole.pop("hosts")
    for metric, own in whole["metrics"].items():
        rows = rows_of([document], metric, hosts)[0].tolist()
        own["hosts"] = dict(zip(hosts, rows))
        del own["rows"]
        if "halves" in own:
            halves = np.hstack(halves_of(document, metric, hosts)).tolist()
            own["halves"] = dict(zip(hosts, halves))
    return dict(whole)


def test_rows_come_back_as_they_were_in_any_order_of_hosts() -> None:
    document = json.loads(json.dumps(made()))
    found = rows_in(document, "cpu", "rows", HOSTS, [5])
    np.testing.assert_allclose(found, ROWS, rtol=1e-7)
    found = rows_in(document, "cpu", "rows", ["e1", "unknown", "e2"], [5])
    np.testing.assert_allclose(found, [ROWS[2], [np.nan] * 5, ROWS[0]], rtol=1e-7)
    assert rows_in(document, "cpu", "rows", [], [5]).shape == (0, 5)


def test_numbers_that_no_host_counts_stay_large_and_finite() -> None:
    found = rows_in(made(np.array([[1e300, -1e300, 5e-324]])[[0, 0, 0]]), "cpu", "rows", HOSTS, [3])
    assert found[0].tolist() == pytest.approx([3.4e38, -3.4e38, 0.0], rel=1e-2)


@pytest.mark.parametrize(
    "damaged",
    [
        made(ROWS[:2]),
        made(ROWS[:, :4]),
        made(ROWS, HOSTS[:1]),
        made(ROWS, [*HOSTS, "e3"]),
        {"hosts": HOSTS, "metrics": {"cpu": {"rows": "AAAA"}}},
        {"hosts": HOSTS, "metrics": {"cpu": {"rows": "?"}}},
        {"hosts": HOSTS, "metrics": {"cpu": {"rows": None}}},
        {"metrics": {"cpu": {"hosts": {"e0": [1.0] * 5, "e1": [1.0] * 4}}}},
        {"metrics": {"cpu": {"hosts": {}}}},
    ],
)
def test_what_are_no_rows_of_its_hosts_is_refused_by_name(damaged: Document) -> None:
    with pytest.raises(InputError, match="^record: metrics.cpu.rows: are no rows of its hosts$"):
        rows_in(damaged, "cpu", "rows", HOSTS, [5])


def test_records_of_version_0_7_are_judged_as_those_of_today(tmp_path: Path) -> None:
    """Rollouts go on while the pack is upgraded: some of their blocks are old."""
    fleet = Fleet(tmp_path).intends("improve", "listen_drops", "packet_drops", "health_p50")
    looks = fleet.soaks()
    today, blocks = looks[-1], fleet.blocks
    ring = judge_ring({"pop5": PopRecord(fleet.plan, _strata(fleet), fleet.baseline, blocks)})
    fleet.baseline = as_of_0_7(fleet.baseline)
    fleet.blocks = [*map(as_of_0_7, blocks[:2]), *blocks[2:]]
    moment = Moment(4, 4, 1.0)
    mixed = take_look(fleet.plan, _strata(fleet), fleet.baseline, fleet.blocks, moment, looks[-2])
    assert mixed == today
    record = PopRecord(fleet.plan, _strata(fleet), fleet.baseline, fleet.blocks)
    assert judge_ring({"pop5": record}) == ring


def _strata(fleet: Fleet) -> Any:
    return fleet.plan.strata
