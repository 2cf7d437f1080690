# SPDX-License-Identifier: Apache-2.0
"""Whatever tuning is applied to whatever host: proven, kept over a boot, taken back to the byte."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from edgetune.agent.vocabulary.kinds import KINDS
from edgetune.base.documents.reading import encoded
from edgetune.base.errors import InputError
from edgetune.intent.plan import settings_by_agent
from edgetune.intent.rendering import misfits, render
from edgetune.intent.tuning import Tuning, load_tuning
from tests.support import ROOT, agent_nic
from tests.support.agent_any import AnyHost, any_host, builds, tunings
from tests.support.agent_root import request
from tests.support.examples import examples
from tests.support.trials import MACHINES, MAKES, Build

pytestmark = pytest.mark.slow

Settings = list[dict[str, Any]]
ORDER = list(KINDS)
BY_HAND, LATE = "changed by hand before", "boots, and the interface is up late"
COURSES = ("", BY_HAND, "boots", LATE)
CATALOGUE = [load_tuning(path) for path in sorted((ROOT / "tunings").glob("*.yaml"))]
derandomized = examples(
    45,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
numbers = itertools.count()


def leads_there_and_back(host: AnyHost, wanted: Settings, boot: str = "") -> bool:
    """Whether a host can take all of it; what it cannot is refused, and then left out.

    Either way the host comes back to the byte. With ``boot`` it boots in between.
    """
    before = host.whole()
    rows = host.plan(*wanted)
    assert host.whole() == before and not host.trace, "a plan touches nothing"
    reply = host.send(request("apply", **host.change(*wanted)))
    can = [own for own, row in zip(wanted, rows) if row["status"] != "unsupported"]
    if len(can) < len(wanted):
        assert reply["error"]["reason"] == "refused", reply
        assert host.whole() == before and not host.trace, "what is refused touches nothing"
        return bool(can) and leads_there_and_back(host, can, boot) and False
    if not reply["ok"]:
        assert contradictory(wanted), reply
        assert reply["error"]["message"].endswith("; undone"), reply
        assert host.whole() == before, reply
        return False
    assert reply["result"]["changed"] == any(row["status"] == "change" for row in rows)
    assert_proven(host, wanted)
    changed, host.trace = host.trace, []
    assert not host.apply(*wanted)["changed"] and not host.trace, "the second time nothing changes"
    if boot:
        assert host.boot_anew(late=boot == LATE) == []
        assert_proven(host, wanted)
    host.trace = []
    host.restore()
    assert host.whole() == before
    assert host.leftovers() == {"epoch"}
    taken_back, host.trace = host.trace, []
    assert not host.restore()["changed"] and not host.trace
    if not boot and not host.by_hand:
        assert_in_order(host, rows, changed, taken_back)
    return True


def contradictory(wanted: Settings) -> bool:
    """Whether two settings are of one thing; those of a card are of parts of it.

    Queues that a change of channels adds have interrupts that any CPU may serve, until a setting
    places them, and steering goes by the CPU of a queue's interrupt. irqbalance moves interrupts
    that a setting places.
    """
    kinds = {own["kind"] for own in wanted}
    steers = kinds & {"nic.xps", "nic.rps"}
    if steers and "nic.channels" in kinds and "nic.irq_affinity" not in kinds:
        return True
    begun = [
        own["target"] for own in wanted if own["kind"] == "unit" and own["value"]["active"] == "on"
    ]
    if "nic.irq_affinity" in kinds and {"unit": "irqbalance.service"} in begun:
        return True
    things = [thing for own in wanted for thing in KINDS[own["kind"]].touches(own["target"])]
    return any(things.count(thing) > 1 for thing in things if not thing.startswith("interface "))


def assert_proven(host: AnyHost, wanted: Settings) -> None:
    proven = host.ask("verify", tuning="t", settings=wanted)
    assert proven["verified"], [row for row in proven["settings"] if not row["ok"]]


def assert_in_order(
    host: AnyHost, rows: Settings, changed: list[str], taken_back: list[str]
) -> None:
    """Of each kind: its last change, and the first one back.

    What a kind resets is put back along with it, before it is set itself and after it was taken
    back. So kinds that others reset on this card are left out where those follow, or come first.
    """
    own = {row["id"].split(":")[0] for row in rows if row["reason"].startswith("differs")}
    late_resets = {"-K": "nic.features", "-C": "nic.coalesce"}
    if {late_resets[option] for option in set(host.card.resets) & set(late_resets)} & own:
        own -= {"nic.rss", "nic.features", "nic.irq_affinity"}
    applied = [kind for kind in reversed(changed) if kind in own]
    assert list(dict.fromkeys(applied))[::-1] == sorted(set(applied), key=ORDER.index)
    back = [kind for kind in taken_back if kind in own - {"nic.rss"}]
    assert list(dict.fromkeys(back))[::-1] == sorted(set(back), key=ORDER.index)


def rendered(tuning: Tuning, facts: Any) -> Settings:
    """Those of its settings that the agent takes; none where the host has nothing of what a value
    is made of, which is named."""
    try:
        return encoded(settings_by_agent(render(tuning, facts)))
    except InputError as error:
        assert f"{tuning.name}.yaml: settings[" in str(error)
        return []


@derandomized
@given(data=st.data(), build=builds(), course=st.sampled_from(COURSES))
def test_any_tuning_leads_there_and_back(
    tmp_path: Path, data: st.DataObject, build: Build, course: str
) -> None:
    with any_host(tmp_path / str(next(numbers)), build) as host:
        if course == BY_HAND:
            host.change_by_hand()
        boot = "" if course == BY_HAND else course
        leads_there_and_back(host, data.draw(tunings(build)), boot)


@pytest.mark.parametrize("card", MAKES, ids=lambda make: make.__name__)
def test_the_catalogue_leads_there_and_back(tmp_path: Path, card: agent_nic.Make) -> None:
    """On machines with one socket and with two, below systemd and without it, by turns."""
    number = MAKES.index(card)
    machine, init = MACHINES[number // 2 % 2], ("sysv", "systemd")[number % 2]
    taken = set()
    with any_host(tmp_path / "host", Build(card, machine, init)) as host:
        facts = host.ask("facts")
        for tuning in CATALOGUE:
            own = [] if misfits(tuning, facts) else rendered(tuning, facts)
            if own and leads_there_and_back(host, own):
                taken.add(tuning.name)
    assert {"accept_queue", "memory_watermarks", "no_swap", "quiet_thp"} <= taken
