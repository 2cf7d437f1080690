# SPDX-License-Identifier: Apache-2.0
"""The inventory as it is kept in the records (see ``kept_inventory``)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import Callable, ClassVar

from edgetune.base import clock
from edgetune.base.documents.inventory import (
    KEY,
    KeptInventory,
    digest_of_entry,
    pop_key,
    read_entry,
    read_kept,
)
from edgetune.base.durations import roughly
from edgetune.base.errors import DamagedError, InputError, StoreError
from edgetune.base.fields import near_or_all
from edgetune.net.inventories import open_inventory, read_pop, source_of
from edgetune.net.inventories.yaml import digest_of_file
from edgetune.rollout.store.records import Store, value_of
from edgetune.site.config import Config
from edgetune.site.inventory import Inventory, Pop

LARGE = 20_000
"""Bytes of a file that is parsed in the time of two requests: some 200 hosts."""
_FEW = 4
"""PoPs that are read one by one; to read more of them costs as much as the file."""


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
        entry = read_entry(key, text).entry
        if not isinstance(entry, Mapping):
            raise DamagedError(key, "entry", "must be a mapping")
        return dict(entry)


class SplitInventory(Inventory):
    """A large file that is as it was when a plan read it: a PoP is read of what was kept then.

    To parse 20,000 hosts costs each step a second or two, and to read 100 of them a twentieth. The
    file is parsed once its PoPs are asked for one after the other, if it is the same still.
    """

    def __init__(self, config: Config, store: Store, kept: KeptInventory) -> None:
        self._config, self._kept = config, kept
        self._stored, self._read = StoredInventory(store, kept), dict[str, Pop]()

    @cached_property
    def _whole(self) -> Inventory | None:
        with suppress(InputError):
            whole = open_inventory(self._config)
            return whole if whole.file == self._kept.file else None
        return None

    def pop_names(self) -> list[str]:
        return list(self._kept.pops)

    def pop(self, name: str) -> Pop:
        where = str(self._config.inventory)
        if name not in self._kept.pops:
            problem = f"there is no PoP {name!r}{near_or_all(name, sorted(self._kept.pops))}"
            raise InputError(where, "pop", problem)
        if name not in self._read:
            if len(self._read) >= _FEW and self._whole:
                return self._whole.pop(name)
            self._read[name] = read_pop(where, name, self.entry(name))
        return self._read[name]

    def entry(self, name: str) -> Mapping[str, object]:
        with suppress(InputError, DamagedError, StoreError):
            entry = self._stored.entry(name)
            # A node with another file may be writing its own.
            if digest_of_entry(entry) == self._kept.pops[name]:
                return entry
        return (self._whole or open_inventory(self._config)).entry(name)


def digest_of_source(config: Config, large: bool = False) -> str:
    """That of the file which tells all of the inventory; empty where no file does, and if it is to
    be ``large`` and is not."""
    if source_of(config).is_kept:
        return ""
    return digest_of_file(config.inventory, LARGE if large else 0)


def stored_inventory(config: Config, store: Callable[[], Store]) -> Inventory:
    """The inventory for all but plans; InputError where neither its source nor the records tell.
    A file is its own word: an old address is not to be acted on where the file is wrong."""
    if source_of(config).is_kept:
        kept = readable_index(store())
        return open_inventory(config) if kept is None else StoredInventory(store(), kept)
    file = digest_of_source(config, large=True)
    # Where the records cannot be asked the file is read, as one that is small.
    with suppress(StoreError, InputError):
        kept = readable_index(store()) if file else None
        if kept is not None and kept.file == file:
            return SplitInventory(config, store(), kept)
    return open_inventory(config)


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
