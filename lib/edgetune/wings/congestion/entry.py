# SPDX-License-Identifier: Apache-2.0
"""Reads what the inventory says of the congestion control of a PoP's clients; and by what hosts
give prefixes one of their own, as ``apply`` names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from edgetune.base.addresses import span_of_network
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.congestion import SHORTEST_BLOCK, Terms, Thresholds
from edgetune.base.documents.rounds import MOST_ROWS
from edgetune.base.fields import Field, Fields
from edgetune.base.options import read_options
from edgetune.net.inventories._reading import read_own
from edgetune.site.inventory import Congestion
from edgetune.wings.congestion.sources import SOURCES


def read_entry(below: Fields) -> Congestion:
    """The entry ``congestion`` of a PoP; InputError names the field."""
    sockets, apply = below.inside("sockets", {}), below.inside("apply", {})
    source = sockets.text("source", "hosts", choices=SOURCES)
    applier = apply.text("by", "routes", choices=[*APPLIERS])
    limits = below.inside("thresholds", {})
    made = Congestion(
        source=source,
        source_fields=read_own(sockets, SOURCES[source].fields),
        applier=applier,
        applier_fields=read_own(apply, APPLIERS[applier].fields),
        terms=read_options(below, Terms),
        thresholds=read_options(limits, Thresholds),
    )
    sockets.done()
    apply.done()
    for index, network in enumerate(made.terms.exclude):
        try:
            span_of_network(network)
        except ValueError as error:
            raise below.wrong(f"exclude[{index}]", f"{network!r}: {error}") from None
    if made.thresholds.leave_duty > made.thresholds.duty:
        raise limits.wrong("leave_duty", f"is above duty, {made.thresholds.duty}")
    if 0 < made.thresholds.block < SHORTEST_BLOCK:
        raise limits.wrong("block", f"is below {SHORTEST_BLOCK}, and not 0")
    if made.thresholds.block and not _can_prove_harm(made.thresholds):
        kept = "the two days that are kept"
        raise limits.wrong("block", f"is so long that {kept} have too few pairs to prove a harm")
    return made


def _can_prove_harm(own: Thresholds) -> bool:
    """Of pairs of blocks no p-value is below that of all draws alike; each of two groups has half
    of a look's alpha."""
    pairs = MOST_ROWS // (2 * own.block) - 1
    return 0.5**pairs <= own.alpha / own.looks / 2


@dataclass(frozen=True)
class Applier:
    """What it does, in sentences, whether a prefix may have an initial window by it, and the
    ``fields`` that the inventory has for it."""

    means: str
    has_windows: bool
    fields: Mapping[str, Field] = field(default_factory=dict)


APPLIERS: Mapping[str, Applier] = {
    "routes": Applier(
        "Each host gets a route for each prefix, a copy of the best one with ``congctl``. The "
        "kernel then chooses the congestion control of each new connection. A prefix may have an "
        "initial window, too.",
        has_windows=True,
    ),
    "file": Applier(
        "Each host gets a file with a line for each prefix, as a block ``geo`` of nginx includes "
        "it. The host itself says where that is, and by which commands its web server checks and "
        "reloads it: [a file of prefixes](../how-to/prefix-file.md). The web server sets the "
        "congestion control of responses. It sets no initial window.",
        has_windows=False,
    ),
}
