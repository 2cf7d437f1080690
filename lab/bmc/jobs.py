# SPDX-License-Identifier: Apache-2.0
"""A job of a Dell Lifecycle Controller: it waits for a boot, and applies what is pending."""

from __future__ import annotations

from dataclasses import dataclass

FIRST = 471269252011
# State of a job -> id and text of its message, percent, state and status of its task.
STATES = {
    "Scheduled": ("JCP001", "Task successfully scheduled.", 0, "Starting", "OK"),
    "Running": ("PR20", "Job in progress.", 1, "Running", "OK"),
    "Completed": ("PR19", "Job completed successfully.", 100, "Completed", "OK"),
    "Failed": ("PR21", "Job failed.", 100, "Exception", "Critical"),
}


@dataclass
class Job:
    id: str
    created: str
    state: str = "Scheduled"
    kind: str = "BIOSConfiguration"

    @property
    def open(self) -> bool:
        """Whether it has what is pending for the BIOS, or applies it now."""
        return self.kind == "BIOSConfiguration" and self.state in ("Scheduled", "Running")


def new_job(number: int, created: str) -> Job:
    """Numbers have twelve digits, and begin anew after the last."""
    return Job(f"JID_{(FIRST + number) % 10**12:012d}", created)
