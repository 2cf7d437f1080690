# SPDX-License-Identifier: Apache-2.0
"""Rows of numbers, one for each host of a document, as the document keeps them.

``{"hosts": [name], "metrics": {metric: {"rows": text, ...}}}``: a text is the base64 of
little-endian floats of 32 bits (seven digits), row by row in the order of ``hosts``. In documents
of version 0.8 and before a metric has a list of numbers for each host instead.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from edgetune.errors import InputError

Array = Any
Document = Mapping[str, Any]

_LARGEST = float(np.finfo("f4").max)
"""Counters that are damaged can be larger."""
_OF_OLD = {"rows": "hosts", "halves": "halves"}


def packed_rows(rows: Array) -> str:
    """The text of rows, shape (hosts, numbers)."""
    kept = np.clip(rows, -_LARGEST, _LARGEST).astype("<f4")
    return b2a_base64(kept.tobytes(), newline=False).decode("ascii")


def hosts_of(document: Document) -> list[str]:
    """The hosts that a document has rows of."""
    if "hosts" in document:
        return [*document["hosts"]]
    return list(
        dict.fromkeys(host for own in document["metrics"].values() for host in own["hosts"])
    )


def rows_in(
    document: Document, metric: str, kind: str, hosts: Sequence[str], widths: Collection[int]
) -> Array:
    """The rows of hosts, shape (hosts, one of ``widths``), NaN for an unknown host.

    ``kind`` is "rows" or "halves". InputError if they are no rows of the document's hosts.
    """
    own = document["metrics"][metric]
    if "hosts" in own:
        known, rows = _of_old(own[_OF_OLD[kind]])
    else:
        known, rows = document["hosts"], _unpacked(own[kind], len(document["hosts"]))
    if rows is None or rows.shape[1] not in widths:
        raise InputError("record", f"metrics.{metric}.{kind}", "are no rows of its hosts")
    return rows if known == [*hosts] else _in_order(rows, known, hosts)


def _unpacked(text: Any, hosts: int) -> Array | None:
    try:
        return np.frombuffer(a2b_base64(text), dtype="<f4").astype(float).reshape(hosts, -1)
    except (TypeError, ValueError):
        return None


def _of_old(kept: Mapping[str, Sequence[float]]) -> tuple[list[str], Array | None]:
    lengths = {len(row) for row in kept.values()}
    return [*kept], np.array([*kept.values()], dtype=float) if len(lengths) == 1 else None


def _in_order(rows: Array, known: Sequence[str], hosts: Sequence[str]) -> Array:
    places = {host: place for place, host in enumerate(known)}
    where = np.array([places.get(host, -1) for host in hosts], dtype=int)
    return np.where(where[:, None] < 0, np.nan, rows[where])
