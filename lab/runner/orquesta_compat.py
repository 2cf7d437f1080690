# SPDX-License-Identifier: Apache-2.0
"""Imports orquesta, the engine of StackStorm's workflows.

PyPI's newest, 1.2.0, was written for Python 3.8 and older; what it (and networkx 1.11 under it)
misses on 3.9 to 3.12 is put back first.
"""

from __future__ import annotations

import collections
import collections.abc
import contextlib
import fractions
import functools
import math
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module, metadata
from typing import Any

__all__ = ["conducting", "events", "expressions", "specs", "statuses"]

_MOVED = ("Mapping", "MutableMapping", "MutableSequence", "Sequence")


def _restore_standard_names() -> None:
    for name in _MOVED:
        setattr(collections, name, getattr(collections.abc, name))
    vars(fractions).setdefault("gcd", math.gcd)


def _mend_inline_flags() -> None:
    """Python 3.11 allows a global `(?i)` only at the start of a pattern."""
    inline: Any = import_module("orquesta.utils.parameters")
    for word in ("true", "false"):
        mended = inline.REGEX_INLINE_PARAMS.replace(f"(?i){word}", f"(?i:{word})")
        inline.REGEX_INLINE_PARAMS = mended


def _merge_schemas_once() -> None:
    """Orquesta merges the schemas of its classes anew for each task it reads: half of its time.

    Nothing changes what the two functions return.
    """
    spec: Any = import_module("orquesta.specs.base").Spec
    for name in ("get_meta_schema", "get_schema"):
        merged: Any = functools.lru_cache(maxsize=None)(getattr(spec, name).__func__)
        setattr(spec, name, classmethod(merged))


@contextlib.contextmanager
def _without_numpy() -> Iterator[None]:
    """Networkx imports it, a fifth of all the time, for functions that Orquesta has no use for."""
    known = sys.modules.get("numpy")
    if known is None:
        sys.modules["numpy"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if known is None:
            del sys.modules["numpy"]


with warnings.catch_warnings(), _without_numpy():
    warnings.simplefilter("ignore")
    if metadata.version("orquesta") == "1.2.0":
        _restore_standard_names()
        _mend_inline_flags()
    _merge_schemas_once()
    conducting: Any = import_module("orquesta.conducting")
    events: Any = import_module("orquesta.events")
    expressions: Any = import_module("orquesta.expressions.base")
    specs: Any = import_module("orquesta.specs.loader").get_spec_module("native")
    statuses: Any = import_module("orquesta.statuses")
