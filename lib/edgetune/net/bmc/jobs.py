# SPDX-License-Identifier: Apache-2.0
"""Tasks (DSP2046, Task) and the jobs of an iDRAC, which has one for all that is pending."""

from __future__ import annotations

import functools

from edgetune.base.dataclass import dataclass
from edgetune.net.bmc.answers import Answer
from edgetune.net.bmc.client import Client
from edgetune.net.bmc.payload import BmcError, at, last_part, link_at, messages_of, text_at
from edgetune.net.bmc.system import expanded, is_link, managers, members, whole

_WAITING = (
    *("New", "Scheduled", "Pending", "Starting", "Suspended", "Downloaded", "Waiting"),
    # Of an iDRAC, too (DellJob, JobState).
    *("Scheduling", "PendingActivation", "ReadyForExecution", "RebootPending", "Paused"),
)
_ENDED = ("Completed", "RebootCompleted")
_BAD = ("Exception", "Killed", "Cancelled", "Interrupted")


@dataclass(frozen=True)
class Job:
    """``state`` is ``waiting`` (for a boot), ``running``, ``ended`` or ``failed``.

    ``kind`` and ``start`` (a time of the BMC's own clock, without zone) are those of an iDRAC.
    """

    link: str
    state: str
    text: str
    kind: str = ""
    start: str = ""

    @property
    def is_of_bios(self) -> bool:
        """Whether it brings BIOS settings into force."""
        return "BIOS" in self.kind


class Jobs:
    """The jobs of the manager of a system; where it has no list of them, tasks only."""

    def __init__(self, client: Client, system: Answer) -> None:
        self._client, self._system = client, system

    @functools.cached_property
    def _list(self) -> str:
        return link_at(self._manager, *_where(self._manager))

    @functools.cached_property
    def _manager(self) -> object:
        """The manager that has jobs, or None."""
        every = managers(self._client, self._system)
        return next((manager.data for manager in every if _where(manager.data)), None)

    @property
    def link(self) -> str:
        """Where they are read all at once, if the BMC has a list of them."""
        return self._list and self._list + expanded(self._client)

    @property
    def are_listed(self) -> bool:
        """Whether what is pending needs a job here."""
        return bool(self._list)

    def find(self, link: str) -> Job | None:
        """A job or task; None if the BMC has it no more."""
        answer = self._client.find(link)
        return _job(link, answer.data, answer.status) if answer else None

    def of_bios(self) -> list[Job]:
        """The jobs of the BIOS that wait or run, the latest first."""
        jobs = [job for job in self._open() if job.is_of_bios]
        return sorted(jobs, key=lambda job: job.start, reverse=True)

    def foreign(self) -> list[str]:
        """What else a reboot would start or break off, each as one text: updates of firmware.

        What is to begin later is none of that yet.
        """
        now = text_at(self._manager, "DateTime")
        return [
            f"{job.kind} {last_part(job.link)} ({job.text})"
            for job in self._open()
            if not job.is_of_bios and (job.state == "waiting" or "Firmware" in job.kind)
            if not _is_later(job.start, now)
        ]

    def _open(self) -> list[Job]:
        """All that wait or run. Numbers say nothing: they begin anew every few years."""
        if not self._list:
            return []
        every = list(members(self._client, self.link))
        self._client.read_ahead(link_at(one) for one in every if is_link(one))
        listed = [(one, whole(self._client, one)) for one in every]
        jobs = [_job(link_at(one), data, 200) for one, data in listed]
        return [job for job in jobs if job.state in ("waiting", "running")]

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


def _where(manager: object) -> tuple[str, ...]:
    """Where an iDRAC links its jobs (openstack/sushy-oem-idrac, manager.py), or ()."""
    places = (("Links", "Oem", "Dell", "Jobs"), ("Oem", "Dell", "Jobs"))
    return next((place for place in places if link_at(manager, *place)), ())


def _is_later(start: str, now: str) -> bool:
    """Whether a time is after another, both without their zones: "TIME_NOW" is not."""
    length = len("2027-01-31T12:00:00")
    return start[:1].isdigit() and now[:1].isdigit() and start[:length] > now[:length]


def _job(link: str, data: object, status: int) -> Job:
    # The task of an iDRAC is "Starting" for as long as its job waits.
    dell = text_at(data, "JobState") or text_at(data, "Oem", "Dell", "JobState")
    state = dell or text_at(data, "TaskState")
    texts = [text_at(data, "Message"), *(message.text for message in messages_of(data))]
    text = ": ".join(filter(None, (state, next(filter(None, texts), ""))))
    kind, start = text_at(data, "JobType"), text_at(data, "StartTime")
    return Job(link, _state(state, at(data, "TaskStatus"), status), text, kind, start)


def _state(state: str, health: object, status: int) -> str:
    if not state:
        # A task monitor answers 202 until the task has ended.
        return "waiting" if status == 202 else "ended"
    if state in _BAD or "Fail" in state or "Error" in state:
        return "failed"
    if state in _ENDED:
        return "failed" if health in ("Warning", "Critical") else "ended"
    return "waiting" if state in _WAITING else "running"
