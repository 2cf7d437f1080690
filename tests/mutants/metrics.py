# SPDX-License-Identifier: Apache-2.0
"""Mistakes of metrics and their sources: what was not read, or not whole, passes for measured."""

from __future__ import annotations

from tests.mutants.mutation import mutations_of

METRICS = (
    *mutations_of(
        "lib/edgetune/metrics",
        ["lib/metrics/test_catalogue"],
        (
            "two files define one reading",
            "catalogue.py",
            "                if name in where:\n",
            "                if False:\n",
        ),
        (
            "a metric is made of a reading that no file defines",
            "catalogue.py",
            "                if name not in where:\n",
            "                if False:\n",
        ),
        (
            "the file of the pack stands for that of the site",
            "catalogue.py",
            "found.setdefault(path.stem, path)",
            "found[path.stem] = path",
        ),
        (
            "a wrong file keeps every host from being sampled",
            "catalogue.py",
            "            with suppress(InputError):\n",
            "            with suppress():\n",
        ),
        (
            "a bound that the histogram has not is taken",
            "definition.py",
            "    if limit not in bounds:\n",
            "    if False:\n",
        ),
        (
            "a metric has the name of another file",
            "definition.py",
            "    if name != path.stem:\n",
            "    if False:\n",
        ),
        (
            "a source that there is not is named in a file",
            "definition.py",
            "        if name not in SOURCES:\n            raise",
            "        if name not in SOURCES:\n            continue\n            raise",
        ),
    ),
    *mutations_of(
        "lib/edgetune/metrics",
        ["lib/judge/test_composite"],
        (
            "a metric is made of itself",
            "catalogue.py",
            "            if name in self._begun:\n",
            "            if False:\n",
        ),
        (
            "weights need not add up",
            "definition.py",
            "if abs(sum(weights.values()) - 1) > _ROUNDING:",
            "if False:",
        ),
        (
            "a composite adds what is better lower and what is better higher",
            "definition.py",
            "        if others[name].better != better:\n",
            "        if False:\n",
        ),
    ),
    *mutations_of(
        "lib/edgetune/metrics",
        ["lib/metrics/test_clickhouse"],
        (
            "a picture shows rows of which another one says otherwise",
            "clickhouse/table.py",
            "_LAST = 2",
            "_LAST = 1",
        ),
        (
            "a picture has rows twice",
            "clickhouse/table.py",
            "begin = max(begin, micros[number - 1] + 1) if number else begin",
            "pass",
        ),
        (
            "a picture shows what a clock that is ahead has written",
            "sources/clickhouse.py",
            "ahead = _ahead(moments[-1], now)",
            "ahead = moments[-1]",
        ),
        (
            "a ClickHouse that hangs has all threads of a sweep",
            "sources/clickhouse.py",
            "                if url not in threads:\n",
            '                url = ""\n                if url not in threads:\n',
        ),
        (
            "a row that is there twice counts twice",
            "clickhouse/rows.py",
            "            elif row != last:\n",
            "            else:\n",
        ),
        (
            "of two rows that contradict each other the second one counts",
            "clickhouse/rows.py",
            "if last is None or row[1] != last[1] or row == last:",
            "if True:",
        ),
        (
            "a row of the future is a sample",
            "clickhouse/rows.py",
            "    if ahead > MOST_AHEAD:\n".replace("    if", "        if"),
            "        if False:\n",
        ),
        (
            "a clock that is set by a second is a reboot",
            "clickhouse/rows.py",
            "if before is None or not is_same_boot(before, told):",
            "if before != told:",
        ),
        (
            "an answer without all its rows is a whole one",
            "clickhouse/server.py",
            'if answer.get("rows") != len(rows):',
            "if False:",
        ),
        (
            "a query that failed midway has its answer",
            "clickhouse/server.py",
            'if failed != "":',
            "if False:",
        ),
        (
            "columns in another order are those that were asked for",
            "clickhouse/server.py",
            "if named != [*columns]:",
            "if sorted(map(str, named)) != sorted(columns):",
        ),
        (
            "the user of ClickHouse may change data",
            "clickhouse/server.py",
            '"readonly": 2,',
            '"readonly": 0,',
        ),
        (
            "a part of what ClickHouse was asked for passes for all of it",
            "clickhouse/server.py",
            '"throw"',
            '"break"',
        ),
    ),
    *mutations_of(
        "lib/edgetune",
        ["lib/prometheus/test_client"],
        (
            "an answer with warnings is a whole one",
            "prometheus/answers.py",
            "    if warnings:\n",
            "    if False:\n",
        ),
        (
            "a partial answer is a whole one",
            "prometheus/answers.py",
            '    if answer.get("isPartial"):\n',
            "    if False:\n",
        ),
        (
            "samples that are out of order are a series",
            "prometheus/answers.py",
            "    if not (whole and ordered):\n",
            "    if not whole:\n",
        ),
        (
            "a name of a host is a pattern",
            "prometheus/promql.py",
            "'|'.join(map(re.escape, sorted({*values})))",
            "'|'.join(sorted({*values}))",
        ),
        (
            "two hosts have the same series",
            "prometheus/promql.py",
            "            if other != host.name:\n",
            "            if False:\n",
        ),
        (
            "one of two replicas is taken",
            "metrics/scraped.py",
            "    if len(kinds) > 1:\n",
            "    if False:\n",
        ),
        (
            "a sum lacks a device that was not told",
            "metrics/scraped.py",
            "found += map(sum, zip(*members)) if members",
            "found += ([sum(v for v in row if not math.isnan(v)) for row in zip(*members)])"
            " if members",
        ),
        (
            "a counter of another scrape stands for one that is missing",
            "metrics/scraped.py",
            "LATE = 60.0",
            "LATE = 6000.0",
        ),
        (
            "a negative reading is measured",
            "metrics/scraped.py",
            "return [value * factor if value >= 0 else math.nan for value in added]",
            "return [value * factor for value in added]",
        ),
        (
            "another boot_id at the same time of boot is the same boot",
            "metrics/boots.py",
            "    if first and second and first != second:\n",
            "    if False:\n",
        ),
    ),
    *mutations_of(
        "lib/edgetune/metrics",
        ["lib/metrics/test_sources"],
        (
            "what was scraped after a hole is told as of a time in it",
            "attached.py",
            "min(near, _LATE * _spacing(times))",
            "near",
        ),
        (
            "a sweep takes the sample that another one is nearer to",
            "attached.py",
            "self._apart(number, place) < self._apart(other, place)",
            "number < other",
        ),
        (
            "samples change places",
            "attached.py",
            "        if any(between in self._place",
            "        if False and any(between in self._place",
        ),
    ),
    *mutations_of(
        "lib/edgetune/metrics",
        ["lib/metrics/test_source_contract"],
        (
            "hosts of one PoP have the time of another one",
            "sources/hosts.py",
            "began.setdefault(hosts[host].name, clock.wall())",
            "began.update(dict.fromkeys({*began, hosts[host].name}, clock.wall()))",
        ),
        (
            "a host that does not answer has an empty sample",
            "sources/hosts.py",
            "    if answer.error is not None:\n        return Sampled(error=answer.error)\n",
            "",
        ),
        (
            "what nobody reads is kept",
            "samples.py",
            "return {name: readings[name] for name in names if name in readings}",
            "return dict(readings)",
        ),
    ),
    *mutations_of(
        "lib/edgetune",
        ["lib/rollout/steps/test_preflight"],
        (
            "samples of a rollout with a shorter interval take no memory",
            "rollout/retention.py",
            "            if interval < SAMPLED_EVERY:\n",
            "            if False:\n",
        ),
        (
            "samples are forgotten before the baseline is over",
            "rollout/retention.py",
            "needed = max(options.baseline, apart)",
            "needed = apart",
        ),
        (
            "samples are forgotten between two looks",
            "rollout/retention.py",
            "needed = max(options.baseline, apart)",
            "needed = options.baseline",
        ),
        (
            "samples that are stored by no one are forgotten",
            "rollout/retention.py",
            "if needed > kept and context.samples.stored_series(pop.name):",
            "if needed > kept:",
        ),
    ),
    *mutations_of(
        "lib/edgetune",
        ["lib/documents/test_documents", "lib/export/test_export"],
        (
            "a field of a record is of any type",
            "documents/reading.py",
            "if not each.plain or not _are_plain(each.plain, (values[name],)):",
            "if not each.plain:",
        ),
        (
            "a field of a record that is missing has its default",
            "documents/reading.py",
            "        elif each.required:\n",
            "        elif False:\n",
        ),
    ),
)
