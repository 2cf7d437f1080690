# SPDX-License-Identifier: Apache-2.0
"""The ways in which a BMC restarts its machine. No client is imported: plans are shown without."""

from __future__ import annotations

from collections.abc import Collection

RESTART, SHUTDOWN, FORCED, ON = "GracefulRestart", "GracefulShutdown", "ForceRestart", "On"
"""Values of ResetType (DMTF DSP0268, Resource)."""


def ladder(taken: Collection[str], force: bool) -> list[str]:
    """The ways to restart a machine whose BMC takes these resets, the gentlest first.

    A shutdown is a way only where the machine can be turned on again. ``force`` allows the last.
    """
    shuts_down = RESTART not in taken and ON in taken
    ways = (RESTART, *([SHUTDOWN] if shuts_down else []), *([FORCED] if force else []))
    return [way for way in ways if way in taken]
