# SPDX-License-Identifier: Apache-2.0
"""Rows of numbers, one for each host of a document, as documents keep them.

A text is the base64 of little-endian floats of 32 bits (seven digits), row by row in the order of
the document's hosts; ``judge.rows`` makes arrays of it. Versions before 0.9 kept a list of numbers
for each host of each metric instead.
"""

from __future__ import annotations

import math
import sys
from array import array
from binascii import b2a_base64
from collections.abc import Sequence
from itertools import chain
from typing import Any

_TODAY = {"hosts": "rows", "halves": "halves"}


def packed(numbers: Any) -> str:
    """The text of an array of floats of 32 bits."""
    return b2a_base64(numbers.tobytes(), newline=False).decode("ascii")


def in_columns(document: dict[str, Any]) -> dict[str, Any]:
    """A baseline or a block of any version as today's have it.

    What are no rows of its hosts is left for its reader to refuse.
    """
    metrics = document.get("metrics")
    if "hosts" in document or not isinstance(metrics, dict) or not _are_of_old(metrics):
        return document
    hosts = list(dict.fromkeys(chain.from_iterable(own["hosts"] for own in metrics.values())))
    return {
        **document,
        "hosts": hosts,
        "metrics": {name: _of_today(own, hosts) for name, own in metrics.items()},
    }


def _are_of_old(metrics: dict[str, Any]) -> bool:
    return all(
        isinstance(own, dict) and isinstance(own.get("hosts"), dict) for own in metrics.values()
    )


def _of_today(own: dict[str, Any], hosts: Sequence[str]) -> dict[str, Any]:
    rows = {_TODAY[name]: _text(own[name], hosts) for name in _TODAY if name in own}
    return {**{name: value for name, value in own.items() if name not in _TODAY}, **rows}


def _text(rows: Any, hosts: Sequence[str]) -> str:
    """Empty if they are no rows of numbers, all of one length."""
    try:
        (width,) = {len(row) for row in rows.values()}
        unknown = [math.nan] * width
        numbers = array("f", chain.from_iterable(rows.get(host, unknown) for host in hosts))
    except (AttributeError, TypeError, ValueError, OverflowError):
        return ""
    if sys.byteorder == "big":
        numbers.byteswap()
    return packed(numbers)
