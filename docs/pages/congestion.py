# SPDX-License-Identifier: Apache-2.0
"""What the entry ``congestion`` of a PoP may say."""

from __future__ import annotations

from docs.pages.entries import entry
from docs.pages.markdown import code, items, page
from edgetune.base.documents.congestion import Terms, Thresholds
from edgetune.base.options import Option, options_of
from edgetune.wings.congestion.entry import APPLIERS
from edgetune.wings.congestion.sources import SOURCES


def congestion_page() -> str:
    return page(
        "congestion",
        terms=_table(options_of(Terms)),
        thresholds=_table(options_of(Thresholds)),
        sources="\n\n".join(map(_source, SOURCES)),
        appliers="\n\n".join(map(_applier, APPLIERS)),
    )


def _table(options: list[Option]) -> str:
    return items(f"{code(own.name)} ({_bounds_of(own)}): {own.means}" for own in options)


def _bounds_of(option: Option) -> str:
    kind = {"int": "whole number", "float": "number", "str": "text"}.get(option.type, "texts")
    told = "duration" if option.is_time else kind, option.bounds, f"default {_usual(option)}"
    return ", ".join(filter(None, told))


def _usual(option: Option) -> str:
    return code(option.written) if option.written or option.written == 0 else "none"


def _source(name: str) -> str:
    source = SOURCES[name]
    return entry(f"### {name}", source.__doc__, source.fields)


def _applier(name: str) -> str:
    own = APPLIERS[name]
    return entry(f"### {name}", own.means, own.fields)
