# SPDX-License-Identifier: Apache-2.0
"""Tasks (DSP2046, Task) and the jobs of an iDRAC, which has one for all that is pending."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from edgetune.bmc.client import Answer, Client
from edgetune.bmc.payload import BmcError, at, last_part, link_at, messages_of, text_at
from edgetune.bmc.system import managers, members, whole

_WAITING = ("New", "Scheduled", "Pending", "Starting", "Suspended", "Downloaded", "Waiting")
_BAD = ("Exception", "Killed", "Cancelled", "Interrupted")
# The last ones count; an iDRAC keeps up to 256 and does not always show them whole.
_NEWEST = 20


@dataclass(frozen=True)
class Job:
    """``state`` is ``waiting`` (for a boot), ``running``, ``ended`` or ``failed``."""

    link: str
    state: str
    text: str


class Jobs:
    """The jobs of the manager of a system; where it has no list of them, tasks only."""

    def __init__(self, client: Client, system: Answer) -> None:
        self._client, self._system = client, system

    @functools.cached_property
    def _list(self) -> str:
        # Where an iDRAC links its jobs (openstack/sushy-oem-idrac, manager.py).
        found = managers(self._client, self._system)
        links = [link_at(manager.data, "Links", "Oem", "Dell", "Jobs") for manager in found]
        return next(filter(None, links), "")

    @property
    def are_listed(self) -> bool:
        """Whether what is pending needs a job here."""
        return bool(self._list)

    def find(self, link: str) -> Job | None:
        """A job or task; None if the BMC has it no more."""
        answer = self._client.find(link)
        return _job(link, answer.data, answer.status) if answer else None

    def waiting(self) -> Job | None:
        """The job of the BIOS that waits or runs, if there is one."""
        if not self._list:
            return None
        listed = sorted(members(self._client, self._list), key=_number)
        for member in reversed(listed[-_NEWEST:]):
            data = whole(self._client, member)
            job = _job(link_at(member), data, 200)
            if "BIOS" in text_at(data, "JobType") and job.state in ("waiting", "running"):
                return job
        return None

    def of(self, answer: Answer) -> str:
        """The job or task that an accepted change made, or ""."""
        link = self._client.location(answer)
        if not link and "Task" in text_at(answer.data, "@odata.type"):
            link = link_at(answer.data)
        if not link or not self._list:
            return link
        same = (link_at(m) for m in members(self._client, self._list))
        return next((other for other in same if last_part(other) == last_part(link)), link)

    def create(self, settings: str) -> str:
        """A job that brings what is pending into force with the next boot."""
        return self.of(self._client.change("POST", self._list, {"TargetSettingsURI": settings}))

    def delete(self, job: Job) -> None:
        """Take a waiting job away; BmcError ``busy`` if it runs already."""
        if job.state != "waiting":
            raise BmcError("busy", f"the job {last_part(job.link)} runs already")
        self._client.change("DELETE", job.link)


def _number(member: Any) -> tuple[int, str]:
    name = last_part(link_at(member))
    digits = "".join(filter(str.isdecimal, name))
    return int(digits[:18] or 0), name


def _job(link: str, data: Any, status: int) -> Job:
    # The task of an iDRAC is "Starting" for as long as its job waits.
    dell = text_at(data, "JobState") or text_at(data, "Oem", "Dell", "JobState")
    state = dell or text_at(data, "TaskState")
    texts = [text_at(data, "Message"), *(message["text"] for message in messages_of(data))]
    text = ": ".join(filter(None, (state, next(filter(None, texts), ""))))
    return Job(link, _state(state, at(data, "TaskStatus"), status), text)


def _state(state: str, health: Any, status: int) -> str:
    if not state:
        # A task monitor answers 202 until the task has ended.
        return "waiting" if status == 202 else "ended"
    if state in _BAD or "Fail" in state or "Error" in state:
        return "failed"
    if state == "Completed":
        return "failed" if health in ("Warning", "Critical") else "ended"
    return "waiting" if state in _WAITING else "running"
