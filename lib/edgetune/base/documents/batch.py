# SPDX-License-Identifier: Apache-2.0
"""Where the hosts of one batch stand, written ahead of each step.

edgetune.batch.ROLLOUT.NUMBER
"""

from __future__ import annotations

import json
from dataclasses import field

from edgetune import PACK, RECORD_SCHEMA
from edgetune.base import clock
from edgetune.base.clock import Reading, shifted
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.reading import check_is, decoded, encoded
from edgetune.base.documents.schema import read_versioned
from edgetune.base.documents.settings import Standing
from edgetune.base.sanitize import shortened

UNTOUCHED_STEPS = ("planned", "skipped")
SETTLED_STEPS = ("done", "skipped", "quarantined")
_TYPES = ("change", "sham", "restore")


@dataclass
class HostStep:
    """Where one host of a batch stands; written before the side effect that it names.

    ``ours`` marks a host that carried our change when its way back began, ``live_back`` one
    whose live settings are back already. ``bios`` is "asked" from ``bios_at`` on, and "set" once
    its next boot makes of the BIOS what it should; the host answered from that boot at
    ``back_at``. ``resets`` are those its BMC was asked for in this reboot, ``refused`` those that
    it refused, and why. ``goes_back_to`` holds by id what settings go back to where that is not
    what the plan saw: None where a tuning that came later holds them. ``told_at`` is when the
    drained host was asked to say "not ready", 0 before. From ``reverts_at`` on a host has taken a
    change back by itself that nobody confirmed; 0 where it waits for no confirmation. It is out
    of service since ``out_at``, 0 where it was not taken out, or an earlier version did not say.
    ``boot_took`` is how long its reboot lasted, in seconds, 0 where none was seen to end.
    ``was_out``: when its way back began, every load balancer had been seen to send it nothing, and
    none was asked to since. ``awaited`` says in words why it is not further than its step, and
    ``let_in`` how often a load balancer was seen to let it in again in this step.
    """

    step: str = "planned"
    at: float = 0.0
    reboot: bool = False
    ours: bool = False
    live_back: bool = False
    bios: str = ""
    bios_at: float = 0.0
    back_at: float = 0.0
    resets: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    reverts_at: float = 0.0
    lb_before: str | None = None
    boot_before: str | None = None
    error: str | None = None
    goes_back_to: dict[str, Standing | None] = field(default_factory=dict)
    told_at: float = 0.0
    boot_took: float = 0.0
    out_at: float = 0.0
    was_out: bool = False
    awaited: str = ""
    let_in: int = 0

    def go(self, step: str, error: str | None = None) -> None:
        """The host is now at ``step``."""
        reason = None if error is None else shortened(error)
        self.step, self.at, self.error = step, clock.now(), reason
        self.awaited, self.let_in = "", 0

    def shift(self, seconds: float) -> None:
        """Move the moments by which the host is awaited; one that is settled keeps its own."""
        if self.step in SETTLED_STEPS:
            return
        self.at, self.told_at = shifted(self.at, seconds), shifted(self.told_at, seconds)
        self.bios_at, self.back_at = shifted(self.bios_at, seconds), shifted(self.back_at, seconds)
        self.out_at = shifted(self.out_at, seconds)
        self.reverts_at += seconds if self.reverts_at else 0.0


@dataclass(frozen=True)
class Wait:
    """Why a batch may not begin: ``since`` when (epoch seconds), ``why``, and ``until`` what.

    ``until`` is empty where ``why`` tells it. ``paused`` says that the PoP is.
    """

    since: float
    why: str
    until: str = ""
    paused: bool = False


@dataclass(frozen=True)
class Silence:
    """Hosts whose alerts may be silenced in Alertmanager, which was last asked ``at`` (epoch
    seconds; 0 before it has answered). ``problem`` says why they are not as they should be."""

    hosts: list[str] = field(default_factory=list)
    at: float = 0.0
    problem: str = ""


@dataclass
class Batch:
    """Hosts that take the same way together; ``batch_type`` is change, sham or restore.

    ``checked`` says that they were held against the hard limits once they served again.
    ``passing`` are the servers whose check passed when hosts were last asked to say "not ready".
    ``clock`` was read when it was last written. ``wait`` is there while it may not begin.
    ``silence`` is there once Alertmanager was asked for something.
    """

    rollout: str
    number: int
    batch_type: str
    group: str
    hosts: dict[str, HostStep]
    checked: bool = False
    passing: list[str] = field(default_factory=list)
    clock: Reading | None = None
    wait: Wait | None = None
    silence: Silence | None = None

    def at(self, *steps: str) -> list[str]:
        """Names of the hosts that stand at one of these steps."""
        return [name for name, host in self.hosts.items() if host.step in steps]

    @property
    def finished(self) -> bool:
        """Whether nothing of it is left to do."""
        return (
            self.checked and not self.failures and len(self.at(*SETTLED_STEPS)) == len(self.hosts)
        )

    @property
    def failures(self) -> dict[str, str]:
        """Hosts that failed it, with the reason."""
        failed = {name: host.error for name, host in self.hosts.items() if host.step != "skipped"}
        return {name: error for name, error in failed.items() if error}

    def document(self) -> str:
        """As it is stored, with the time."""
        self.clock = clock.reading()
        return json.dumps({"schema": RECORD_SCHEMA, **encoded(self)})


def batch_key(rollout: str, number: int | str = "") -> str:
    """The key of a batch; without a number what the keys of all begin with."""
    return f"{PACK}.batch.{rollout}.{number}"


def read_batch(rollout: str, number: int, text: str) -> Batch:
    """A stored batch, its moments by the present wall clock; DamagedError if it is none."""
    key = batch_key(rollout, number)
    batch = decoded(key, Batch, read_versioned(key, text))
    shift = clock.shift_since(batch.clock)
    for host in batch.hosts.values():
        host.shift(shift)
    mine = (batch.rollout, batch.number) == (rollout, number)
    check_is(key, "number", mine, "is that of another batch")
    check_is(key, "batch_type", batch.batch_type in _TYPES, f"is none of {', '.join(_TYPES)}")
    return batch
