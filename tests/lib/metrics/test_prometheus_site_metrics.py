# SPDX-License-Identifier: Apache-2.0
"""The example metrics of a site, as a real Prometheus has them of the exporters they are for."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgetune.documents.sample import Sample
from edgetune.inventory import Metrics
from edgetune.metrics.catalogue import PACK_METRICS, Catalogue
from edgetune.metrics.sources import open_source
from edgetune.metrics.sources.prometheus import Prometheus
from tests.support import ROOT
from tests.support.builders import pop
from tests.support.real_prometheus import Exported, Exporter, needs_prometheus, prometheus_of

pytestmark = needs_prometheus

_TOLD = {
    'haproxy_frontend_http_responses_total{proxy="web",code="2xx"}': 90.0,
    'haproxy_frontend_http_responses_total{proxy="web",code="5xx"}': 4.0,
    'haproxy_frontend_http_responses_total{proxy="api",code="5xx"}': 2.0,
    'nginx_vts_server_cache_total{host="*",status="hit"}': 70.0,
    'nginx_vts_server_cache_total{host="*",status="miss"}': 30.0,
    'nginx_vts_server_cache_total{host="other",status="hit"}': 1e6,
    'envoy_cluster_upstream_rq_time_count{envoy_cluster_name="a"}': 50.0,
    'envoy_cluster_upstream_rq_time_bucket{envoy_cluster_name="a",le="100"}': 30.0,
    'envoy_cluster_upstream_rq_time_bucket{envoy_cluster_name="a",le="250"}': 45.0,
    'envoy_cluster_upstream_rq_time_bucket{envoy_cluster_name="a",le="+Inf"}': 50.0,
    "nginx_response_bytes_total": 8e6,
    "nginx_request_seconds_total": 2.5,
}
_READ = {
    "http_5xx": 6.0,
    "http_responses": 96.0,
    "cache_hits": 70.0,
    "cache_responses": 100.0,
    "upstream_requests": 50.0,
    "upstream_requests_fast": 45.0,
    "response_bytes": 8e6,
    "response_ms": 2500.0,
}


def test_readings_of_one_series_that_differ_in_a_label_are_told_apart(tmp_path: Path) -> None:
    catalogue = Catalogue([ROOT / "metrics" / "examples", PACK_METRICS])
    opened = open_source("prometheus", SimpleNamespace(catalogue=catalogue))  # type: ignore[arg-type]
    assert isinstance(opened, Prometheus)
    hosts = pop(tmp_path).hosts
    with closing(Exporter()) as exporter:
        for host in hosts:
            booted = {"node_boot_time_seconds": time.time() - 1000}
            exporter.hosts[host.address] = Exported({**booted, **_TOLD})
        with prometheus_of([exporter.target(host.address) for host in hosts]) as server:
            exporter.settle([server])
            settled = time.time()
            # Of a scrape that comes between two questions the sums are not known.
            exporter.settle([server])
            fields = {name: own.default or "" for name, own in Prometheus.fields.items()}
            metrics = Metrics("prometheus", {**fields, "url": server.url})
            known = replace(pop(tmp_path), metrics=metrics)
            rows = [*opened.window(known, settled - 60, settled).rows()]
            assert rows and [read for row in rows if (read := _read(row)) != _READ] == []
            for _ in range(100):
                (newest,) = opened.sample(dict.fromkeys(known.hosts, known), 0)
                assert {own.error for own in newest.values()} == {""}
                found = [_read(own.sample) for own in newest.values()]
                assert found and all(read.items() <= _READ.items() for read in found)
                if all(read == _READ for read in found):
                    break
            else:
                pytest.fail("no sample was ever whole")


def _read(sample: Sample | None) -> dict[str, float]:
    return {name: sample.counters[name] for name in _READ if sample and name in sample.counters}
