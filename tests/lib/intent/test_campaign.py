# SPDX-License-Identifier: Apache-2.0
"""Files of campaigns: what is read, what is refused, who is in which ring, and freezes."""

from __future__ import annotations

import re
import zoneinfo
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from edgetune.base.errors import InputError
from edgetune.base.fields import Fields
from edgetune.base.freezes import read_event, read_freeze
from edgetune.intent.campaign import Campaign, load_campaign, pops_by_ring
from edgetune.net.inventories.yaml import YamlInventory
from tests.support import ROOT
from tests.support.builders import write_yaml
from tests.support.campaign_world import campaign_document, inventory_of_four
from tests.support.cases import cases
from tests.support.metadata.values import altered

HERE = Path(__file__).parent
PAGE = ROOT / "docs/how-to/campaigns.md"


def loaded(folder: Path, document: dict[str, Any]) -> Campaign:
    return load_campaign(write_yaml(folder / "queue.yaml", document))


def test_rings_take_the_options_and_gates_of_the_campaign_and_have_their_own(
    tmp_path: Path,
) -> None:
    document = campaign_document(
        gates={
            "max_concurrent": 3,
            "approval": {"required": True, "expires": 600},
            "freezes": [{"days": ["sun"]}],
        }
    )
    document["rings"][2]["gates"] = {
        "verdict": "each",
        "freezes": [],
        "approval": {"self_approval": True},
    }
    canary, early, fleet = loaded(tmp_path, document).rings
    assert (canary.options.soak, early.options.soak, fleet.options.soak) == (3600, 3600, 7200)
    assert {ring.options.interval for ring in (canary, early, fleet)} == {10}
    assert canary.gates == early.gates
    assert (canary.gates.verdict, canary.gates.max_concurrent) == ("pooled", 3)
    assert (len(canary.gates.freezes), fleet.gates.freezes) == (1, ())
    assert (fleet.gates.verdict, fleet.gates.max_concurrent) == ("each", 3)
    assert (fleet.gates.approval, fleet.gates.self_approval) == (True, True)
    assert fleet.gates.approval_expires == 600


def test_the_digest_covers_everything(tmp_path: Path) -> None:
    path = tmp_path / "queue.yaml"
    text = write_yaml(path, campaign_document()).read_text()
    digest = load_campaign(path).digest
    path.write_text(f"# nothing of meaning\n{text}")
    assert load_campaign(path).digest == digest
    path.write_text(text.replace("7200", "7201"))
    assert load_campaign(path).digest != digest


@pytest.mark.parametrize("case", cases(HERE / "wrong_campaigns.yaml"))
def test_a_wrong_file_names_the_field(
    tmp_path: Path, case: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    document = altered(campaign_document(), case["path"], case["value"])
    with pytest.raises(InputError) as caught:
        loaded(tmp_path, document)
    assert request.node.callspec.id in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "queue.yaml"))


def inventory(folder: Path) -> YamlInventory:
    return YamlInventory(write_yaml(folder / "inventory.yaml", inventory_of_four()))


def rings(*each: dict[str, Any]) -> dict[str, Any]:
    return campaign_document(rings=[{"name": f"r{n}", **ring} for n, ring in enumerate(each)])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # Who is named belongs there, also before a region that comes earlier.
        ([{"regions": ["eu"]}, {"pops": ["fra1"]}], [("ams1", "ams2"), ("fra1",)]),
        ([{"labels": ["small"]}, {"regions": ["eu"]}], [("ams1", "lax1"), ("ams2", "fra1")]),
        ([{"regions": ["eu", "us"], "labels": ["small"]}], [("ams1", "lax1")]),
        ([{"regions": ["us"], "labels": ["small", "new"]}], [("lax1",)]),
        ([{"pops": ["lax1"], "regions": ["eu"]}], [("ams1", "ams2", "fra1", "lax1")]),
    ],
)
def test_each_pop_is_in_one_ring(tmp_path: Path, given: Any, expected: Any) -> None:
    found = pops_by_ring(loaded(tmp_path, rings(*given)), inventory(tmp_path))
    assert list(found.values()) == expected


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([{"pops": ["ams3"]}], "rings[0].pops[0]: there is no PoP 'ams3' (did you mean ams2?)"),
        ([{"regions": ["eu"]}, {"labels": ["big"]}], "rings[1]: r1 has no PoP"),
        ([{"regions": ["eu"]}, {"regions": ["eu"]}], "rings[1]: r1 has no PoP"),
        ([{"regions": ["us"], "labels": ["old"]}], "rings[0]: r0 has no PoP"),
    ],
)
def test_a_ring_without_a_pop_is_refused(tmp_path: Path, given: Any, says: str) -> None:
    with pytest.raises(InputError) as caught:
        pops_by_ring(loaded(tmp_path, rings(*given)), inventory(tmp_path))
    assert says in str(caught.value)


def at(moment: str) -> float:
    """Epoch seconds of a moment with its offset."""
    return datetime.fromisoformat(moment).timestamp()


@pytest.mark.parametrize("case", cases(HERE / "campaign_freezes.yaml"))
def test_when_a_freeze_is_in_force(case: dict[str, Any]) -> None:
    freeze = read_freeze(Fields(case["own"], "test"), case["zone"])
    assert freeze.until(at(case["at"])) == (case["until"] and at(case["until"]))


@pytest.mark.parametrize(
    ("event", "inside", "outside"),
    [
        (
            {"from": "2026-06-11", "to": "2026-07-19"},
            ("2026-06-11T00:00:00+02:00", "2026-07-19T23:59:59+02:00"),
            ("2026-06-10T23:59:59+02:00", "2026-07-20T00:00:00+02:00"),
        ),
        (
            {"from": "2026-06-11 18:00", "to": "2026-06-11T22:30"},
            ("2026-06-11T18:00:00+02:00", "2026-06-11T22:29:59+02:00"),
            ("2026-06-11T17:59:59+02:00", "2026-06-11T22:30:00+02:00"),
        ),
        (
            {"from": "2026-06-11 18:00", "to": "2026-06-11 22:30", "timezone": "America/New_York"},
            ("2026-06-11T18:00:00-04:00",),
            ("2026-06-11T18:00:00+02:00",),
        ),
    ],
)
def test_when_an_event_is_on(event: dict[str, Any], inside: Any, outside: Any) -> None:
    read = read_event(Fields({"name": "x", **event}, "test"), "Europe/Amsterdam")
    assert [read.until(at(moment)) for moment in inside] == [read.end] * len(inside)
    assert [read.until(at(moment)) for moment in outside] == [None] * len(outside)


def test_utc_needs_no_database_of_time_zones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(name: str) -> Any:
        raise zoneinfo.ZoneInfoNotFoundError(name)

    monkeypatch.setattr(zoneinfo, "ZoneInfo", nothing)
    window = {"freezes": [{"days": ["sat"]}]}
    (freeze,) = loaded(tmp_path, campaign_document(gates=window)).rings[0].gates.freezes
    assert freeze.until(at("2026-01-10T10:00:00+00:00")) == at("2026-01-11T00:00:00+00:00")
    with pytest.raises(InputError, match="timezone: 'Europe/Amsterdam' is no time zone"):
        loaded(tmp_path, campaign_document(timezone="Europe/Amsterdam"))


def test_dates_without_quotes_are_read(tmp_path: Path) -> None:
    path = write_yaml(tmp_path / "queue.yaml", campaign_document())
    text = "gates: {events: [{name: x, from: 2026-06-11, to: 2026-06-12 10:00:00}]}\n"
    path.write_text(path.read_text() + text)
    (event,) = load_campaign(path).rings[0].gates.events
    assert event.end - event.start == 34 * 3600


def test_the_campaign_of_the_documents_is_one(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```yaml\n(---\nname: queue\n.*?)```", PAGE.read_text(), re.DOTALL)
    path = tmp_path / "queue.yaml"
    path.write_text(shown)
    campaign = load_campaign(path)
    assert [ring.gates.max_concurrent for ring in campaign.rings] == [1, 1, 4]
    found = pops_by_ring(campaign, inventory(tmp_path))
    assert list(found.values()) == [("ams1",), ("lax1",), ("ams2", "fra1")]
