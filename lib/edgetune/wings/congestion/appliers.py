# SPDX-License-Identifier: Apache-2.0
"""By what hosts give prefixes a congestion control of their own, as ``apply`` of a PoP names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from edgetune.base.dataclass import dataclass
from edgetune.base.fields import Field


@dataclass(frozen=True)
class Applier:
    """What it does, in sentences, whether a prefix may have an initial window by it, and the
    ``fields`` that the inventory has for it."""

    means: str
    has_windows: bool
    fields: Mapping[str, Field] = field(default_factory=dict)


APPLIERS: Mapping[str, Applier] = {
    "routes": Applier(
        "Each host gets a route for each prefix, a copy of the best one with ``congctl``. The "
        "kernel then chooses the congestion control of each new connection. A prefix may have an "
        "initial window, too.",
        has_windows=True,
    ),
    "file": Applier(
        "Each host gets a file with a line for each prefix, as a block ``geo`` of nginx includes "
        "it. The host itself says where that is, and by which commands its web server checks and "
        "reloads it: [a file of prefixes](../how-to/prefix-file.md). The web server sets the "
        "congestion control of responses. It sets no initial window.",
        has_windows=False,
    ),
}
