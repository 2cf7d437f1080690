# SPDX-License-Identifier: Apache-2.0
"""What workflows need that the local runner conducts on a world, in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tests.support.world import step_named

STEPS = {
    name: step_named(name)
    for name in (
        *("claim_pop", "take_over_rollout", "take_over_for_rollback", "find_left", "list_applied"),
        *("hand_over_tuning", "remove_agents", "assess_orphan", "set_rollout_state"),
        *("begin_rollback", "drain_hosts", "check_drained", "set_bios", "apply_tuning"),
        *("restore_live", "restore_hosts", "reboot_hosts", "check_rebooted", "verify_hosts"),
        *("undrain_hosts", "check_health"),
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
