# SPDX-License-Identifier: Apache-2.0
"""Mistakes by which a judge would believe what Prometheus did not say."""

from __future__ import annotations

from tests.mutants.mutation import mutations_of

PROMETHEUS = (
    *mutations_of(
        "lib/edgetune/prometheus",
        ["lib/prometheus/test_client"],
        ("an answer with warnings is whole", "answers.py", "    if warnings:\n", "    if False:\n"),
        (
            "an answer that says it is partial is whole",
            "answers.py",
            '    if answer.get("isPartial"):\n',
            "    if False:\n",
        ),
        (
            "Thanos may answer without a store",
            "client.py",
            '"partial_response": "false"',
            '"partial_response": "true"',
        ),
        (
            "Thanos may answer what it downsampled",
            "client.py",
            ', "max_source_resolution": "0s"',
            "",
        ),
        ("no clock differs", "client.py", "MOST_SKEW = 5.0", "MOST_SKEW = 5000.0"),
        (
            "a name ends the string of PromQL that it stands in",
            "promql.py",
            """.replace('"', '\\\\"')""",
            "",
        ),
    ),
    *mutations_of(
        "lib/edgetune/metrics",
        ["lib/prometheus/test_client"],
        (
            "hosts of the first group stand for all",
            "prometheus_window.py",
            "            for group in self._groups:\n                self._add(",
            "            for group in self._groups[:1]:\n                self._add(",
        ),
        (
            "rows of the second group come after all of the first",
            "prometheus_window.py",
            "table if len(self._groups) == 1 else table.at(table.time, {})",
            "table",
        ),
        (
            "hosts of two groups may be one",
            "prometheus_window.py",
            "            template.by_labels(hosts)\n",
            "            pass\n",
        ),
        (
            "a scrape of the future is believed",
            "prometheus_window.py",
            "newest > now + MOST_SKEW",
            "False",
        ),
        (
            "the scrape before the first border is left out of a picture",
            "prometheus_window.py",
            "found, begin - step, boots",
            "found, begin, boots",
        ),
        (
            "a picture ends with its first part",
            "prometheus_window.py",
            "            number = until + 1\n",
            "            number = last + 1\n",
        ),
        (
            "each part of a window begins with another boot",
            "prometheus_window.py",
            "boots.get(host)",
            "None",
        ),
        (
            "a series of somebody else is left out in silence",
            "prometheus_group.py",
            '                raise SourceError(f"{self._where}: answers a series that was not',
            '                continue\n                raise SourceError(f"{self._where}: answers a'
            " series that was not",
        ),
        (
            "of two replicas the first one counts",
            "scraped.py",
            "    if len(kinds) > 1:\n",
            "    if False:\n",
        ),
        (
            "what no host can count is zero",
            "scraped.py",
            "value * factor if value >= 0 else math.nan",
            "value * factor if value >= 0 else 0.0",
        ),
        (
            "a server that hangs has the threads of all",
            "pop_samples.py",
            'url = str(view.metrics.fields.get("url", pop))',
            'url = ""',
        ),
        (
            "a sweep waits for a server that hangs with each of its PoPs",
            "sources/prometheus.py",
            "            if url in silent:\n",
            "            if False:\n",
        ),
        (
            "a server that hangs has all threads of a sweep",
            "sources/prometheus.py",
            "                if url not in threads:\n",
            '                url = ""\n                if url not in threads:\n',
        ),
        (
            "a server that hangs is asked for each of its PoPs",
            "pop_samples.py",
            "        if clock.monotonic() > ends:\n",
            "        if False:\n",
        ),
    ),
)
