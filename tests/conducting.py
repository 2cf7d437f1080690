# SPDX-License-Identifier: Apache-2.0
"""What workflows need that the local runner conducts on a world, in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable

from edgetune.rollout import bios, change, drain, lifecycle, looks, reboot

STEPS = {
    step.__name__: step
    for step in (
        lifecycle.claim_pop,
        lifecycle.set_rollout_state,
        lifecycle.release_claim,
        drain.drain_hosts,
        drain.check_drained,
        bios.set_bios,
        change.apply_tuning,
        change.restore_hosts,
        reboot.reboot_hosts,
        reboot.check_rebooted,
        change.verify_hosts,
        drain.undrain_hosts,
        looks.check_health,
    )
}
"""The steps of the library by the actions that run them."""


class Impatient(threading.Event):
    """No task is delayed; ``delays`` says by how many seconds each would have been.

    ``passes`` is told them, in their turn.
    """

    def __init__(self) -> None:
        super().__init__()
        self.delays: list[float] = []
        self.passes: Callable[[float], object] = lambda seconds: None

    def wait(self, timeout: float | None = None) -> bool:
        if timeout:
            self.delays.append(timeout)
            self.passes(timeout)
        return self.is_set()
