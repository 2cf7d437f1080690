# SPDX-License-Identifier: Apache-2.0
"""What a tuning is judged by, and the metric source of a PoP does not have."""

from __future__ import annotations

from collections.abc import Iterator

from edgetune.errors import RefusedError
from edgetune.inventory import Pop
from edgetune.metrics.catalogue import WORK, Catalogue
from edgetune.tuning import Tuning


def refuse_untold(pop: Pop, tuning: Tuning, without_packets: bool, metrics: Catalogue) -> None:
    """RefusedError names each metric whose readings no source of a PoP has.

    The first source gives counters and gauges, the others gauges. The baseline would find it; here
    nothing was waited for yet. A PoP with a source that no metric names is left to the baseline.
    InputError names what is wrong with a file of a metric, used or not.
    """
    metrics.check()
    first, *others = (metrics.told_by(view.metrics.source) for view in pop.views)
    if not (first and all(others)):
        return
    told = {*first, *(name for more in others for name in more if metrics.readings[name].is_gauge)}
    lacks = {
        name: [reading for reading in tuning.metrics[name].needed if reading not in told]
        for name in _needed(tuning, without_packets)
    }
    named = [f"{name} ({', '.join(readings)})" for name, readings in lacks.items() if readings]
    if named:
        raise RefusedError(
            f"{_sources(pop)} not have all of {', '.join(named)}, "
            f"which {tuning.name} is judged by: say where it has them in the files of these "
            f"metrics, or name another source in pops.{pop.name}.metrics of the inventory"
        )


def _sources(pop: Pop) -> str:
    names = [view.metrics.source for view in pop.views]
    if len(names) == 1:
        return f"the metric source {names[0]} of {pop.name} does"
    return f"the metric sources {', '.join(names)} of {pop.name} do"


def _needed(tuning: Tuning, without_packets: bool) -> Iterator[str]:
    yield tuning.intent.metric
    guards = {guard.metric: guard.optional for guard in tuning.guards}
    for name, optional in {WORK: False, **guards}.items():
        if not (optional or (name == WORK and without_packets)):
            yield name
