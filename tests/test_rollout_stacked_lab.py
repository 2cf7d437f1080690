# SPDX-License-Identifier: Apache-2.0
"""Two tunings on each other on a lab PoP; the lower one, of the network card, is retired first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgetune.files import load_yaml
from tests.builders import ROOT, write_yaml
from tests.practice import FOUR, Practice, needs_lab, practising

pytestmark = needs_lab

SOURCE = "https://docs.kernel.org/admin-guide/sysctl/"
LOOK = (
    "cd /proc/sys; echo $(cat net/core/somaxconn vm/swappiness /etc/stacked.conf;"
    " ip route show 10.77.0.0/16 | sed 's/.*initcwnd //';"
    " ls /sys/class/net/eth0/queues | grep -c rx)"
)
# Two queues instead of four: a change that may cut the host off, so it is provisional at first.
CARD = load_yaml(ROOT / "tunings/rps_spread.yaml")["settings"]


def _tuning(name: str, settings: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": name,
        "version": "1.0.0",
        "summary": "Stand above or below another tuning.",
        "intent": {"no_harm": "packet_drops", "margin": 5},
        # On a busy machine four hosts share the packets less evenly than in a margin of 5 %.
        "guards": [{"metric": "health_failed", "margin": 5}, {"metric": "packets", "margin": 3}],
        "settings": [{"why": "It is a test.", "source": SOURCE, **each} for each in settings],
    }


def _sysctl(key: str, value: int) -> dict[str, Any]:
    return {"kind": "sysctl", "key": key, "value": value}


def _route(initcwnd: int) -> dict[str, Any]:
    value = {"initcwnd": initcwnd}
    return {"kind": "route.metric", "family": "inet", "route": "10.77.0.0/16", "value": value}


def _file(text: str, **more: Any) -> dict[str, Any]:
    return {"kind": "file", "path": "/etc/stacked.conf", "value": text, **more}


LOWER = [
    *CARD,
    _sysctl("net.core.somaxconn", 64),
    _sysctl("vm.swappiness", 10),
    _route(20),
    _file("lower\n", disruption="drain"),
]
UPPER = [_sysctl("net.core.somaxconn", 128), _route(30), _file("upper\n")]


@pytest.fixture
def practice(tmp_path: Path) -> Iterator[Practice]:
    """A lab of four hosts whose catalogue has the two tunings."""
    home, folder = tmp_path / "home", tmp_path / "tunings"
    folder.mkdir()
    for name, settings in (("lower", LOWER), ("upper", UPPER)):
        write_yaml(folder / f"{name}.yaml", _tuning(name, settings))
    with practising(home, hosts=4) as made:
        write_yaml(home / "edgetune.yaml", {**made.config, "tunings": [str(folder)]})
        yield made


def test_a_tuning_is_retired_under_another_one(practice: Practice) -> None:
    before, lost = practice.fingerprints(), practice.lost()
    for name in ("lower", "upper"):
        done = practice.roll_out(f"tuning={name}", *FOUR)
        assert done["outcome"] == "promoted", done["message"]
    assert set(practice.on_all(LOOK).values()) == {"128 10 upper 30 2\n"}
    journals = practice.on_all("cat /var/lib/edgetune/tunings/lower.json")
    assert {json.loads(text)["state"] for text in journals.values()} == {"confirmed"}
    retired = practice.run("retire_tuning", "pop=lab1", "tuning=lower", "reason=too old")
    assert retired["message"] == "lower is taken back from lab1"
    assert set(practice.on_all(LOOK).values()) == {"128 60 upper 30 4\n"}
    status = practice.edgetune("status", f"rollout={retired['rollouts'][0]}")[1]
    assert "rolling_back retired: too old" in status
    assert "every host is as it was" in status and "quarantined" not in status
    back = practice.run("roll_back_pop", f"rollout={done['rollout']}")
    assert (back["outcome"], back["quarantined"]) == ("rolled_back", {})
    assert practice.fingerprints() == before
    assert (practice.serving(), practice.lost()) == (set(practice.hosts), lost)
