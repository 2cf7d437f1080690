# SPDX-License-Identifier: Apache-2.0
"""The inventory as it is kept in the records (see ``kept_inventory``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable, ClassVar

from edgetune.base import clock
from edgetune.base.documents.inventory import KEY, KeptInventory, pop_key, read_entry, read_kept
from edgetune.base.durations import roughly
from edgetune.base.errors import DamagedError, InputError
from edgetune.base.fields import near_or_all
from edgetune.net.inventories import open_inventory, read_pop, source_of
from edgetune.rollout.store.records import Store, value_of
from edgetune.site.config import Config
from edgetune.site.inventory import Inventory, Pop


class StoredInventory(Inventory):
    """What is kept of an inventory."""

    is_kept: ClassVar[bool] = True

    def __init__(self, store: Store, kept: KeptInventory) -> None:
        self._store, self._kept = store, kept
        self._read: dict[str, Pop] = {}

    def pop_names(self) -> list[str]:
        return list(self._kept.pops)

    def pop(self, name: str) -> Pop:
        if name not in self._read:
            self._read[name] = read_pop(pop_key(name), name, self.entry(name))
        return self._read[name]

    def entry(self, name: str) -> Mapping[str, object]:
        key = pop_key(name)
        text = self._store.get(key) if name in self._kept.pops else None
        if text is None:
            problem = f"there is no PoP {name!r}{near_or_all(name, sorted(self._kept.pops))}"
            raise InputError(f"{self._kept.where}, as it was kept", "pop", problem)
        entry: Any = read_entry(key, text).entry
        return {**entry}


def told_inventory(config: Config, store: Callable[[], Store]) -> Inventory:
    """The inventory for all but plans; InputError where neither its source nor the records tell.
    A file is its own word: an old address is not to be acted on where the file is wrong."""
    kept = readable_index(store()) if source_of(config).is_kept else None
    return open_inventory(config) if kept is None else StoredInventory(store(), kept)


def inventory_in_place_of(error: InputError, store: Store) -> tuple[Inventory, str]:
    """What is kept where the source does not tell, with a sentence on it; the error where nothing
    is kept."""
    kept = readable_index(store)
    if kept is None:
        raise error
    age = roughly(round(clock.wall() - kept.read))
    return StoredInventory(store, kept), f"the inventory is as it was kept {age} ago: {error}"


def readable_index(store: Store) -> KeptInventory | None:
    """What is kept; None where nothing is, or it cannot be read."""
    try:
        return kept_inventory(store)
    except DamagedError:
        return None


def kept_inventory(store: Store) -> KeptInventory | None:
    """What is kept, None where no plan was made yet; DamagedError if it makes no sense."""
    return read_kept(value_of(store, KEY))
