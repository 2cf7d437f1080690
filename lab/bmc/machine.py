# SPDX-License-Identifier: Apache-2.0
"""One system as its BMC sees it: BIOS, what is pending, POST, power, jobs, event log. No I/O."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Callable

from .attributes import check, check_one, derived
from .jobs import Job, new_job
from .messages import Refused
from .personality import load
from .sessions import Sessions

NAMESPACE = uuid.UUID("5f0c8a52-7d4e-4a71-9a4b-0c6d0e5e77a1")
# What each fault does; a fault is broken and healed while the machine is in use.
FAULTS = {
    "late": "does what it is asked, and answers a change after the client has given up",
    "job_fails": "applies nothing at the next boot, and says so",
    "reverts": "has a new value after its boot, and the old one again after the next",
    "ignores": "answers a change with success, and does nothing",
    "forgets": "takes a change, and its boot ends well without the new value",
    "busy": "answers `busy_answers` times with 503, then is well again",
    "in_post": "refuses changes as in POST, for as long as the fault is there",
    "refuses": "refuses every login",
    "no_registry": "has no attribute registry",
    "lies": "answers JSON that is not what it should be, from the BIOS on",
    "redirects": "redirects everything but the service root to another host",
    "hostile": "has hostile text in its model, its versions, its event log and its messages",
    "deaf": "takes connections and never answers",
    "stays_down": "never gets through POST",
}
_EFFECTS = {"On": "on", "ForceOn": "on", "ForceOff": "off", "GracefulShutdown": "off"}


def uuid_of(name: str) -> str:
    """The UUID of the machine of that name; its host tells the same."""
    return str(uuid.uuid5(NAMESPACE, name))


def serial_of(name: str) -> str:
    """Its serial number; its host tells the same."""
    return uuid_of(name)[:8].upper()


@dataclass(frozen=True)
class Event:
    created: str
    severity: str  # OK, Warning or Critical
    message: str


class Machine:
    """Use it under its `lock` when others may; `Service` and `process` do.

    driven: whoever has the host says when POST begins and ends. Otherwise a reset begins POST,
        and it ends `post_seconds` later.
    on_reset(name, kind): called for a reset that the BMC was asked for and takes.
    log: (method, path) of all that arrived; resets: all reset types that were asked for.
    connections: how many were made, each with a TLS handshake of its own.
    answer_seconds: how long each answer takes; in_turn: one after the other, whoever asks.
    """

    def __init__(
        self,
        name: str,
        personality: str,
        *,
        post_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        driven: bool = False,
        on_reset: Callable[[str, str], None] | None = None,
    ) -> None:
        self.name = name
        self.personality = load(personality)
        self.post_seconds = post_seconds
        self.driven = driven
        self.answer_seconds, self.in_turn = 0.0, False
        self.turn = threading.Lock()
        self.on_reset = on_reset
        self.lock = threading.RLock()
        self.log: list[tuple[str, str]] = []
        self.resets: list[str] = []
        self.connections = 0
        self.refused_logins = 0
        self.faults: set[str] = set()
        self.busy_answers = 3
        self.late_seconds = 600.0
        self.redirects_to = "https://192.0.2.1"
        self.current = {key: a["value"] for key, a in self.personality.attributes.items()}
        self.pending: dict[str, Any] = {}
        self.jobs: list[Job] = []
        self._jobs_made = 0
        self.events: list[Event] = []
        self.applied: tuple[str, list[tuple[str, list[str]]]] | None = None
        self.phase = "os"  # os, post or off
        limit, seconds = self.personality.session_limit, self.personality.session_seconds
        self.sessions = Sessions(limit, seconds, clock)
        self._clock = clock
        self._post_began = 0.0
        self._reverting: dict[str, Any] = {}

    @property
    def uuid(self) -> str:
        return uuid_of(self.name)

    @property
    def serial(self) -> str:
        return serial_of(self.name)

    @property
    def snoop_mode(self) -> str:
        """early, home, cluster_on_die or home_osb; a choice left to the machine is early."""
        for mode, attributes in self.personality.snoop_modes:
            if all(self.current[name] == value for name, value in attributes.items()):
                return mode
        return "early"

    def begin_post(self) -> None:
        """The machine went down to boot again, however that came."""
        self.phase = "post"
        self._post_began = self._clock()
        for job in self._open_jobs():
            job.state = "Running"

    def end_post(self) -> bool:
        """POST is through: what was pending is current. False for a machine that stays down."""
        if "stays_down" in self.faults:
            self.note("Critical", "Uncorrectable memory error detected during POST.")
            return False
        self.phase = "os"
        if "reverts" in self.faults:
            self.current.update(self._reverting)
        self._reverting = {}
        if self.pending and (self._open_jobs() or not self.personality.jobs):
            self._apply()
        self.note("OK", "System boot completed.")
        return True

    def power(self, on: bool) -> None:
        """Switched on it runs POST; switched off, what is pending stays so."""
        if on and self.phase == "off":
            self.begin_post()
        elif not on:
            self.phase = "off"
            for job in self._open_jobs():
                job.state = "Scheduled"

    def advance(self) -> None:
        """Let the time go by that went by: POST of a machine that is not driven ends."""
        if self.phase == "post" and not self.driven:
            ended = self._clock() >= self._post_began + self.post_seconds
            if ended and "stays_down" not in self.faults:
                self.end_post()

    def stage(self, attributes: Mapping[str, Any], scheduled: bool = True) -> Job | None:
        """Take values for the next boot; where there are jobs, the one that will apply them.

        scheduled: where there are jobs, whether to make one; without, nothing is ever applied.
        """
        self._expect_settled()
        if not self.personality.checks_at_boot:
            check(self.personality, attributes, {**self.current, **self.pending})
        if "ignores" in self.faults:
            return None
        staged = {**self.pending, **attributes}
        self.pending = {
            name: value for name, value in staged.items() if value != self.current.get(name)
        }
        return self.schedule() if scheduled and self.personality.jobs and self.pending else None

    def schedule(self) -> Job:
        """Make the job that applies at the next boot what is pending now."""
        self._expect_settled()
        self._jobs_made += 1
        job = new_job(self._jobs_made, now())
        if "ignores" not in self.faults:
            self.jobs.append(job)
        return job

    def cancel(self, job: Job | None) -> None:
        """Give up a job that has not begun (None: what no job has yet), and its pending values."""
        if (job and job.state == "Running") or (job is None and self._open_jobs()):
            raise Refused("committed")
        if "ignores" in self.faults:
            return
        if job is not None:
            self.jobs.remove(job)
        if job is None or job.open:
            self.pending = {}

    def reset(self, kind: str) -> None:
        self.resets.append(kind)
        if kind not in self.personality.resets:
            raise Refused("parameter", kind, "Reset")
        if "in_post" in self.faults:
            raise Refused("in_post")
        if kind == "PushPowerButton":
            kind = "On" if self.phase == "off" else "GracefulShutdown"
        effect = _EFFECTS.get(kind, "restart")
        if (self.phase == "off") != (effect == "on"):
            raise Refused("power_state")
        if self.phase == "post" and effect == "restart":
            self.note("Critical", "The system was reset during POST.")
        if "ignores" not in self.faults:
            self._carry_out(kind, effect)

    def _carry_out(self, kind: str, effect: str) -> None:
        if not self.driven and effect == "restart":
            self.begin_post()
            self.advance()
        elif not self.driven:
            self.power(effect == "on")
        if self.on_reset is not None:
            self.on_reset(self.name, kind)

    def _expect_settled(self) -> None:
        if self.phase == "post" or "in_post" in self.faults:
            raise Refused("in_post")
        if self._open_jobs():
            raise Refused("committed")

    def _open_jobs(self) -> list[Job]:
        return [job for job in self.jobs if job.open]

    def _apply(self) -> None:
        before = dict(self.current)
        messages: list[tuple[str, list[str]]] = []
        for name, value in self.pending.items():
            try:
                self._apply_one(name, value)
            except Refused as refused:
                messages.append((refused.key, refused.arguments))
        self.current.update(derived(self.personality, self.current))
        if "reverts" in self.faults:
            self._reverting = before
        self.pending = {}
        self.applied = now(), messages or [("success", [])]
        for job in self._open_jobs():
            job.state = "Failed" if messages else "Completed"
        self.note(*_outcome(messages))

    def _apply_one(self, name: str, value: Any) -> None:
        if "job_fails" in self.faults:
            raise Refused("not_applied", value, name)
        check_one(self.personality, name, value, {**self.current, **self.pending})
        if "forgets" not in self.faults:
            self.current[name] = value

    def note(self, severity: str, text: str) -> None:
        """Write into the event log."""
        self.events.append(Event(now(), severity, text))


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _outcome(messages: list[tuple[str, list[str]]]) -> tuple[str, str]:
    if messages:
        return "Critical", "BIOS settings were not applied."
    return "OK", "BIOS settings were applied."
