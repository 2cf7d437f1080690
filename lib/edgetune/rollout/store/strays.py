# SPDX-License-Identifier: Apache-2.0
"""Records of rollouts whose keys tell no PoP.

They lie among those of no PoP, and may be on any: a step of a PoP, which lists its own alone, knows
them from here. The sweep, which lists all, writes them down.

edgetune.strays
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from edgetune import PACK
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.head import ID, head_key
from edgetune.base.documents.reading import decoded, read_document
from edgetune.base.errors import DamagedError
from edgetune.rollout.store.records import Store, value_of

KEY = f"{PACK}.strays"


@dataclass(frozen=True)
class _Strays:
    """Their ids, in order."""

    ids: list[str]


def strays_among(rollouts: Iterable[str]) -> list[str]:
    """The ids that tell no PoP, in order."""
    return sorted(name for name in rollouts if not ID.fullmatch(name))


def known_strays(store: Store) -> list[str]:
    """Those that the sweep saw last."""
    text = value_of(store, KEY)
    try:
        return [] if text is None else decoded(KEY, _Strays, read_document(KEY, text)).ids
    except DamagedError:
        prefix = head_key("")
        return strays_among(key[len(prefix) :] for key in store.list(prefix))


def keep_strays(store: Store, ids: list[str]) -> None:
    """Write them down, where that is news."""
    text = json.dumps({"ids": ids})
    known = value_of(store, KEY)
    if text != known and (ids or known is not None):
        store.put(KEY, text)
