# SPDX-License-Identifier: Apache-2.0
"""Each test leaves StackStorm as it found it, however it ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from edgetune.base.documents.head import ENDED
from edgetune.base.files import load_yaml
from tests.st2.environment import missing
from tests.st2.stackstorm import INVENTORY, as_found, run
from tests.support.builders import write_yaml

# Every kernel has Reno, and no host of a lab has it for all.
ENTRY = {
    "algorithm": "reno",
    "ttl": "10m",
    "thresholds": {
        "window": 2,
        "slowest": 0.5,
        "sockets": 1,
        "measured": 0,
        "duty": 0,
        "leave_duty": 0,
        "shortest_rtt_ms": 0,
        "held_out": 0.05,
    },
}


@pytest.fixture(scope="session")
def found_there() -> set[str]:
    """The rollouts of others, which have ended: no test lifts anybody's pause or stop.

    Before that, what the tests need of the environment, all of it at once.
    """
    lacks = missing()
    assert not lacks, "\n".join(["StackStorm lacks what the tests need:", *lacks])
    found = run("rollout_status")["result"]["result"]
    stands = [row["state"] for row in found["rollouts"] if row["state"] not in ENDED]
    stands += [words for words in ("PAUSED", "EVERYTHING IS STOPPED") if words in found["text"]]
    assert not stands, f"end this before the tests: {stands}\n{found['text']}"
    return set(found["ids"])


@pytest.fixture(autouse=True)
def left_as_found(found_there: set[str]) -> Iterator[None]:
    with as_found():
        yield
        # What a test leaves that failed.
        for row in run("rollout_status")["result"]["result"]["rollouts"]:
            gone = row["state"] in ("rolled_back", "handed_over")
            if row["rollout"] not in found_there and not gone:
                run("roll_back_pop", rollout=row["rollout"])


@pytest.fixture
def tuned() -> Iterator[None]:
    """The PoP has an entry for a while; afterwards nothing of it is left on its hosts."""
    before = INVENTORY.read_bytes()
    document: Any = load_yaml(INVENTORY)
    document["pops"]["lab1"]["congestion"] = ENTRY
    write_yaml(INVENTORY, document)
    try:
        yield
    finally:
        back = run("roll_back_congestion", pop="lab1")
        run("resume_congestion", pop="lab1")
        INVENTORY.write_bytes(before)
    assert (back["status"], back["result"]["result"]["failed"]) == ("succeeded", [])
