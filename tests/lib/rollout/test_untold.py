# SPDX-License-Identifier: Apache-2.0
"""A plan for a PoP whose metric source does not have what a tuning is judged by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgetune.base.documents.options import Options
from edgetune.base.documents.plan import Guard, Intent
from edgetune.base.errors import RefusedError
from edgetune.base.files import load_yaml
from edgetune.intent.metrics.catalogue import METRICS, WORK, Catalogue
from edgetune.intent.tuning import load_tuning
from edgetune.rollout.planning.make_plan import make_for, refuse_untold
from edgetune.site.config import PACK_METRICS
from edgetune.site.inventory import Metrics
from tests.support import ROOT
from tests.support.builders import pop, tuning, write_yaml
from tests.support.world import EmptyWorld

EXAMPLES = ROOT / "metrics" / "examples"


def refusal(folder: Path, source: str, *guards: Guard, intent: str = "listen_drops") -> str:
    first, *others = map(Metrics, source.split())
    site, judged = replace(pop(folder), metrics=first, more_metrics=tuple(others)), METRICS
    known = {name: judged[name] for name in (intent, WORK, *(own.metric for own in guards))}
    made = replace(tuning(), intent=Intent("improve", intent, 0.0), guards=guards, metrics=known)
    try:
        refuse_untold(site, made, False, judged)
    except RefusedError as error:
        return str(error)
    return ""


def test_what_prometheus_does_not_have_is_named_before_anything_is_asked(tmp_path: Path) -> None:
    said = refusal(tmp_path, "prometheus", Guard("health_failed", 0.5), intent="health_slowest")
    assert said == (
        "the metric source prometheus of lab1 does not have all of health_slowest "
        "(health_slowest_ms), health_failed (health_failed), which accept_queue is judged by: say "
        "where it has them in the files of these metrics, or name another source in "
        "pops.lab1.metrics of the inventory"
    )
    guard = refusal(tmp_path, "prometheus", Guard("health_p99", 0.5))
    assert "does not have all of health_p99 (request_ms), which" in guard
    assert guard.endswith(
        "of the inventory; hosts tell of an access log where they are the first one; or make them "
        "optional in a copy of it"
    )


def test_further_sources_are_named_and_give_no_counters(tmp_path: Path) -> None:
    lacks = {"sources": {"hosts": {"from": "nowhere"}}}
    document = load_yaml(ROOT / "metrics" / "listen_drops.yaml")
    (tmp_path / "own").mkdir()
    write_yaml(
        tmp_path / "own" / "listen_drops.yaml", {**document, "readings": {"listen_drops": lacks}}
    )
    both = (Metrics("prometheus"), (Metrics("hosts"),))
    own = replace(pop(tmp_path), metrics=both[0], more_metrics=both[1])
    with pytest.raises(RefusedError) as caught:
        refuse_untold(own, tuning(), False, Catalogue([tmp_path / "own", PACK_METRICS]))
    says = "the metric sources prometheus, hosts of lab1 do not have all of listen_drops (listen_"
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize(
    ("source", "guards"),
    [
        ("prometheus", [Guard("packet_drops", 0.1), Guard("cpu", 0.1)]),
        ("prometheus", [Guard("health_failed", 0.1, optional=True)]),
        ("hosts", [Guard("health_failed", 0.1)]),
        ("site's", [Guard("health_failed", 0.1)]),
        ("prometheus hosts", [Guard("health_failed", 0.1)]),
        ("prometheus site's", [Guard("health_failed", 0.1)]),
    ],
)
def test_what_a_source_has_or_need_not_have_refuses_nothing(
    tmp_path: Path, source: str, guards: list[Guard]
) -> None:
    assert refusal(tmp_path, source, *guards) == ""


def site(folder: Path, **goal: Any) -> dict[str, Any]:
    """The configuration of a site with the metrics of the examples and a tuning of its own."""
    document = load_yaml(ROOT / "tunings" / "accept_queue.yaml")
    (folder / "own").mkdir()
    write_yaml(folder / "own" / "accept_queue.yaml", {**document, **goal})
    return {"tunings": [str(folder / "own")], "metrics": [str(EXAMPLES)]}


def test_a_plan_holds_the_definition_of_a_site(tmp_path: Path) -> None:
    world = EmptyWorld(
        tmp_path, **site(tmp_path, guards=[{"metric": "http_5xx", "optional": True}])
    )
    made = make_for(world.context, "lab1", "accept_queue", Options(seed=7))
    known = Catalogue([EXAMPLES, PACK_METRICS])
    assert made.definitions["http_5xx"] == known["http_5xx"]
    path = Path(world.context.config.tunings[0]) / "accept_queue.yaml"
    assert {*load_tuning(path, known).metrics} == {*made.metrics}


HOSTS = [f"e{number:03d}" for number in range(8)]
LEAVE_OUT = "leave them out (only=, exclude=), or judge it by what they have"


@pytest.mark.parametrize(
    ("metric", "optional", "systems", "refused"),
    [
        ("http_5xx", False, {}, "the metric source hosts of lab1 does not have all of http_5xx"),
        ("pager_waits", False, {}, "hosts with Linux do not have pager_waits"),
        ("pager_waits", True, {}, ""),
        ("backlog_drops", False, {}, ""),
        ("backlog_drops", False, {"e002": "freebsd"}, "hosts with FreeBSD do not have backlog_"),
        ("pager_waits", False, dict.fromkeys(HOSTS, "freebsd"), ""),
    ],
)
def test_what_hosts_do_not_have_at_all_or_by_their_system_refuses_the_plan(
    tmp_path: Path, metric: str, optional: bool, systems: dict[str, str], refused: str
) -> None:
    guard = {"metric": metric, **({"optional": True} if optional else {})}
    world = EmptyWorld(tmp_path, **site(tmp_path, guards=[guard]))
    world.hosts.systems = systems
    if not refused:
        make_for(world.context, "lab1", "accept_queue", Options(seed=7))
        return
    with pytest.raises(RefusedError) as caught:
        make_for(world.context, "lab1", "accept_queue", Options(seed=7))
    said = str(caught.value)
    assert said.startswith(refused)
    if refused.startswith("hosts"):
        hosts = ", ".join(systems or HOSTS)
        assert said.endswith(f", which accept_queue is judged by: {hosts}; {LEAVE_OUT}")
    assert (world.hosts.changing(), world.balancer.log) == ([], [])


def test_requests_need_a_log_whose_format_has_them(tmp_path: Path) -> None:
    """Of hosts without an access log, or with one that tells no times, they are not measured."""
    catalogue = Catalogue([EXAMPLES, PACK_METRICS])
    known = {name: catalogue[name] for name in ("health_p99", WORK)}
    judged = replace(
        tuning(), intent=Intent("improve", "health_p99", 0.0), guards=(), metrics=known
    )

    def refused(**fields: str) -> str:
        site = replace(pop(tmp_path), metrics=Metrics("hosts", fields))
        try:
            refuse_untold(site, judged, False, catalogue)
        except RefusedError as error:
            return str(error)
        return ""

    assert refused() == refused(access_log="", log_format="nginx")
    assert refused().startswith("the metric source hosts of lab1 does not have all of health_p99 (")
    assert refused().endswith(
        "name the access log of its hosts (access_log, log_format; active where they have none) in "
        "pops.lab1.metrics of the inventory"
    )
    assert "request_ms" in refused(access_log="/a.log", log_format="{status} ")
    for written in ("nginx", "active"):
        assert refused(access_log="/a.log", log_format=written) == ""
