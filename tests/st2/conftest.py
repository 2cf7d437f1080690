# SPDX-License-Identifier: Apache-2.0
"""Each test leaves StackStorm as it found it, however it ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edgetune.documents.head import ENDED
from tests.st2.stackstorm import as_found, run


@pytest.fixture(scope="session")
def found_there() -> set[str]:
    """The rollouts of others, which have ended: no test lifts anybody's pause or stop."""
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
            if row["rollout"] not in found_there and row["state"] != "rolled_back":
                run("roll_back_pop", rollout=row["rollout"])
