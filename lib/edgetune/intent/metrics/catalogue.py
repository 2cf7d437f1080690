# SPDX-License-Identifier: Apache-2.0
"""The metrics that intents and guards may name: a file each, those of a site before the pack's.

Counters only grow within one boot of a host and are compared per exposure: per ``per`` counter,
per packet where every host counts them (``per_if_known``), else per second. Gauges are averaged
over their readings. ``rx_dropped`` and ``rx_missed`` are only ever used as a sum: kernels moved
drops from one to the other.

CPU time is compared per packet, for a host that lost its traffic uses less of it, too. Which share
of the work a group does is a metric of its own, ``WORK``; every rollout has a guard of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from edgetune.base.documents.metric import Metric
from edgetune.base.documents.plan import Plan
from edgetune.base.errors import InputError
from edgetune.intent.metrics.definition import Definition, Entry, Reading, load_definition
from edgetune.site.config import PACK_METRICS

PACKETS = "rx_packets"
WORK = "packets"
DRIFTED = "drifted"
"""The gauge that counts settings that have drifted; it makes no metric."""


class Catalogue(Mapping[str, Metric]):
    """Metrics by name, each read from its file when it is first asked for.

    Of files with one name that of the first directory counts. InputError names file and field of a
    mistake; KeyError is for a name without a file.
    """

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = directories
        self._known: dict[str, Definition] = {}
        self._begun: set[str] = set()

    def __getitem__(self, name: str) -> Metric:
        return self.definition(name).metric

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def definition(self, name: str) -> Definition:
        """The whole file of a metric."""
        if name not in self._known:
            path = self._files[name]
            if name in self._begun:
                raise InputError(str(path), "composite", "is made of itself")
            self._begun.add(name)
            try:
                self._known[name] = load_definition(path, self)
            finally:
                self._begun.discard(name)
        return self._known[name]

    def check(self) -> None:
        """InputError names a directory that does not exist, a wrong file, and a reading that two
        files define or none does."""
        for directory in self._directories:
            if not directory.is_dir():
                raise InputError(str(directory), None, "the directory of metrics does not exist")
        where: dict[str, Path] = {}
        for own in map(self.definition, self):
            for name in own.readings:
                if name in where:
                    text = f"is defined in {where[name]}, too"
                    raise InputError(str(own.path), f"readings.{name}", text)
                where[name] = own.path
        for own in map(self.definition, self):
            for name in own.metric.readings:
                if name not in where:
                    raise InputError(str(own.path), f"readings.{name}", "no file defines it")

    @cached_property
    def readings(self) -> Mapping[str, Reading]:
        """All counters and gauges, but for those of a wrong file: hosts of other metrics are
        sampled all the same, and a rollout that is under way is judged by these."""
        found: dict[str, Reading] = {}
        for name in self:
            with suppress(InputError):
                found.update(self.definition(name).readings)
        return found

    def told_by(self, source: str) -> Mapping[str, Entry]:
        """By reading, what its metric's file says of that source; without those that it has not."""
        known = self.readings.items()
        return {name: own.sources[source] for name, own in known if source in own.sources}

    @cached_property
    def counters(self) -> list[str]:
        """What is kept of the counters of a sample."""
        return sorted(name for name, own in self.readings.items() if not own.is_gauge)

    @cached_property
    def gauges(self) -> list[str]:
        """What is kept of its gauges: those of metrics, and how many settings have drifted."""
        return sorted({DRIFTED, *(name for name, own in self.readings.items() if own.is_gauge)})

    @cached_property
    def _files(self) -> Mapping[str, Path]:
        found: dict[str, Path] = {}
        for directory in self._directories:
            for path in sorted(directory.glob("*.yaml")):
                found.setdefault(path.stem, path)
        return dict(sorted(found.items()))


METRICS = Catalogue([PACK_METRICS])
"""Those of the pack."""


def metrics_of(plan: Plan) -> dict[str, Metric]:
    """The metrics that a plan is judged by and their parts, as they were when it was made.

    Plans of 0.10 and before kept no definitions: theirs are the pack's.
    """
    judged = {name: _defined(plan, name) for name in plan.metrics}
    parts = [part for own in judged.values() for part in own.parts]
    return {**judged, **{name: _defined(plan, name) for name in parts}}


def _defined(plan: Plan, name: str) -> Metric:
    return plan.definitions.get(name) or METRICS[name]
