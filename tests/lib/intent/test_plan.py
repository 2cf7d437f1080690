# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.base.documents.options import Options
from edgetune.base.documents.plan import (
    MOST_WAYS,
    Groups,
    Guard,
    Intent,
    Plan,
    assignments,
    read_plan,
)
from edgetune.base.documents.reading import digest_of
from edgetune.base.errors import InputError, RefusedError
from edgetune.intent.metrics.catalogue import WORK
from edgetune.intent.plan import _cut, make_plan
from edgetune.intent.rendering import render
from edgetune.intent.tuning import Tuning
from edgetune.report.text import plan_text
from edgetune.site.inventory import Pop
from tests.support.builders import metrics_named, observed, plan, pop, proofs, tuning
from tests.support.examples import examples


def made_for(
    where: Pop,
    what: Tuning | None = None,
    seen: Mapping[str, Any] | None = None,
    **options: Any,
) -> Plan:
    """A plan for a PoP whose hosts were seen so; all others want a change."""
    what = what or tuning()
    rendered = dict.fromkeys([host.name for host in where.hosts], render(tuning(), {}))
    rows = {name: observed(name) for name in rendered} | {**(seen or {})}
    return make_plan(where, what, rendered, rows, Options(**options), proofs(where), {})


@examples(60)
@given(
    hosts=st.integers(7, 60),
    min_in_service=st.floats(0, 0.85),
    seed=st.integers(1, 10**6),
    batch_size=st.integers(0, 9),
)
def test_every_plan_keeps_its_promises(
    hosts: int, min_in_service: float, seed: int, batch_size: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = plan(Path(folder), hosts, min_in_service, seed=seed, batch_size=batch_size)
    split = made.groups
    assert sorted(split.test + split.control) == [f"e{i:03d}" for i in range(hosts)]
    changed = [b for b in made.batches if b.batch_type == "change"] + made.promote_batches
    assert sorted(h for batch in changed for h in batch.hosts) == sorted(split.test + split.control)
    assert len(made.batches[0].hosts) == 1
    largest = max(len(b.hosts) for b in made.every_batch)
    assert hosts - largest >= made.must_serve
    assert largest <= (batch_size or hosts)


def test_no_batch_takes_two_groups_out_that_fail_together(tmp_path: Path) -> None:
    own = replace(pop(tmp_path, 12, 0.25), fails_together=(("e000", "e001"), ("e002", "e003")))
    hosts = [f"e{n:03}" for n in range(12)]
    for size in range(1, 10):
        cut = _cut(own, hosts, size)
        assert sorted(name for batch in cut for name in batch) == hosts
        assert all(len(batch) <= size and not own.takes_too_many((), batch) for batch in cut)
    four = ["e004", "e000", "e001", "e002", "e003"]
    assert _cut(own, four, 4) == [["e004"], ["e000", "e001"], ["e002", "e003"]]
    assert _cut(replace(own, fails_together=()), four, 4) == [["e004"], four[1:]]


def test_control_hosts_reboot_in_matched_batches_as_the_text_shows(tmp_path: Path) -> None:
    made = plan(tmp_path)
    ways = [(b.batch_type, len(b.hosts)) for b in made.batches]
    assert ways == [("change", 1), ("sham", 1), ("change", 3), ("sham", 3)]
    assert made.draws == 2 and made.digest == plan(tmp_path).digest
    assert made.digest != plan(tmp_path, seed=8).digest
    text = plan_text(made)
    assert "sysctl:net.core.somaxconn: 8 -> 4096 (stored: 8)" in text
    assert "70 ways, smallest possible p = 0.0143" in text
    assert "reboot only control" in text
    said = "packets     need not be counted: traffic may move between the groups unseen"
    assert said not in text
    assert said in plan_text(plan(tmp_path, without_packets=True))
    (profile,) = plan(tmp_path, hosts=50).profiles
    assert profile.settings[0].value == "4096" and "e049" in profile.hosts


def test_a_pop_too_small_to_split_or_to_keep_enough_in_service_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="too small to split: lab: 2 against 2 .* 6 ways"):
        plan(tmp_path, hosts=4)
    with pytest.raises(RefusedError, match="too small to keep its min_in_service: 8 of its 8"):
        plan(tmp_path, min_in_service=0.9)


def test_fewer_ways_are_counted_to_the_last() -> None:
    small = {"a": Groups(["1", "2"], ["3", "4"]), "b": Groups(["5"], ["6", "7"])}
    assert assignments(small) == 6 * 3


@pytest.mark.parametrize(
    ("field", "value"),
    [("seed", 2**63), ("seed", -(2**63)), ("seed", 10**5000)]
    + [("test_fraction", 0), ("soak", 100), ("interval", 0)],
    ids=range(6),
)
def test_options_out_of_range_are_named(field: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"parameter: {field}: .* is (below|above) "):
        Options(**{field: value}).checked()


def test_a_damaged_plan_is_refused(tmp_path: Path) -> None:
    made = plan(tmp_path)
    document = made.document()
    assert read_plan(json.dumps(document), made.digest) == made
    with pytest.raises(RefusedError, match="is not the one with digest"):
        read_plan(json.dumps({**document, "pop": "lab2"}), made.digest)
    with pytest.raises(RefusedError, match="there is no plan sha256:0"):
        read_plan(None, "sha256:0")


def test_a_plan_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    today = plan(tmp_path, drop_sessions=True)
    later = ("digest", "draws", "machines", "restarts")
    body = {name: value for name, value in today.document().items() if name not in later}
    names = {
        "drop_sessions": "force",
        "test_fraction": "fraction",
        "alpha_benefit": "alpha_help",
    }
    body["options"] = {names.get(n, n): v for n, v in body["options"].items()}
    del body["options"]["without_packets"]
    for batch in [*body["batches"], *body["promote_batches"]]:
        batch["what"] = batch.pop("batch_type")
    # Up to 0.9 one list of resets was for all, and 0.6 counted ways without end.
    body.update(resets=["GracefulRestart", "ForceRestart"], assignments=math.comb(200, 100))
    digest = digest_of(body)
    old = read_plan(json.dumps({**body, "digest": digest}), digest)
    assert (old.digest, old.draws, old.machines, old.restarts) == (digest, 1, {}, {})
    assert old.assignments == MOST_WAYS
    assert old.options == today.options
    assert old.batches == today.batches and old.profiles == today.profiles


def test_the_text_shows_by_what_the_tuning_is_judged(tmp_path: Path) -> None:
    made = plan(tmp_path)
    assert "  guards      harm beyond health_failed +50%, packets -5%\n" in plan_text(made)
    made = replace(made, guards=[replace(guard, optional=True) for guard in 4 * made.guards])
    text = plan_text(made)
    assert "health_failed +50% (optional)," in text
    assert max(len(line) for line in text.splitlines() if "(optional)" in line) <= 78


@pytest.mark.slow
def test_a_pop_of_14_300_hosts_is_planned_written_and_shown(tmp_path: Path) -> None:
    """The ways of splitting it are a number of more than 4,300 digits."""
    (host, *_) = pop(tmp_path).hosts
    many = tuple(replace(host, name=f"e{i:05d}") for i in range(14_300))
    made = made_for(replace(pop(tmp_path), hosts=many))
    assert read_plan(json.dumps(made.document()), made.digest) == made
    assert made.assignments == 10**18
    assert "10^18 or more ways, smallest possible p = 0.0000" in plan_text(made)


def test_hosts_as_wanted_are_left_alone_and_unsupported_ones_named(tmp_path: Path) -> None:
    where = pop(tmp_path, 9)
    found = made_for(where, seen={"e004": observed("e004", "noop")}, seed=1)
    assert found.unchanged == ["e004"]
    assert "e004" not in found.groups.test + found.groups.control
    with pytest.raises(RefusedError, match="e003: sysctl:net.core.somaxconn: seen on e003"):
        made_for(where, seen={"e003": observed("e003", "unsupported")})
    with pytest.raises(RefusedError, match="nothing to do: every host of lab1"):
        made_for(where, seen={host.name: observed(host.name, "noop") for host in where.hosts})


def test_an_optional_setting_is_left_out_where_it_is_unsupported(tmp_path: Path) -> None:
    where, what, names = pop(tmp_path), tuning(), [f"e{number:03d}" for number in range(8)]
    optional = replace(what, settings=(replace(what.settings[0], optional=True),))
    unsupported = {"e003": observed("e003", "unsupported")}
    made = made_for(where, optional, unsupported, seed=1, test_fraction=0.5)
    assert made.unchanged == ["e003"]
    another = replace(what.settings[0], kind="file", target={"path": "/etc/own.conf"})
    two = replace(optional, settings=(*optional.settings, another))
    own = {name: unsupported.get(name, observed(name)) for name in names}
    rows = {name: [*own[name], replace(observed(name)[0], id=another.id)] for name in names}
    made = made_for(where, two, rows, seed=1)
    reason = {"sysctl:net.core.somaxconn": "seen on e003"}
    profile = made.profile_of("e003")
    assert (profile.left_out, profile.hosts) == (reason, ["e003"])
    assert [row.id for row in profile.before] == [another.id]
    assert "sysctl:net.core.somaxconn is left out: seen on e003" in plan_text(made)


def test_a_guard_that_no_host_can_measure_refuses_the_plan(tmp_path: Path) -> None:
    def judged(**guard: Any) -> Plan:
        what = tuning()
        guards = tuple(replace(own, **guard) for own in what.guards)
        known = metrics_named(what.intent.metric, *(own.metric for own in guards), WORK)
        what = replace(what, guards=guards, metrics=known)
        return made_for(replace(pop(tmp_path), health=""), what)

    says = "no host of lab1 can measure health_failed, which accept_queue is judged by: "
    with pytest.raises(RefusedError) as caught:
        judged()
    assert str(caught.value) == f"{says}pops.lab1.health of the inventory is missing"
    assert judged(optional=True).guards[0] == Guard("health_failed", 0.5, optional=True)
    assert judged(metric="retransmits").guards[0].optional is False


def test_every_plan_has_a_guard_of_the_work_with_a_margin_of_its_own(tmp_path: Path) -> None:
    def guards(**given: Any) -> list[Guard]:
        return list(made_for(pop(tmp_path), replace(tuning(), **given)).guards)

    share = Guard("packets", 0.05)
    assert guards() == [*tuning().guards, share]
    assert guards(guards=(Guard("packets", 0.3),)) == [replace(share, margin=0.3)]
    assert guards(guards=(), intent=Intent("no_harm", "packets", 0.1)) == []
