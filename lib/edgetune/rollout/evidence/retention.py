# SPDX-License-Identifier: Apache-2.0
"""Whether samples come as often as a rollout needs them, are kept for as long, and how much memory
they take.

What a metric source remembers itself is not stored, and takes none. A sweep of a PoP is one
document of columns (see ``table``), and one member of a sorted set of Redis.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from edgetune.base.documents.head import ENDED
from edgetune.base.documents.options import LEAST_SAMPLES, Options
from edgetune.base.durations import duration
from edgetune.base.errors import EdgetuneError, RefusedError
from edgetune.rollout.context import Context
from edgetune.rollout.ownership.automation import SAMPLED_EVERY
from edgetune.rollout.record.heads import living_heads
from edgetune.rollout.record.rollout import load_plan
from edgetune.site.inventory import Pop


def looked_at(options: Options, every: float) -> Options:
    """With as many looks as a soak allows that is sampled each ``every`` seconds, if that is more
    than the interval: the rule samples it where no workflow stays. RefusedError if it allows none.
    """
    if every <= options.interval:
        return options
    looks, least = options.looks_at(every), options.warmup + LEAST_SAMPLES * every
    if not looks:
        raise RefusedError(
            f"soak={duration(options.soak)} is too short: the rule sample_running samples every "
            f"{duration(every)}, and a look needs {LEAST_SAMPLES} samples after "
            f"warmup={duration(options.warmup)}; give soak={duration(math.ceil(least))} or more, "
            f"or wait=true: its workflow samples every {duration(options.interval)}"
        )
    return replace(options, looks=looks)


def refuse_short_retention(context: Context, pop: Pop, options: Options) -> None:
    """RefusedError where samples would be forgotten before they are compared."""
    kept = context.config.sample_retention
    apart = options.warmup + options.soak / options.planned_looks
    # Around a window there are samples of both sides.
    needed = max(options.baseline, apart) + 2 * options.interval
    if needed > kept and context.samples.stored_series(pop.name):
        raise RefusedError(
            f"samples of {pop.name} are kept for {duration(kept)}, and the baseline and the time "
            f"from one look to the next need them for {duration(math.ceil(needed))}; lengthen "
            "sample_retention of the configuration, or shorten these"
        )


def most_bytes(context: Context, pops: Iterable[Pop]) -> int:
    """Bytes of the samples of PoPs that have rollouts under way all the time.

    A workflow whose rollout has a shorter interval samples besides the rule ``sample_running``.
    """
    kept, faster = context.config.sample_retention, _faster(context)
    readings = [*context.catalogue.counters, *context.catalogue.gauges]
    return sum(
        context.samples.stored_series(pop.name)
        * sum(
            retained_bytes([host.name for host in pop.hosts], readings, kept, interval)
            for interval in (SAMPLED_EVERY, *faster.get(pop.name, []))
        )
        for pop in pops
    )


def memory_text(context: Context, pop: Pop) -> str:
    """How much memory samples may take."""
    fleet = [context.inventory.pop(name) for name in context.inventory.pop_names()]
    kept = duration(context.config.sample_retention)
    try:
        own, all_pops = (megabytes(most_bytes(context, pops)) for pops in ([pop], fleet))
    except EdgetuneError as error:
        return f"how much memory they take is not known: {error}"
    return f"{kept} of them take at most {own}, and of all PoPs {all_pops}"


def megabytes(number: int) -> str:
    """So many bytes, rounded up."""
    return f"{math.ceil(number / 1e6):,} MB"


def _faster(context: Context) -> dict[str, list[float]]:
    """By PoP, the intervals of rollouts under way that are shorter than the rule's."""
    found: dict[str, list[float]] = {}
    for head in (head for head in living_heads(context) if head.state not in ENDED):
        # A damaged plan stops its own rollout, and nobody samples for that.
        with suppress(RefusedError):
            interval = load_plan(context, head.plan).options.interval
            if interval < SAMPLED_EVERY:
                found.setdefault(head.pop, []).append(interval)
    return found


# A float of 8 bytes, in base64.
_READING = 8 * 4 / 3
# Quotes, comma and space around a text in JSON, and the 36 characters of a boot's id.
_AROUND, _BOOT = 4, 36
# Of a document: braces, the names of its fields, the time; of a column: name, quotes, padding.
_DOCUMENT, _COLUMN = 120, 8
# Of a member of a sorted set: its entry in the skip list and in the hash table, and the header of
# its string. Allocators of Redis round sizes up by a quarter at most (jemalloc's size classes).
_MEMBER, _ROUNDED = 160, 1.25


def retained_bytes(
    hosts: Sequence[str], readings: Collection[str], retention: float, interval: float
) -> int:
    """Bytes of all sweeps of these hosts in ``retention`` seconds, one each ``interval`` seconds,
    with each of these readings."""
    names = sum(len(host) + _AROUND + _BOOT + _AROUND for host in hosts)
    columns = sum(math.ceil(len(hosts) * _READING) + len(name) + _COLUMN for name in readings)
    uptime = math.ceil(len(hosts) * _READING)
    sweep = math.ceil((_DOCUMENT + names + columns + uptime) * _ROUNDED + _MEMBER)
    return sweep * math.ceil(retention / interval + 1)
