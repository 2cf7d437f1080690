# SPDX-License-Identifier: Apache-2.0
"""Files of metrics: what is refused, what sources are told, and which directory counts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgetune.base.documents.plan import Guard, read_plan
from edgetune.base.documents.sample import SampleAnswer
from edgetune.base.errors import InputError
from edgetune.base.files import load_yaml
from edgetune.intent.metrics.catalogue import METRICS, WORK, Catalogue, metrics_of
from edgetune.intent.tuning import load_tuning
from edgetune.net.metrics.samples import make_sample
from edgetune.site.config import PACK_METRICS
from tests.support import ROOT
from tests.support.builders import plan, write_yaml
from tests.support.cases import cases

EXAMPLES = ROOT / "metrics" / "examples"
SITE = Catalogue([EXAMPLES, PACK_METRICS])


def wrong(folder: Path, name: str, change: dict[str, Any]) -> str:
    """What is said of a file of the pack or its examples with some fields changed."""
    found = next(path for path in ROOT.glob(f"metrics/**/{name}.yaml"))
    document = {**load_yaml(found), **change}
    kept = {field: value for field, value in document.items() if value is not None}
    write_yaml(folder / f"{name}.yaml", kept)
    with pytest.raises(InputError) as caught:
        Catalogue([folder, PACK_METRICS])[name]
    assert str(caught.value).startswith(f"{folder / name}.yaml: ")
    return str(caught.value).split(".yaml: ", 1)[1]


@pytest.mark.parametrize("case", cases(Path(__file__).with_name("wrong_files.yaml")))
def test_a_wrong_file_is_named_with_its_field(
    case: dict[str, Any], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    ((name, change),) = case.items()
    assert wrong(tmp_path, name, change).startswith(request.node.callspec.id)


def test_the_metrics_of_the_pack_and_its_examples_fit_each_other() -> None:
    METRICS.check()
    SITE.check()
    for name, own in SITE.items():
        assert own.readings and {*own.readings} <= {*SITE.readings}
        assert own.mass == ("time" in own.phrase), name
    assert {*METRICS.entries_of("hosts")} == {*METRICS.readings}
    assert {*METRICS.counters, *METRICS.gauges} == {*METRICS.readings, "drifted"}
    names = {*METRICS.readings} - {"cpu_total_ms", "request_ms"}
    assert METRICS.entries_of("clickhouse") == {name: {"column": name} for name in names}


def test_prometheus_is_told_what_node_exporter_calls_a_reading() -> None:
    told = METRICS.entries_of("prometheus")
    assert told["cpu_busy_ms"] == {
        "series": "node_cpu_seconds_total",
        "matchers": 'mode!~"idle|iowait"',
        "sum": ["cpu", "mode"],
        "scale": 1000,
    }
    assert told["listen_drops"] == {"series": "node_netstat_TcpExt_ListenDrops"}
    assert told["rx_missed"]["within"] in told["rx_dropped"]["series"]
    assert not [name for name in told if name.startswith("health_")]


def test_the_bucket_of_a_limit_is_told_by_its_bound_beside_its_matchers(tmp_path: Path) -> None:
    told = SITE.entries_of("prometheus")["upstream_requests_fast"]
    assert told["matchers"] == 'le=~"250([.]0)?"'
    slow = SITE["ttfb_slow"]
    assert (slow.counters, slow.less, slow.per) == (
        ["upstream_requests"],
        ["upstream_requests_fast"],
        "upstream_requests",
    )
    document = load_yaml(EXAMPLES / "ttfb_slow.yaml")
    document["buckets"]["slower_than"] = 0.5
    document["readings"]["upstream_requests_fast"]["sources"]["prometheus"]["matchers"] = 'a="b"'
    write_yaml(tmp_path / "ttfb_slow.yaml", document)
    told = Catalogue([tmp_path, PACK_METRICS]).entries_of("prometheus")["upstream_requests_fast"]
    assert told["matchers"] == 'a="b",le=~"0[.]5([.]0)?"'


def test_a_file_of_a_site_stands_for_that_of_the_pack(tmp_path: Path) -> None:
    document = load_yaml(PACK_METRICS / "cpu.yaml")
    write_yaml(tmp_path / "cpu.yaml", {**document, "title": "ours"})
    site = Catalogue([tmp_path, PACK_METRICS])
    assert (site["cpu"].title, len(site)) == ("ours", len(METRICS))
    # A directory that does not exist has none, and what is no directory is no mistake to pass over.
    Catalogue([tmp_path / "nowhere", PACK_METRICS]).check()
    with pytest.raises(InputError, match="cpu.yaml: cannot be read: Not a directory"):
        Catalogue([tmp_path / "cpu.yaml", PACK_METRICS]).check()


def test_a_reading_is_defined_once(tmp_path: Path) -> None:
    document = load_yaml(PACK_METRICS / "cpu.yaml")
    write_yaml(tmp_path / "cpu2.yaml", {**document, "name": "cpu2"})
    with pytest.raises(InputError, match="readings.cpu_busy_ms: is defined in .*/cpu.yaml, too"):
        Catalogue([tmp_path, PACK_METRICS]).check()
    own = {**document, "name": "cpu2", "counters": ["nobody"], "readings": {}}
    write_yaml(tmp_path / "cpu2.yaml", own)
    with pytest.raises(InputError, match="cpu2.yaml: readings.nobody: no file defines it"):
        Catalogue([tmp_path, PACK_METRICS]).check()


def test_a_wrong_file_keeps_no_other_reading_from_being_sampled(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("name: [\n")
    site = Catalogue([tmp_path / "nowhere", tmp_path, PACK_METRICS])
    assert (site.counters, site.gauges) == (METRICS.counters, METRICS.gauges)
    assert site.entries_of("hosts") == METRICS.entries_of("hosts")
    with pytest.raises(InputError, match="broken.yaml"):
        _ = site["broken"]


def tuning_of(folder: Path, metric: str) -> Path:
    document = load_yaml(ROOT / "tunings" / "accept_queue.yaml")
    return write_yaml(folder / "accept_queue.yaml", {**document, "intent": {"improve": metric}})


def test_a_tuning_names_metrics_of_its_site(tmp_path: Path) -> None:
    path = tuning_of(tmp_path, "cache_hits")
    assert {*load_tuning(path, SITE).metrics} == {"cache_hits", "health_failed", WORK}
    with pytest.raises(InputError, match="intent.improve: 'cache_hits' is none of backlog_drops"):
        load_tuning(path)


def test_a_plan_keeps_the_definitions_that_it_is_judged_by(tmp_path: Path) -> None:
    made = plan(tmp_path)
    assert {*made.definitions} == {*made.metrics} == {"listen_drops", "health_failed", WORK}
    ours = replace(METRICS["listen_drops"], title="ours", per_if_known=None)
    kept = replace(made, definitions={**made.definitions, "listen_drops": ours}).signed()
    assert kept.digest != made.digest
    again = read_plan(json.dumps(kept.document()), kept.digest)
    assert metrics_of(again)["listen_drops"] == ours
    # A plan of an earlier version has the metrics of the pack.
    older = replace(made, definitions={}, guards=[*made.guards, Guard("health_p95", 0.2)])
    told = metrics_of(older)
    assert {name: told[name] for name in made.metrics} == {n: METRICS[n] for n in made.metrics}
    # One that means another thing today is as it was, and is still kept of samples.
    assert (told["health_p95"].gauges, told["health_p95"].quantiles) == ({"health_p95_ms": 1.0}, [])
    assert METRICS["health_p95"].quantiles and "health_p95_ms" in METRICS.gauges


def test_the_example_of_the_how_to_is_kept_of_what_hosts_tell(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "how-to" / "add-a-metric.md").read_text(encoding="utf-8")
    example = text.split("```yaml\n---\n", 1)[1].split("```", 1)[0]
    (tmp_path / "squeezed.yaml").write_text(example)
    site = Catalogue([tmp_path, PACK_METRICS])
    assert site.entries_of("hosts")["time_squeeze"]["from"]
    told = SampleAnswer("b", 1.0, {"time_squeeze": 7, "rx_bytes": 8}, {"load1": 1.0}, [], "")
    assert make_sample("a", 1.0, told, site).counters == {"time_squeeze": 7}
    assert make_sample("a", 1.0, told, METRICS).counters == {}
