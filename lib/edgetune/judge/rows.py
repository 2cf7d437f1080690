# SPDX-License-Identifier: Apache-2.0
"""Arrays of rows of numbers, one for each host, and the texts that documents keep of them (see
``documents.rows``)."""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from edgetune.base.documents.rows import packed
from edgetune.base.errors import InputError

Array = Any

_LARGEST = float(np.finfo("f4").max)
"""Counters that are damaged can be larger."""


def packed_rows(rows: Array) -> str:
    """The text of rows, shape (hosts, numbers)."""
    return packed(np.clip(rows, -_LARGEST, _LARGEST).astype("<f4"))


def rows_in(
    text: str, known: Sequence[str], hosts: Sequence[str], widths: Collection[int], where: str
) -> Array:
    """The rows of ``hosts``, shape (hosts, one of ``widths``), NaN for an unknown host.

    ``text`` has those of the ``known`` ones. InputError names ``where`` it stands if they are no
    rows of these.
    """
    try:
        numbers = np.frombuffer(a2b_base64(text), dtype="<f4").astype(float)
        rows = numbers.reshape(len(known), -1)
        good = rows.shape[1] in widths
    except ValueError:
        good = False
    if not good:
        raise InputError("record", where, "are no rows of its hosts")
    return rows if [*known] == [*hosts] else _in_order(rows, known, hosts)


def _in_order(rows: Array, known: Sequence[str], hosts: Sequence[str]) -> Array:
    places = {host: place for place, host in enumerate(known)}
    where = np.array([places.get(host, -1) for host in hosts], dtype=int)
    return np.where(where[:, None] < 0, np.nan, rows[where])
