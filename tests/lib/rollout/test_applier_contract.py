# SPDX-License-Identifier: Apache-2.0
"""What every applier promises (`appliers.base.Applier`), tried on a host of each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgetune.agent.appliers import APPLIERS, applier
from edgetune.agent.host import Host
from edgetune.agent.vocabulary.places import CONGESTION, PREFIX_FILE_NOTE
from edgetune.base.documents.congestion import Treated
from edgetune.wings.congestion.entry import APPLIERS as KNOWN
from tests.support import ROOT, appliers
from tests.support.agent_root import until
from tests.support.appliers import CHOSEN, V4_CLIENTS, V6_CLIENTS, Double

pytestmark = pytest.mark.processes
BOTH = {V4_CLIENTS: "bbr", V6_CLIENTS: "bbr"}


@pytest.fixture(params=[*APPLIERS])
def double(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Double]:
    with appliers.of(request.param).hosts(tmp_path) as own:
        yield own


def nothing_is_left(double: Double) -> bool:
    traces = (CONGESTION, PREFIX_FILE_NOTE, "/var/lib/edgetune/agent.py", "/etc/init.d/S99edgetune")
    return not double.treated and not any(double.root.exists(name[1:]) for name in traces)


def test_every_applier_has_a_file_and_a_double() -> None:
    folder = ROOT / "lib/edgetune/agent/appliers"
    assert {file.stem for file in folder.glob("*.py")} - {"__init__"} == {*APPLIERS}
    doubles = {file.stem for file in (ROOT / "tests/support/appliers").glob("*.py")} - {"__init__"}
    assert doubles == {*APPLIERS}
    assert all(name == applier(Host("/"), name).name for name in APPLIERS)
    assert {*APPLIERS} == {*KNOWN}


def test_a_window_is_refused_where_the_controller_says_that_none_is_set(double: Double) -> None:
    own = double.configuration([Treated(V4_CLIENTS, 33)])
    if KNOWN[double.name].has_windows:
        assert double.tell(own)["skipped"] == {}
    else:
        assert "sets no initial window" in double.refusal(own) and nothing_is_left(double)


def test_what_is_told_is_treated_and_nothing_else_is_changed(double: Double) -> None:
    before = double.others
    told = double.tell()
    assert (told["number"], told["prefixes"], told["skipped"], told["kept"]) == (1, 2, {}, True)
    assert double.treated == BOTH and double.others == before
    assert double.tell()["number"] == 1 and double.treated == BOTH
    double.tell(double.configuration(CHOSEN[:1], 2))
    assert double.treated == {V4_CLIENTS: "bbr"}
    double.tell(double.configuration(CHOSEN[:1], 3, algorithm="cubic"))
    assert double.treated == {V4_CLIENTS: "cubic"} and double.others == before
    told = double.tell(double.configuration([], 4))
    assert (told["number"], told["prefixes"]) == (0, 0)
    assert nothing_is_left(double) and double.others == before


def test_one_that_nobody_renews_is_taken_back(double: Double) -> None:
    before = double.others
    double.tell(double.configuration(ttl=1))
    assert until(lambda: nothing_is_left(double), 20)
    assert double.others == before


def test_a_boot_takes_it_back_and_its_hook_run_by_hand_does_not(double: Double) -> None:
    double.tell()
    double.root.run_hook()
    assert double.treated == BOTH and double.is_kept
    double.boot()
    assert nothing_is_left(double)


def test_nothing_is_left_of_a_first_one_that_fails(double: Double) -> None:
    before = double.others
    double.fail()
    assert double.refusal() and nothing_is_left(double) and double.others == before


def test_what_stood_before_goes_on_when_the_next_one_fails(double: Double) -> None:
    double.tell()
    double.fail()
    assert double.refusal(double.configuration(CHOSEN[:1], 2))
    stands = json.loads(double.root.read(CONGESTION[1:]))["configuration"]
    assert (stands["number"], double.treated) == (1, BOTH)


def test_what_is_somebody_elses_is_refused_and_left_alone(double: Double) -> None:
    double.be_somebody_elses()
    before = double.treated
    assert "refused: None: " in (said := double.refusal()) and "somebody else" in said
    assert double.treated == before and not double.root.exists(CONGESTION[1:])


def test_a_file_of_the_agent_that_is_damaged_keeps_nothing(double: Double) -> None:
    double.tell()
    with Host(str(double.root.path)).lock():
        double.root.write(CONGESTION[1:], "{")
    assert until(lambda: nothing_is_left(double), 20)


def test_what_a_person_took_away_is_set_again_while_it_stands(double: Double) -> None:
    double.tell()
    host = Host(str(double.root.path))
    with host.lock():
        applier(host, double.name).flush()
        assert not double.treated
    assert until(lambda: double.treated == BOTH, 20)


def test_an_older_number_and_an_older_epoch_are_refused(double: Double) -> None:
    double.tell(double.configuration(number=5), epoch=9)
    older, same = double.configuration(number=4), double.configuration(CHOSEN[:1], number=5)
    for own in (older, same):
        assert "configuration 5 of lab1 stands here" in double.refusal(own, 9)
    assert "epoch 8 is older" in double.refusal(double.configuration(number=6), 8)
    assert double.treated == BOTH
    # Who has lost the count can take everything back.
    double.tell(double.configuration([], 1), epoch=9)
    assert not double.treated
    double.tell(double.configuration(number=5), epoch=9)
    # Nor is it taken once everything was taken back, which forgets the number.
    double.tell(double.configuration([], 6), epoch=10)
    assert "epoch 9 is older" in double.refusal(double.configuration(number=7), 9)
    # A rollout has epochs of its own.
    assert double.root.read("var/lib/edgetune/congestion-epoch") == "10\n"
    assert not double.root.exists("var/lib/edgetune/epoch")
