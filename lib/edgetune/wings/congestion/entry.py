# SPDX-License-Identifier: Apache-2.0
"""Reads what the inventory says of the congestion control of a PoP's clients."""

from __future__ import annotations

from edgetune.base.addresses import span_of_network
from edgetune.base.documents.congestion import Terms, Thresholds
from edgetune.base.fields import Fields
from edgetune.base.options import read_options
from edgetune.net.inventories._reading import read_own
from edgetune.site.inventory import Congestion
from edgetune.wings.congestion.appliers import APPLIERS
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
    _refuse_exclude(below, made.terms)
    if made.thresholds.leave_duty > made.thresholds.duty:
        raise limits.wrong("leave_duty", f"is above duty, {made.thresholds.duty}")
    return made


def _refuse_exclude(fields: Fields, terms: Terms) -> None:
    for index, network in enumerate(terms.exclude):
        try:
            span_of_network(network)
        except ValueError as error:
            raise fields.wrong(f"exclude[{index}]", f"{network!r}: {error}") from None
