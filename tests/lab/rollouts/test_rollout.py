# SPDX-License-Identifier: Apache-2.0
"""Whole rollouts by the local runner on a lab PoP of real hosts, looked at from outside."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.practice import FOUR, Practice, needs_lab, practising

pytestmark = needs_lab


@pytest.fixture(scope="module")
def practice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Practice]:
    """Four hosts, where the eight of a lab would show no more and take longer."""
    with practising(tmp_path_factory.mktemp("practice"), hosts=4) as made:
        yield made


def test_a_tuning_that_hurts_is_taken_back_to_the_byte(practice: Practice) -> None:
    before, lost = practice.fingerprints(), practice.lost()
    # Connections that are tried again are packets: with the groups exchanged, of six draws, these
    # may look as bad as the drops.
    done = practice.roll_out("tuning=tiny_accept_queue", *FOUR[:-1], "alpha_harm=0.35")
    found = (done["exit"], done["outcome"], done["verdict"])
    assert found == (3, "rolled_back", "degraded"), done["text"]
    assert practice.fingerprints() == before
    assert practice.serving() == set(practice.hosts)
    assert practice.lost() == lost


def test_a_tuning_that_helps_is_promoted(practice: Practice) -> None:
    """``test_two_balancers.py`` takes it back again, by hand."""
    lost = practice.lost()
    done = practice.roll_out("tuning=accept_queue", *FOUR, "requested_by=ana")
    found = (done["exit"], done["outcome"], done["verdict"])
    assert found == (0, "promoted", "improved"), done["text"]
    assert practice.somaxconn() == {"4096"}
    assert practice.serving() == set(practice.hosts)
    status = practice.edgetune("status", f"rollout={done['rollout']}")[1]
    assert f"{done['rollout']}  accept_queue on lab1: complete" in status
    assert " as ana" in status
    again = practice.edgetune("run", "rollout_pop", "tuning=accept_queue", *FOUR)
    assert again[0] == 1
    assert "nothing to do: every host of lab1 is as accept_queue wants it" in again[2]
    assert practice.lost() == lost
