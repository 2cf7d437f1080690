# SPDX-License-Identifier: Apache-2.0
"""What was read of the inventory, as it is kept in the records.

edgetune.net.inventories        when it was read, and which PoPs there were
edgetune.inventory.POP      a PoP
edgetune.entry.DIGEST       the PoP of the plan of that digest, as it was when the plan was made
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from edgetune import PACK
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.reading import decoded, digest_of, read_document

# No other key begins with it: to list those that do would read every PoP.
KEY = f"{PACK}.inventories"


@dataclass(frozen=True)
class KeptInventory:
    """``read`` from ``where`` in epoch seconds; ``pops`` has the digest of each PoP by its name.

    ``file`` is the digest of a file that tells just these PoPs; empty where there is none such.
    """

    where: str
    read: float
    pops: dict[str, str]
    file: str = ""


@dataclass(frozen=True)
class PopChange:
    """How a ``pop`` differs from what is kept of it: names of hosts that were ``added`` and
    ``removed``, by host the fields that ``changed``, and those ``fields`` of the PoP itself."""

    pop: str
    added: list[str]
    removed: list[str]
    changed: dict[str, list[str]]
    fields: list[str]


@dataclass(frozen=True)
class Differences:
    """How PoPs differ from what is kept of them, with what came of it in one line."""

    message: str
    pops: Sequence[PopChange]


@dataclass(frozen=True)
class KeptPop:
    """The ``entry`` of a ``pop``, as a YAML file has it, for the reader of inventories."""

    pop: str
    entry: object


def pop_key(pop: str) -> str:
    """The key of a PoP."""
    return f"{PACK}.inventory.{pop}"


def entry_key(plan: str) -> str:
    """The key of the PoP of a plan, by the plan's digest."""
    return f"{PACK}.entry.{plan}"


def digest_of_entry(entry: Mapping[str, object]) -> str:
    """That of the entry of a PoP; another one where its hosts have another order."""
    hosts = entry.get("hosts")
    return digest_of([[*hosts] if isinstance(hosts, Mapping) else [], entry])


def written(value: KeptInventory | KeptPop) -> str:
    """As it is kept."""
    return json.dumps(asdict(value))


def read_kept(text: str | None) -> KeptInventory | None:
    """What was read, None where nothing was; DamagedError if it makes no sense."""
    return None if text is None else decoded(KEY, KeptInventory, read_document(KEY, text))


def read_entry(key: str, text: str) -> KeptPop:
    """What is kept under one of the keys; DamagedError if it makes no sense."""
    return decoded(key, KeptPop, read_document(key, text))
