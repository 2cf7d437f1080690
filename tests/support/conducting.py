# SPDX-License-Identifier: Apache-2.0
"""What workflows need that the local runner conducts on a world, in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable

from edgetune.rollout.steps.apply_tuning import apply_tuning
from edgetune.rollout.steps.assess_orphan import assess_orphan
from edgetune.rollout.steps.begin_rollback import begin_rollback
from edgetune.rollout.steps.check_drained import check_drained
from edgetune.rollout.steps.check_health import check_health
from edgetune.rollout.steps.check_rebooted import check_rebooted
from edgetune.rollout.steps.claim_pop import claim_pop
from edgetune.rollout.steps.drain_hosts import drain_hosts
from edgetune.rollout.steps.find_left import find_left
from edgetune.rollout.steps.hand_over_tuning import hand_over_tuning
from edgetune.rollout.steps.list_applied import list_applied
from edgetune.rollout.steps.reboot_hosts import reboot_hosts
from edgetune.rollout.steps.remove_agents import remove_agents
from edgetune.rollout.steps.restore_hosts import restore_hosts
from edgetune.rollout.steps.restore_live import restore_live
from edgetune.rollout.steps.set_bios import set_bios
from edgetune.rollout.steps.set_rollout_state import set_rollout_state
from edgetune.rollout.steps.take_over_for_rollback import take_over_for_rollback
from edgetune.rollout.steps.take_over_rollout import take_over_rollout
from edgetune.rollout.steps.undrain_hosts import undrain_hosts
from edgetune.rollout.steps.verify_hosts import verify_hosts

STEPS = {
    step.__name__: step
    for step in (
        claim_pop,
        take_over_rollout,
        find_left,
        list_applied,
        hand_over_tuning,
        remove_agents,
        assess_orphan,
        set_rollout_state,
        begin_rollback,
        take_over_for_rollback,
        drain_hosts,
        check_drained,
        set_bios,
        apply_tuning,
        restore_live,
        restore_hosts,
        reboot_hosts,
        check_rebooted,
        verify_hosts,
        undrain_hosts,
        check_health,
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
