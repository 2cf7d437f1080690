# SPDX-License-Identifier: Apache-2.0
"""What a rollout on a lab PoP refuses: named in one line, before anything is touched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import write_yaml
from tests.support.practice import FOUR, Practice, needs_lab, practising

pytestmark = needs_lab


@pytest.fixture(scope="module")
def practice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Practice]:
    """A lab whose hosts are in the end as they were."""
    with practising(tmp_path_factory.mktemp("practice"), hosts=4, load=False) as made:
        before = made.fingerprints()
        yield made
        assert made.fingerprints() == before


def _inventory(practice: Practice, tmp_path: Path, change: Any) -> Path:
    document = json.loads(json.dumps(practice.inventory))
    change(document["pops"]["lab1"])
    path = write_yaml(tmp_path / "inventory.yaml", document)
    return write_yaml(tmp_path / "edgetune.yaml", {**practice.config, "inventory": str(path)})


def _exchange(pop: dict[str, Any]) -> None:
    """The SSH addresses of two hosts, and nothing else."""
    one, other = pop["hosts"]["e001"], pop["hosts"]["e002"]
    one["address"], other["address"] = other["address"], one["address"]


def _refused(practice: Practice, says: str, *words: str, config: Path | None = None) -> None:
    """One clear line, exit status not 0, and no host or server touched."""
    serving = practice.serving()
    code, _, err = practice.edgetune("run", "rollout_pop", *words, config=config)
    assert code not in (0, 130)
    assert says in " ".join(err.split()), err
    assert "Traceback" not in err
    assert practice.serving() == serving


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda pop: pop["load_balancer"].update(backend="none"),
            "HAProxy has no backend 'none'",
        ),
        (
            _exchange,
            "e001: the load balancer sends requests for e001 to 10.77.1.2, which e002 has; "
            "10.77.1.3, asked over SSH, has 10.77.1.3",
        ),
    ],
)
def test_a_wrong_inventory_is_named(
    practice: Practice, tmp_path: Path, change: Any, says: str
) -> None:
    """What takes hosts to find out; the plan and the readers have their own tests."""
    config = _inventory(practice, tmp_path, change)
    _refused(practice, says, "tuning=accept_queue", *FOUR, config=config)


def test_a_plan_that_no_longer_fits_is_refused(practice: Practice) -> None:
    asked = [word for word in FOUR if not word.startswith(("dry_run=", "wait="))]
    planned = practice.run("plan_rollout", "tuning=accept_queue", *asked)
    plan = f"plan={planned['plan']}"
    practice.on("e002", "sysctl -q -w net.core.somaxconn=11")
    try:
        _refused(practice, f"plan {planned['plan']} no longer fits: profiles", *FOUR, plan)
    finally:
        practice.on("e002", "sysctl -q -w net.core.somaxconn=8")
    assert practice.run("plan_rollout", "pop=lab1", plan)["plan"] == planned["plan"]
