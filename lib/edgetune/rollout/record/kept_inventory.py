# SPDX-License-Identifier: Apache-2.0
"""The inventory as it was when a plan was made last: kept in the records.

A plan asks the source. Steps, sensors and rules ask a source only where that is a file; else they
take what is kept. So a source that is away, or that lost hosts, stops plans and nothing else. Of a
large file that is the same still they read single PoPs as they were kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

from edgetune.base import clock
from edgetune.base.documents import inventory
from edgetune.base.errors import DamagedError, InputError, RefusedError
from edgetune.base.names import hosts_text, listed
from edgetune.base.sanitize import command
from edgetune.net.inventories import open_inventory, read_pop, source_of
from edgetune.rollout.context import Context
from edgetune.rollout.store.inventory import (
    SplitInventory,
    StoredInventory,
    digest_of_source,
    kept_inventory,
    readable_index,
)
from edgetune.rollout.store.records import value_of
from edgetune.site.inventory import Host, Inventory, Pop

_UNREADABLE = (InputError, DamagedError)
"""A source or a record tells nothing that can be used; the store itself works."""


def pop_for_plan(context: Context, name: str) -> Pop:
    """A PoP as its source has it now, or had it less than ``inventory_max_age`` ago; that is kept.

    InputError where the source does not tell. RefusedError where more hosts of the PoP than
    ``inventory_shrink`` permits are gone since.
    """
    kept = kept_inventory(context.store)
    read = inventory_for_plans(context, kept)
    pop = read.pop(name)
    if kept is not None and name in kept.pops:
        before = _readable(kept, context, name)
        takes = f"{command('accept_inventory', pop=name)} takes it as it is now"
        if before is None:
            raise RefusedError(f"what was kept of {name} for the last plan cannot be read: {takes}")
        gone = _too_many_gone(context, before, pop)
        if gone:
            raise RefusedError(
                f"{name} lost {hosts_text(gone)} since its inventory was read last: "
                f"{command('diff_inventory', pop=name)} compares them, {takes}"
            )
    return pop


def inventory_for_plans(context: Context, kept: inventory.KeptInventory | None) -> Inventory:
    """The inventory as its source tells it, or what is kept where that is new enough."""
    if source_of(context.config).is_kept and kept is not None:
        age = clock.wall() - kept.read
        if 0 <= age < context.config.inventory_max_age:
            return StoredInventory(context.store, kept)
    if kept is not None and kept.file and kept.file == digest_of_source(context.config, large=True):
        # All of it was read, and is kept.
        context.inventory = SplitInventory(context.config, context.store, kept)
        return context.inventory
    read = open_inventory(context.config)
    _keep(context, read, kept)
    context.inventory = read
    return read


def whole_inventory(context: Context) -> Inventory:
    """All PoPs for the plans of a campaign; RefusedError where one is gone that is kept."""
    kept = kept_inventory(context.store)
    read = inventory_for_plans(context, kept)
    gone = sorted(set(kept.pops) - set(read.pop_names())) if kept else []
    if gone and context.config.inventory_shrink < 1:
        raise RefusedError(
            f"the inventory lost the PoP {listed(gone)} since it was read last: "
            f"{command('accept_inventory', pop=gone[0])} takes it as it is now"
        )
    return read


def accept(context: Context, pop: str) -> tuple[Inventory, list[inventory.PopChange]]:
    """Keep what the source tells now of one PoP, or of all ("" for ``pop``), whatever is gone.

    Returns the inventory, and how it differs from what was kept.
    """
    kept = readable_index(context.store)
    read, changes = compared(context, pop)
    _keep(context, read, kept, [change.pop for change in changes])
    return read, changes


def compared(context: Context, pop: str) -> tuple[Inventory, list[inventory.PopChange]]:
    """The inventory as its source tells it now, and how it differs from what is kept of a PoP, or
    of all. InputError where neither knows the PoP."""
    kept, read = readable_index(context.store), open_inventory(context.config)
    names = read.pop_names()
    known = {*(kept.pops if kept else ()), *names}
    if pop and pop not in known:
        read.pop(pop)
    changes = []
    for name in sorted({pop} if pop else known):
        old, new = _readable(kept, context, name), read.pop(name) if name in names else None
        if old != new or old is None:
            changes.append(_change(name, old, new))
    return read, changes


def keep_entry(context: Context, plan: str, pop: str) -> None:
    """Keep the PoP of a plan, for the rollout that begins with it."""
    kept = inventory.KeptPop(pop, context.inventory.entry(pop))
    context.store.put(inventory.entry_key(plan), inventory.written(kept))


def pop_of_rollout(context: Context, plan: str, name: str) -> Pop:
    """The PoP of a rollout: as the inventory has it now, with all hosts that it had for the plan.

    So a rollout ends with the hosts that it began with. Where the inventory does not tell of the
    PoP, it is as it was for the plan. Plans of 0.11 and older kept none.
    """
    planned = _planned(context, plan)
    try:
        now = context.known_inventory.pop(name)
    except _UNREADABLE:
        if planned is None:
            raise
        return planned
    there = {host.name for host in now.hosts}
    gone = [host for host in (planned.hosts if planned else ()) if host.name not in there]
    return replace(now, hosts=(*now.hosts, *gone)) if gone else now


def _keep(
    context: Context,
    read: Inventory,
    kept: inventory.KeptInventory | None,
    accepted: Iterable[str] = (),
) -> None:
    """Keep all PoPs that are found, but those that lost more hosts than they may.

    Such a PoP, and one that is gone, stays as it was until somebody has ``accepted`` that.
    """
    pops = dict(kept.pops) if kept else {}
    all_may_go = context.config.inventory_shrink == 1
    for name in {*accepted, *(set(pops) - set(read.pop_names()) if all_may_go else ())}:
        pops.pop(name, None)
    digests = {name: inventory.digest_of_entry(read.entry(name)) for name in read.pop_names()}
    for name, digest in digests.items():
        if pops.get(name) == digest:
            continue
        if name in pops:
            before = _readable(kept, context, name)
            if before is None or _too_many_gone(context, before, read.pop(name)):
                continue
        entry = inventory.KeptPop(name, read.entry(name))
        context.store.put(inventory.pop_key(name), inventory.written(entry))
        pops[name] = digest
    file, pops = (read.file, digests) if pops == digests else ("", pops)
    if kept and pops == kept.pops and file == kept.file and not read.is_kept:
        return
    # Last: what it names is there.
    where = f"{context.config.inventory_source} {context.config.inventory}"
    context.store.put(
        inventory.KEY, inventory.written(inventory.KeptInventory(where, clock.wall(), pops, file))
    )


def _planned(context: Context, plan: str) -> Pop | None:
    """The PoP as it was for the plan; None where that was not kept, or cannot be read."""
    key = inventory.entry_key(plan)
    text = value_of(context.store, key)
    if text is None:
        return None
    try:
        kept = inventory.read_entry(key, text)
        return read_pop(key, kept.pop, kept.entry)
    except _UNREADABLE:
        return None


def _readable(kept: inventory.KeptInventory | None, context: Context, name: str) -> Pop | None:
    """What is kept of a PoP; None where nothing is, or it cannot be read."""
    if kept is None or name not in kept.pops:
        return None
    try:
        return StoredInventory(context.store, kept).pop(name)
    except _UNREADABLE:
        return None


def _too_many_gone(context: Context, old: Pop, new: Pop) -> list[str]:
    """Names of the hosts that are gone, if those are too many."""
    there = {host.name for host in new.hosts}
    gone = [host.name for host in old.hosts if host.name not in there]
    most = max(1, int(context.config.inventory_shrink * len(old.hosts)))
    return gone if len(gone) > most else []


def _change(name: str, old: Pop | None, new: Pop | None) -> inventory.PopChange:
    before, after = ({host.name: host for host in pop.hosts} if pop else {} for pop in (old, new))
    both = [host for host in before if host in after and before[host] != after[host]]
    return inventory.PopChange(
        name,
        added=[host for host in after if host not in before],
        removed=[host for host in before if host not in after],
        changed={host: _differing(before[host], after[host]) for host in both},
        fields=[field for field in _differing(old, new) if field != "hosts"] if old and new else [],
    )


def _differing(old: Host | Pop, new: Host | Pop) -> list[str]:
    """Names of the fields that are not the same."""
    names = [each.name for each in fields(old)]
    return [name for name in names if getattr(old, name) != getattr(new, name)]
