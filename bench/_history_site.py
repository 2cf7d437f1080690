# SPDX-License-Identifier: Apache-2.0
"""A fleet of 200 PoPs with ended rollouts, and what steps ask of its records; for ``history``.

    _history_site.py LIBRARY FOLDER NUMBER ROUNDS

It is run beside libraries of other commits too, so it imports only what these have.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable

POPS = [f"p{number:03}" for number in range(200)]
_PAGE = 100
_LONG_AGO = 40 * 86400.0


class Counted:
    """A store that counts requests as StackStorm's API would get them, and texts of lists."""

    def __init__(self, store: Any) -> None:
        self._store, self.requests, self.texts = store, 0, 0

    def list(self, prefix: str) -> Mapping[str, str]:
        found: Mapping[str, str] = self._store.list(prefix)
        self.requests += 1 + len(found) // _PAGE
        self.texts += len(found)
        return found

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def asked(*given: Any) -> Any:
            self.requests += 1
            return method(*given)

        return asked


class NoHosts:
    """No host answers."""

    def ask(self, hosts: Any, *more: Any, **named: Any) -> dict[str, Any]:
        from edgetune.net.result import HostResult

        return {host.name: HostResult(host.name, error="away", reason="failed") for host in hosts}

    def ask_in_parts(self, hosts: Any, *more: Any, **named: Any) -> Iterator[list[Any]]:
        for host in hosts:
            yield [(host, self.ask([host])[host.name])]

    def lost_connections(self, *given: Any) -> dict[str, str]:
        return {}


def site(folder: Path) -> Any:
    """The context of a configuration in a folder."""
    from edgetune.rollout.context import Context

    state = f"sqlite:///{folder}/state.sqlite"
    pops = {
        name: {
            "load_balancer": {
                "driver": "haproxy",
                "address": f"tcp://127.{number}.1.1:9",
                "backend": "edges",
            },
            "health": "http://127.0.0.1:9/",
            "min_in_service": 0.5,
            "hosts": {f"{name}-{n}": {"address": f"127.{number}.9.{n + 1}"} for n in range(4)},
        }
        for number, name in enumerate(POPS, 1)
    }
    ring = {"name": "all", "pops": POPS[:2]}
    files: dict[str, Any] = {
        "inventory.yaml": {"pops": pops},
        "campaigns/queue.yaml": {"name": "queue", "tuning": "accept_queue", "rings": [ring]},
        "key": "",
        "known_hosts": "",
    }
    for name, document in files.items():
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(document), encoding="utf-8")
        file.chmod(0o600)
    context = Context(
        {
            "inventory": str(folder / "inventory.yaml"),
            "campaigns": [str(folder / "campaigns")],
            "ssh_key_file": str(folder / "key"),
            "ssh_known_hosts": str(folder / "known_hosts"),
            "records": state,
            "coordination": state,
        }
    )
    hosts: Any = NoHosts()
    context.fleet = hosts
    return context


def fill(context: Any, number: int) -> None:
    """Ended rollouts, in turn on each PoP; the library's own sweep moves them, if it has one."""
    from edgetune.base.documents.head import Entry, Head, head_key
    from edgetune.rollout.steps.find_orphans import find_orphans

    began, rows = time.time() - _LONG_AGO, []
    for each in range(number):
        pop, turn = POPS[each % len(POPS)], each // len(POPS)
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(began + turn))
        state = "complete" if each % 5 else "rolled_back"
        words = ("claimed", "baseline", "changing", "soaking", "promoting", state)
        head = Head(
            id=f"{pop}-{stamp}-{turn % 65536:04x}",
            pop=pop,
            tuning="accept_queue",
            plan="",
            state=state,
            epoch=turn + 1,
            owner="",
            by="ana",
            created=began + turn,
            history=[Entry(began + turn, word, "ana", "as its step decided") for word in words],
        )
        rows.append((head_key(head.id), head.document()))
    context.store.list("edgetune.")
    with sqlite3.connect(context.config.records[len("sqlite:///") :]) as db:
        db.executemany("INSERT INTO records VALUES (?, ?)", rows)
    while find_orphans(context).get("archived"):
        pass


def steps(context: Any) -> dict[str, Callable[[], object]]:
    """What is measured, by name."""
    from edgetune.fleet.campaign.control import run_campaign
    from edgetune.report.steps.rollout_status import rollout_status
    from edgetune.rollout.guard import Guard
    from edgetune.rollout.steps.find_orphans import find_orphans
    from edgetune.rollout.steps.plan_rollout import plan_rollout

    return {
        "plan_rollout": lambda: plan_rollout(context, POPS[0], "accept_queue"),
        "rollout_status": lambda: rollout_status(context),
        "rollout_status of a PoP": lambda: rollout_status(context, pop=POPS[0]),
        "find_orphans": lambda: find_orphans(context),
        "a look of the guard": lambda: [*Guard(lambda problem: None).look(context)],
        "campaign of 2 PoPs, dry run": lambda: run_campaign(context, "queue"),
    }


def main(library: str, folder: str, number: str, rounds: str) -> None:
    """Print the figures as JSON."""
    sys.path.insert(0, library)
    from edgetune.base.errors import EdgetuneError

    context = site(Path(folder))
    fill(context, int(number))
    counted = context.store = Counted(context.store)
    rows = []
    for name, step in steps(context).items():
        took = []
        for _ in range(int(rounds)):
            context.__dict__.pop("strays", None)
            counted.requests = counted.texts = 0
            began = time.process_time()
            # As no load balancer answers.
            with suppress(EdgetuneError):
                step()
            took.append(1000 * (time.process_time() - began))
        asked = {"requests": counted.requests, "texts": counted.texts}
        rows.append({"step": name, **asked, "cpu_ms": min(took)})
    print(json.dumps(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
