# SPDX-License-Identifier: Apache-2.0
"""Redfish: a request to one machine's BMC in, the answer out."""

from __future__ import annotations

import base64
import binascii
import gzip
import secrets
from collections.abc import Mapping
from dataclasses import replace

from . import faults, messages, resources
from .exchange import Answer, Request
from .jobs import Job
from .machine import Machine
from .messages import Refused

APPLY_TIME = "@Redfish.SettingsApplyTime"


class Service:
    """Answers for any machine; all have the same user."""

    def __init__(self, username: str, password: str) -> None:
        self.username = username
        self._password = password

    def handle(
        self, machine: Machine, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the answer; what the machine was asked to do is done."""
        lower = {name.lower(): value for name, value in headers.items()}
        with machine.lock:
            machine.log.append((method, path))
            machine.advance()
            request = Request(method, path, lower, body)
            try:
                answer = faults.instead(machine, request) or self._answer(machine, request)
            except Refused as refused:
                answer = _refusal(machine, refused)
            return _on_the_wire(machine, answer)

    def _answer(self, machine: Machine, request: Request) -> Answer:
        name, item = resources.locate(machine.personality, request.path)
        request = replace(request, name=name, item=item)
        if (request.method, name) == ("POST", "sessions"):
            return self._log_in(machine, request)
        if name != "root":
            self._expect_login(machine, request)
        if request.method == "GET":
            return _redirect(machine, request) or _read(machine, request)
        change = _CHANGES.get((request.method, name))
        if change is None:
            raise Refused("not_allowed")
        return change(machine, request)

    def _log_in(self, machine: Machine, request: Request) -> Answer:
        login = request.json()
        self._check(machine, login.get("UserName"), login.get("Password"))
        session = machine.sessions.open(self.username)
        location = resources.link(machine.personality, "sessions", session.id)
        if machine.personality.absolute_locations:
            location = f"https://{request.headers.get('host')}{location}"
        headers = {"X-Auth-Token": session.token, "Location": location}
        return Answer(201, resources.read(machine, "session", session.id), headers)

    def _expect_login(self, machine: Machine, request: Request) -> None:
        scheme, _, rest = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "basic":
            try:
                user, _, password = base64.b64decode(rest).decode().partition(":")
            except (binascii.Error, ValueError):
                raise Refused("malformed") from None
            self._check(machine, user, password)
        elif not machine.sessions.knows(request.headers.get("x-auth-token", "")):
            raise Refused("no_session")

    def _check(self, machine: Machine, user: object, password: object) -> None:
        given = f"{user}\n{password}".encode()
        right = secrets.compare_digest(given, f"{self.username}\n{self._password}".encode())
        if not right or "refuses" in machine.faults:
            machine.refused_logins += 1
            raise Refused("login_refused", resources.SHARED["sessions"])


def _redirect(machine: Machine, request: Request) -> Answer | None:
    path, mark, query = request.path.partition("?")
    if not machine.personality.slashes or path.endswith("/"):
        return None
    return Answer(308, None, {"Location": f"{path}/{mark}{query}"})


def _read(machine: Machine, request: Request) -> Answer:
    body = resources.read(machine, request.name, request.item)
    if request.name == "jobs" and "$expand" in request.path:
        ids = [job.id for job in machine.jobs]
        body["Members"] = [resources.read(machine, "job", identity) for identity in ids]
    status = 200
    if request.name == "task" and resources.find_job(machine, request.item).open:
        status = 202
    headers = {"ETag": resources.etag(machine.personality, body)}
    return faults.lie(machine, request.name, Answer(status, body, headers))


def _patch_settings(machine: Machine, request: Request) -> Answer:
    personality = machine.personality
    _expect_etag(machine, request)
    wanted = request.json()
    apply_time = wanted.pop(APPLY_TIME, None)
    if apply_time is not None and not _may_apply(machine, apply_time):
        raise Refused("unknown", APPLY_TIME)
    attributes = wanted if personality.flat else wanted.pop("Attributes", None)
    if not isinstance(attributes, dict):
        raise Refused("malformed")
    if wanted and not personality.flat:
        raise Refused("unknown", next(iter(wanted)))
    job = machine.stage(attributes, scheduled=apply_time is not None)
    if job is not None:
        return _accepted(machine, job)
    if personality.patch_status == 204:
        return Answer(204)
    return _said(machine, "success" if personality.jobs else "reset_required")


def _may_apply(machine: Machine, apply_time: object) -> bool:
    """Only at a reset: what else a vendor's list names is not simulated."""
    asked = apply_time.get("ApplyTime") if isinstance(apply_time, dict) else None
    return asked == "OnReset" and asked in machine.personality.apply_times


def _expect_etag(machine: Machine, request: Request) -> None:
    asked = request.headers.get("if-match")
    body = resources.read(machine, request.name, request.item)
    if asked is None and machine.personality.needs_etag:
        raise Refused("etag_missing")
    if asked not in (None, "*", resources.etag(machine.personality, body)):
        raise Refused("etag_wrong")


def _accepted(machine: Machine, job: Job) -> Answer:
    return Answer(202, None, {"Location": resources.link(machine.personality, "tasks", job.id)})


def _said(machine: Machine, key: str) -> Answer:
    body = messages.body(machine.personality, key, [])
    return Answer(messages.status(machine.personality, key), body)


def _reset(machine: Machine, request: Request) -> Answer:
    machine.reset(f"{request.json().get('ResetType')}")
    if machine.personality.reset_status == 204:
        return Answer(204)
    return _said(machine, "success")


def _create_job(machine: Machine, request: Request) -> Answer:
    target = request.json().get("TargetSettingsURI")
    if target != machine.personality.paths["settings"] or not machine.pending:
        raise Refused("parameter", target, "Jobs")
    job = machine.schedule()
    location = resources.link(machine.personality, "jobs", job.id)
    return Answer(200, _said(machine, "success").body, {"Location": location})


def _delete_job(machine: Machine, request: Request) -> Answer:
    machine.cancel(resources.find_job(machine, request.item))
    return _said(machine, "success")


def _clear_pending(machine: Machine, request: Request) -> Answer:
    machine.cancel(None)
    return _said(machine, "success")


def _log_out(machine: Machine, request: Request) -> Answer:
    resources.read(machine, "session", request.item)
    machine.sessions.close(request.item)
    return _said(machine, "success")


_CHANGES = {
    ("PATCH", "settings"): _patch_settings,
    ("POST", "reset"): _reset,
    ("POST", "jobs"): _create_job,
    ("DELETE", "job"): _delete_job,
    ("POST", "clear"): _clear_pending,
    ("DELETE", "session"): _log_out,
}


def _refusal(machine: Machine, refused: Refused) -> Answer:
    body = messages.body(machine.personality, refused.key, refused.arguments)
    return Answer(messages.status(machine.personality, refused.key), body)


def _on_the_wire(machine: Machine, answer: Answer) -> tuple[int, dict[str, str], bytes]:
    headers = {"OData-Version": "4.0", "Cache-Control": "no-cache", **answer.headers}
    if answer.body is None:
        return answer.status, headers, b""
    body = faults.text(machine, answer.body)
    headers["Content-Type"] = "application/json;charset=utf-8"
    if machine.personality.gzip_registry and "RegistryEntries" in answer.body:
        headers["Content-Encoding"] = "gzip"
        body = gzip.compress(body, mtime=0)
    return answer.status, headers, body
