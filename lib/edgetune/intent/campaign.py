# SPDX-License-Identifier: Apache-2.0
"""Campaigns as their files have them: one tuning, rings of PoPs in order, and their gates."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.options import Options
from edgetune.base.documents.reading import digest_of
from edgetune.base.documents.schedule import Schedule
from edgetune.base.durations import DAY
from edgetune.base.errors import InputError
from edgetune.base.fields import Fields, find_file, near_or_all
from edgetune.base.files import Load, load_yaml
from edgetune.base.freezes import Event, Freeze, read_event, read_freeze, read_zone
from edgetune.base.names import NAME
from edgetune.base.options import check_options, read_options
from edgetune.site.inventory import Inventory, Pop

VERDICTS = ("pooled", "each")
ALL_AT_ONCE = 0
"""``max_concurrent: auto``."""


@dataclass(frozen=True)
class Gates:
    """What has to be so for a ring to begin, and to be left for the next one.

    ``verdict`` is ``pooled`` (PoPs soak, and one test over all of the ring decides for them) or
    ``each`` (every PoP is promoted by its own). ``max_concurrent`` PoPs are under way at a time,
    without those that wait for the verdict of their ring; ALL_AT_ONCE limits nothing. They wait for
    ``longest_wait`` seconds at most in which nothing goes on. With hosts out, the others stay below
    ``max_load`` of a PoP's capacity by the hour of the week; 0 asks for no load. An approval holds
    for ``approval_expires`` seconds.
    """

    verdict: str = "pooled"
    max_concurrent: int = 1
    longest_wait: float = 7 * DAY
    max_load: float = 0.0
    freezes: tuple[Freeze, ...] = ()
    events: tuple[Event, ...] = ()
    approval: bool = False
    self_approval: bool = False
    approval_expires: float = 86400

    def room(self, under_way: int) -> float:
        """How many more PoPs may begin beside so many."""
        return self.max_concurrent - under_way if self.max_concurrent else math.inf

    @property
    def closed(self) -> tuple[Freeze | Event, ...]:
        """When nothing may begin, be it a rollout or a batch of one."""
        return (*self.freezes, *self.events)


@dataclass(frozen=True)
class Ring:
    """PoPs that are promoted together: those named, those of the regions, those with the labels."""

    name: str
    pops: tuple[str, ...]
    regions: tuple[str, ...]
    labels: tuple[str, ...]
    options: Options
    gates: Gates

    def selects(self, pop: Pop) -> bool:
        """Whether a PoP is of its regions and has all its labels."""
        if not self.regions and not self.labels:
            return False
        in_region = not self.regions or pop.region in self.regions
        return in_region and set(self.labels) <= set(pop.labels)


@dataclass(frozen=True)
class Campaign:
    """One file; ``digest`` covers everything in it."""

    name: str
    tuning: str
    rings: tuple[Ring, ...]
    digest: str
    where: str

    def ring(self, name: str) -> Ring:
        """The ring of that name; KeyError if there is none."""
        return {ring.name: ring for ring in self.rings}[name]


@dataclass(frozen=True)
class ShownCampaign:
    """A campaign as it is shown before its first rollout, with the ``id`` of one that has begun.

    ``pops`` are by ring. ``refused`` says why by PoP, ``closed`` names the freezes and events of
    the configuration, ``schedule`` says when which PoP has its turn.
    """

    campaign: Campaign
    pops: Mapping[str, Sequence[str]]
    refused: Mapping[str, str]
    closed: Sequence[str]
    id: str
    schedule: Schedule


def find_campaign(name: str, directories: Sequence[Path]) -> Campaign:
    """The campaign of that name from the first directory that holds it; InputError names all."""
    return load_campaign(find_file("campaign", name, directories))


def load_campaign(path: Path, load: Load = load_yaml) -> Campaign:
    """Read and check one file; InputError names file and field."""
    data = load(path)
    fields = Fields(data, str(path))
    zone = read_zone(fields, "UTC")
    gates = _read_gates(fields, Gates(), zone)
    # PoPs differ in seed and hosts.
    by_pop = ("seed", "only", "exclude")
    options = read_options(fields.inside("rollout", {}), Options, without=by_pop)
    # A person waits for one rollout, and a campaign for many.
    from_past = fields.inside("rollout", {}).flag("past_baseline", True)
    options = replace(options, past_baseline=from_past)
    campaign = Campaign(
        name=fields.text("name", pattern=NAME),
        tuning=fields.text("tuning", pattern=NAME),
        rings=tuple(_read_ring(ring, options, gates, zone) for ring in fields.each("rings")),
        # Moments without quotes are no JSON.
        digest=digest_of(json.dumps(data, sort_keys=True, default=str)),
        where=str(path),
    )
    if campaign.name != path.stem:
        raise fields.wrong("name", f"{campaign.name!r} is not the name of its file")
    if not campaign.rings:
        raise fields.wrong("rings", "is empty")
    fields.done()
    _refuse_twice(fields, campaign.rings)
    return campaign


def pops_by_ring(campaign: Campaign, inventory: Inventory) -> dict[str, tuple[str, ...]]:
    """The PoPs of each ring, in the order of the rings; each PoP is in one ring only.

    A PoP belongs to the ring that names it, else to the first one that selects it by region and
    label. InputError names a PoP that is unknown, and a ring that gets none.
    """
    names = inventory.pop_names()
    named = {pop: ring.name for ring in campaign.rings for pop in ring.pops}
    for index, ring in enumerate(campaign.rings):
        for number, pop in enumerate(ring.pops):
            if pop not in names:
                field = f"rings[{index}].pops[{number}]"
                problem = f"there is no PoP {pop!r}{near_or_all(pop, names)}"
                raise InputError(campaign.where, field, problem)
    owner = dict(named)
    for pop in names:
        selecting = [ring.name for ring in campaign.rings if ring.selects(inventory.pop(pop))]
        if selecting:
            owner.setdefault(pop, selecting[0])
    pops = {
        ring.name: tuple(pop for pop in names if owner.get(pop) == ring.name)
        for ring in campaign.rings
    }
    for index, ring in enumerate(campaign.rings):
        if not pops[ring.name]:
            raise InputError(campaign.where, f"rings[{index}]", f"{ring.name} has no PoP")
    return pops


def _read_ring(fields: Fields, options: Options, gates: Gates, zone: str) -> Ring:
    ring = Ring(
        name=fields.text("name", pattern=NAME),
        pops=fields.texts("pops", []),
        regions=fields.texts("regions", []),
        labels=fields.texts("labels", []),
        options=replace(options, soak=fields.duration("soak", options.soak)),
        gates=_read_gates(fields, gates, zone),
    )
    if not (ring.pops or ring.regions or ring.labels):
        raise fields.wrong("pops", "is missing: a ring has pops, regions or labels")
    fields.done()
    check_options(ring.options, fields.wrong)
    return ring


def _read_gates(fields: Fields, given: Gates, zone: str) -> Gates:
    """The gates of a campaign, or of a ring where they are not as those ``given``."""
    below = fields.inside("gates", {})
    approval = below.inside("approval", {})
    zone = read_zone(below, zone)
    freezes, events = below.raw("freezes", None), below.raw("events", None)
    gates = Gates(
        verdict=below.text("verdict", given.verdict, choices=VERDICTS),
        max_concurrent=_read_max_concurrent(below, given.max_concurrent),
        longest_wait=below.duration("longest_wait", given.longest_wait, minimum=60),
        max_load=below.number("max_load", given.max_load, minimum=0, maximum=1),
        freezes=given.freezes
        if freezes is None
        else tuple(read_freeze(each, zone) for each in below.each("freezes")),
        events=given.events
        if events is None
        else tuple(read_event(each, zone) for each in below.each("events")),
        approval=approval.flag("required", given.approval),
        self_approval=approval.flag("self_approval", given.self_approval),
        approval_expires=approval.duration("expires", given.approval_expires, minimum=60),
    )
    approval.done()
    below.done()
    return gates


def _read_max_concurrent(fields: Fields, given: int) -> int:
    value = fields.raw("max_concurrent", None)
    if value is None:
        return given
    if isinstance(value, str):
        if value != "auto":
            raise fields.wrong("max_concurrent", f"{value!r} is neither a whole number nor auto")
        return ALL_AT_ONCE
    number: int = fields.whole("max_concurrent", minimum=1)
    return number


def _refuse_twice(fields: Fields, rings: Sequence[Ring]) -> None:
    seen: dict[str, str] = {}
    for index, ring in enumerate(rings):
        if ring.name in [earlier.name for earlier in rings[:index]]:
            raise fields.wrong(f"rings[{index}].name", f"{ring.name} is there twice")
        for number, pop in enumerate(ring.pops):
            if pop in seen:
                field = f"rings[{index}].pops[{number}]"
                raise fields.wrong(field, f"{pop} is in ring {seen[pop]} already")
            seen[pop] = ring.name
