# SPDX-License-Identifier: Apache-2.0
"""A fleet with rollouts that are under way or have ended, and what steps ask of its records; for
``fleet``.

    python -m bench._fleet_site FOLDER POPS LIVE ENDED ROUNDS

The first PoP always has a rollout under way, and the last one never. With LIVE, which is 0 or 1,
all others have.
"""

from __future__ import annotations

import json
import os
import resource
import sqlite3
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

from edgetune import RECORD_SCHEMA
from edgetune.base.documents.baseline import Baseline, Facts, Load
from edgetune.base.documents.batch import Batch, HostStep, batch_key
from edgetune.base.documents.head import Entry, Head, archive_key, head_key
from edgetune.base.documents.options import Options
from edgetune.base.documents.past import Past, past_key
from edgetune.base.documents.plan import Proof
from edgetune.base.documents.settings import SettingRow
from edgetune.base.errors import EdgetuneError
from edgetune.fleet.campaign.control import run_campaign
from edgetune.fleet.export.state import export_metrics
from edgetune.intent.plan import make_plan
from edgetune.intent.rendering import render
from edgetune.report.files import write_page
from edgetune.report.steps.rollout_status import rollout_status
from edgetune.rollout.context import Context
from edgetune.rollout.guard import Guard
from edgetune.rollout.record.archive import _standing, past_with
from edgetune.rollout.steps.check_health import check_health
from edgetune.rollout.steps.drain_hosts import drain_hosts
from edgetune.rollout.steps.find_orphans import find_orphans
from edgetune.rollout.steps.plan_rollout import plan_rollout
from edgetune.rollout.steps.sample_running import sample_running
from edgetune.rollout.steps.set_rollout_state import set_rollout_state

HOSTS = 20
_PAGE = 100
_TOGETHER = 250
_COUNTERS = ("rx_packets", "rx_dropped", "tcp_segments_out", "tcp_retransmits")
_LONG_AGO = 400 * 86400.0
_TUNING = "accept_queue"
_WORDS = ("claimed", "baseline", "changing", "soaking", "promoting")


class Counted:
    """A store that counts requests as StackStorm's API would get them."""

    def __init__(self, store: Any) -> None:
        self._store, self.requests = store, 0

    def list(self, prefix: str) -> Mapping[str, str]:
        found: Mapping[str, str] = self._store.list(prefix)
        self.requests += 1 + len(found) // _PAGE
        return found

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def asked(*given: Any) -> Any:
            self.requests += 1
            return method(*given)

        return asked


class CannedHosts:
    """Hosts that are sampled at once, and answer nothing else."""

    def ask(self, hosts: Any, *more: Any, **named: Any) -> dict[str, Any]:
        from edgetune.net.result import HostResult

        return {host.name: HostResult(host.name, error="away", reason="failed") for host in hosts}

    def ask_in_parts(
        self, hosts: Sequence[Any], verb: str, request: Callable[[Any], object], **more: Any
    ) -> Iterator[list[Any]]:
        from edgetune.net.result import HostResult

        counters = dict.fromkeys(_COUNTERS, 1000000)
        told = {"boot_id": "b", "uptime": time.monotonic(), "counters": counters}
        told.update(gauges={"drifted": 0}, drift=[], health="", log="")
        for start in range(0, len(hosts), _TOGETHER):
            part = hosts[start : start + _TOGETHER]
            for host in part:
                request(host)
            yield [(host, HostResult(host.name, told)) for host in part]

    def lost_connections(self, *given: Any) -> dict[str, str]:
        return {}


def write_site(folder: Path, pops: Sequence[str]) -> None:
    """The files of a configuration."""
    described = {
        name: {
            "load_balancer": {
                "driver": "haproxy",
                "address": f"tcp://127.{number // 250}.{number % 250}.1:9",
                "backend": "edges",
            },
            "health": "http://127.0.0.1:9/",
            "min_in_service": 0.5,
            "hosts": {
                f"{name}-{n}": {"address": f"127.{number // 250 + 8}.{number % 250}.{n + 1}"}
                for n in range(HOSTS)
            },
        }
        for number, name in enumerate(pops, 1)
    }
    ring = {"name": "all", "pops": [*pops[-2:]]}
    files: dict[str, Any] = {
        "inventory.yaml": {"pops": described},
        "campaigns/queue.yaml": {"name": "queue", "tuning": _TUNING, "rings": [ring]},
        "key": "",
        "known_hosts": "",
    }
    for name, document in files.items():
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(document), encoding="utf-8")
        file.chmod(0o600)


def opened(folder: Path) -> Any:
    """The context of the configuration in a folder."""
    state = f"sqlite:///{folder}/state.sqlite"
    context = Context(
        {
            "inventory": str(folder / "inventory.yaml"),
            "campaigns": [str(folder / "campaigns")],
            "ssh_key_file": str(folder / "key"),
            "ssh_known_hosts": str(folder / "known_hosts"),
            "records": state,
            "coordination": state,
            "metrics_file": str(folder / "metrics.prom"),
            "report_dir": str(folder / "reports"),
        }
    )
    hosts: Any = CannedHosts()
    context.fleet = hosts
    return context


def fill(context: Any, pops: Sequence[str], living: Sequence[str], ended: int) -> str:
    """Write the rollouts: those under way on the PoPs of ``living``, and as many as have ``ended``,
    in turn on each PoP. The id of the first one comes back."""
    context.store.list("edgetune.")
    database = sqlite3.connect(context.config.records[len("sqlite:///") :])
    with database:
        write = "INSERT OR REPLACE INTO records VALUES (?, ?)"
        for number, pop in enumerate(pops):
            turns = range(len(range(number, ended, len(pops))))
            database.executemany(write, _past_rows(pop, turns))
        for number, pop in enumerate(living):
            database.executemany(write, _living_rows(context, pop, number))
    database.close()
    ids: list[str] = []
    for pop in living:
        (key,) = context.store.list(f"edgetune.rollout.{pop}-")
        ids.append(key[len("edgetune.rollout.") :])
        # Its owner was seen just now.
        above = json.loads(context.store.get(key))["epoch"] - 1
        context.claims.take(pop, ids[-1], 86400.0, above=above)
    return ids[0]


def _head(pop: str, state: str, **more: Any) -> Any:

    now = time.time()
    at = now - (60.0 if state in _WORDS else _LONG_AGO)
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(at))
    upto = _WORDS.index(state) + 1 if state in _WORDS else len(_WORDS)
    words = [*_WORDS[:upto], *([state] if state not in _WORDS else [])]
    known = {"plan": "", "epoch": 1, **more}
    return Head(
        id=f"{pop}-{stamp}-0000",
        pop=pop,
        tuning=_TUNING,
        state=state,
        owner="",
        by="ana",
        created=at,
        history=[Entry(at + n, word, "ana", "as its step decided") for n, word in enumerate(words)],
        **known,
    )


def _past_rows(pop: str, turns: Sequence[int]) -> Iterator[tuple[str, str]]:
    """Heads as the sweep leaves them, and what it writes of their PoP."""
    # To make each of them anew would take longer than all that is measured.
    made = {state: _head(pop, state) for state in ("complete", "rolled_back")}
    texts = {state: own.document() for state, own in made.items()}
    heads = []
    for turn in turns:
        own = made["complete" if turn % 5 else "rolled_back"]
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(own.created + 900.0 * turn))
        heads.append(replace(own, id=f"{pop}-{stamp}-{turn % 65536:04x}"))
        yield archive_key(heads[-1].id), texts[own.state].replace(own.id, heads[-1].id)
    if heads:
        yield past_key(pop), _past_of(pop, heads).document()


def _past_of(pop: str, heads: Sequence[Any]) -> Any:

    epoch, last = max(head.epoch for head in heads), max(head.id for head in heads)
    return past_with(Past(epoch, last, _standing(heads), tallies={}), heads, {})


def _living_rows(context: Any, pop: str, number: int) -> Iterator[tuple[str, str]]:
    """A rollout that is changing hosts, or in its soak, with all that it has written down so far.

    The groups of a plan are drawn; all PoPs here have those of the first one.
    """
    here, tuning = context.inventory.pop(pop), context.tuning(_TUNING)
    rendered = {host.name: render(tuning, {}) for host in here.hosts}
    rows = [SettingRow(s.id, "change", "8", "8", str(s.value), "") for s in [*rendered.values()][0]]
    proofs = {host.name: Proof(host.address, "interface", "") for host in here.hosts}
    seen, wanted = dict.fromkeys(rendered, rows), Options(seed=7).checked()
    plan = make_plan(here, tuning, rendered, seen, wanted, proofs, {})
    yield f"edgetune.plan.{plan.digest}", json.dumps(plan.document())
    now, soaks = time.time(), number % 2 == 1
    more: dict[str, Any] = {"plan": plan.digest, "baseline": [now - 7200, now - 3600]}
    more["soak"] = [now - 60, now + 86400] if soaks else []
    head = replace(_head(pop, "soaking" if soaks else "changing"), **more)
    yield head_key(head.id), head.document()
    hosts, whole = [host.name for host in here.hosts], {"schema": RECORD_SCHEMA, "rollout": head.id}
    facts = Facts({}, {}, {}, {}, {}, Load(1.0, 1.0), {})
    usual = Baseline(now - 7200, now - 3600, 60.0, hosts, {}, facts, health=dict.fromkeys(hosts, 5))
    yield f"edgetune.baseline.{head.id}", json.dumps({**usual.document(), **whole})
    for place, own in enumerate(plan.batches if soaks else ()):
        steps = {host: HostStep("done", at=now - 120) for host in own.hosts}
        batch = Batch(head.id, place, own.batch_type, own.group, steps)
        yield batch_key(head.id, place), batch.document()


def steps(pops: Sequence[str], rollout: str) -> dict[str, Callable[[Any], object]]:
    """What is measured, by name: of one PoP, then of the fleet."""
    free, guard = pops[-1], Guard(sys.exit)

    def epoch(context: Any) -> int:
        return int(json.loads(context.store.get(f"edgetune.rollout.{rollout}"))["epoch"])

    def page(context: Any) -> None:
        write_page(context, Path(context.config.report_dir) / "page.html", "")

    return {
        "PoP: plan_rollout, the first of all": lambda c: plan_rollout(c, free, _TUNING),
        "PoP: plan_rollout": lambda c: plan_rollout(c, free, _TUNING),
        "PoP: set_rollout_state": lambda c: set_rollout_state(c, rollout, epoch(c), "changing"),
        "PoP: drain_hosts": lambda c: drain_hosts(c, rollout, epoch(c), 0),
        "PoP: check_health": lambda c: check_health(c, rollout, epoch(c), 0),
        "PoP: rollout_status": lambda c: rollout_status(c, pop=pops[0]),
        "fleet: campaign of 2 PoPs, dry run": lambda c: run_campaign(c, "queue"),
        "fleet: rollout_status": rollout_status,
        "fleet: find_orphans": find_orphans,
        "fleet: a look of the guard": lambda c: [*guard.look(c)],
        "fleet: sample_running": sample_running,
        "fleet: export_metrics": export_metrics,
        "fleet: a page, and the index": page,
    }


def measured(folder: Path, step: Callable[[Any], object], rounds: int) -> dict[str, float]:
    """Run a step in this process, which ends with it; each round begins as an action does."""
    requests, took = 0, []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(rounds):
        context = opened(folder)
        counted = context.store = Counted(context.store)
        began = time.process_time()
        # As no load balancer answers.
        try:
            step(context)
        except EdgetuneError as error:
            print(error, file=sys.stderr)
        took.append(1000 * (time.process_time() - began))
        requests = counted.requests
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"requests": requests, "cpu_ms": min(took), "mb": grown / 1000}


def main(folder: str, count: str, live: str, ended: str, rounds: str) -> None:
    """Print the figures as JSON."""
    place, pops = Path(folder), [f"p{number:04}" for number in range(int(count))]
    write_site(place, pops)
    (place / "reports").mkdir()
    child = os.fork()
    if not child:
        # So that what is written first is no part of the memory of steps.
        (place / "rollout").write_text(
            fill(opened(place), pops, pops[:-1] if int(live) else pops[:1], int(ended))
        )
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit("the records could not be written")
    rows = []
    for name, step in steps(pops, (place / "rollout").read_text()).items():
        ends = os.pipe()
        if not os.fork():
            figures = measured(place, step, 1 if name.endswith("first of all") else int(rounds))
            os.write(ends[1], json.dumps({"step": name, **figures}).encode())
            os._exit(0)
        os.close(ends[1])
        with open(ends[0], encoding="utf-8") as told:
            rows.append(json.loads(told.read()))
        os.wait()
    print(json.dumps(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
