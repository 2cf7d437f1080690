# SPDX-License-Identifier: Apache-2.0
"""Alertmanagers for tests: that of this machine's package, and one in memory that can fail.

The one in memory answers as version 0.25 does, as far as edgetune asks.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import ended, free_port, started
from tests.support.prometheus_api import Api, Reply

PROGRAM = "prometheus-alertmanager"
needs_alertmanager = [
    pytest.mark.processes,
    pytest.mark.skipif(not shutil.which(PROGRAM), reason=f"{PROGRAM} is not installed"),
]
_CONFIG = "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n"
_PATIENCE = 60.0

Answer = Callable[[str, str], Reply]
"""By method and path."""


class Silenced:
    """What both tell a test of their silences."""

    url: str

    def silences(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    def active(self) -> dict[str, dict[str, Any]]:
        """By the value of their first matcher; of two with one value the last."""
        stand = [each for each in self.silences() if each["status"]["state"] == "active"]
        return {each["matchers"][0]["value"]: each for each in stand}


class InMemory(Api, Silenced):
    """A server on loopback. ``ahead`` is by how many seconds its clock is, ``slow`` how many an
    answer takes, ``says`` what it answers instead of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead, self.slow = 0.0, 0.0
        self.says: Answer | None = None
        self.kept: dict[str, dict[str, Any]] = {}
        self.answer = self._answered
        self.begin()

    def _answered(self, asked: Mapping[str, Any]) -> Reply:
        method, _, target = self.lines[-1].partition(" ")
        time.sleep(self.slow)
        path = target.partition("?")[0]
        reply = self.says(method, path) if self.says else self.own(method, path, asked)
        date = formatdate(time.time() + self.ahead, usegmt=True)
        return replace(reply, headers={**reply.headers, "Date": date})

    def silences(self) -> list[dict[str, Any]]:
        now = time.time() + self.ahead
        return [{**own, "status": {"state": _state(own, now)}} for own in self.kept.values()]

    def own(self, method: str, path: str, asked: Mapping[str, Any]) -> Reply:
        """As it answers by itself."""
        if method == "GET":
            wanted = asked.get("filter", "")
            return say(200, [own for own in self.silences() if _passes(own, wanted)])
        if method == "POST":
            known = asked.get("id", "") in ("", *self.kept)
            return say(200, {"silenceID": self._set(asked)}) if known else say(404, "not found")
        own = self.kept.get(path.rpartition("/")[2])
        if own:
            own["endsAt"] = min(own["endsAt"], _written(time.time() + self.ahead))
        return say(200 if own else 500, None)

    def _set(self, given: Mapping[str, Any]) -> str:
        before = self.kept.get(given.get("id", ""), {})
        now = _written(time.time() + self.ahead)
        same = before.get("matchers") == given["matchers"] and before["endsAt"] > now
        same &= before.get("startsAt") == given["startsAt"]
        id = given["id"] if same else f"id-{len(self.kept) + 1}"
        self.kept[id] = {**given, "id": id}
        return str(id)


def say(status: int, body: object) -> Reply:
    """An answer with a body of JSON, or with none."""
    return Reply(b"" if body is None else json.dumps(body).encode(), status)


def _state(silence: dict[str, Any], now: float) -> str:
    if silence["endsAt"] <= _written(now):
        return "expired"
    return "active" if silence["startsAt"] <= _written(now + 1) else "pending"


def _passes(silence: dict[str, Any], wanted: str) -> bool:
    """A filter is passed by a silence that has the matcher itself, not one like it."""
    signs = {True: "=", False: "!="}
    has = {f'{m["name"]}{signs[m["isEqual"]]}"{m["value"]}"' for m in silence["matchers"]}
    return not wanted or {*wanted.split(",")} <= has


def _written(moment: float) -> str:
    at = datetime.fromtimestamp(moment, timezone.utc)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Real(Silenced):
    """One process of the package, with a port of its own."""

    def __init__(self, folder: Path) -> None:
        place = f"127.0.0.1:{free_port()}"
        self.url = f"http://{place}"
        (folder / "alertmanager.yml").write_text(_CONFIG)
        command = [
            PROGRAM,
            f"--config.file={folder}/alertmanager.yml",
            f"--storage.path={folder}/data",
            "--cluster.listen-address=",
            f"--web.listen-address={place}",
        ]
        self.process = started(folder / "log", command, f"{self.url}/-/ready")

    def close(self) -> None:
        ended(self.process)

    def ask(self, path: str, body: object = None) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
            return bytes(answer.read())

    def silences(self) -> list[dict[str, Any]]:
        return list(json.loads(self.ask("/api/v2/silences")))

    def fire(self, **labels: str) -> None:
        """An alert begins, as Prometheus would say."""
        self.ask("/api/v2/alerts", [{"labels": labels}])

    def heard(self) -> list[str]:
        """The hosts whose alerts people are told of."""
        path = "/api/v2/alerts?silenced=false&active=true"
        return sorted(each["labels"]["host"] for each in json.loads(self.ask(path)))


@contextmanager
def in_memory() -> Iterator[InMemory]:
    made = InMemory()
    try:
        yield made
    finally:
        made.close()


@contextmanager
def real() -> Iterator[Real]:
    with tempfile.TemporaryDirectory(prefix="alertmanager-") as folder:
        made = Real(Path(folder))
        try:
            yield made
        finally:
            made.close()


EITHER = [
    pytest.param(in_memory, id="in_memory"),
    pytest.param(real, id="real", marks=needs_alertmanager),
]
"""Parameters of a fixture: what begins one, and ends it."""
