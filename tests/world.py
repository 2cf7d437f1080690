# SPDX-License-Identifier: Apache-2.0
"""A PoP with a rollout on it, whose load balancer and hosts a test controls."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

from edgetune.hosts.fleet import HostResult
from edgetune.rollout import change, drain, lifecycle, reboot
from edgetune.rollout.record import Batch, read_rollout, save_plan
from edgetune.rollout.site import Site
from edgetune.traffic.driver import Server
from tests.builders import inventory_document, observed, plan, write_yaml

_FIRST = (drain.drain_hosts, drain.check_drained, reboot.check_rebooted)
_LAST = (
    reboot.reboot_hosts,
    reboot.check_rebooted,
    change.verify_hosts,
    drain.undrain_hosts,
)
_WAYS = {
    "change": (*_FIRST, change.apply_tuning, *_LAST),
    "sham": (*_FIRST, *_LAST),
    "restore": (*_FIRST, change.restore_hosts, *_LAST),
}

CHANGING_VERBS = ("apply", "confirm", "restore", "reboot")


class Balancer:
    """A load balancer in memory."""

    def __init__(self) -> None:
        self.state = {f"e{i:03d}": "ready" for i in range(8)}
        self.up = dict.fromkeys(self.state, True)
        self.sessions = dict.fromkeys(self.state, 0)
        self.log: list[tuple[str, str]] = []

    def servers(self) -> Mapping[str, Server]:
        return {
            name: Server(name, state, self.up[name], self.sessions[name])
            for name, state in self.state.items()
        }

    def set_state(self, server: str, state: str) -> None:
        self.log.append((server, state))
        self.state[server] = state


class Hosts:
    """Hosts that answer as agents do, from a few facts each."""

    def __init__(self) -> None:
        self.boot = dict.fromkeys((f"e{i:03d}" for i in range(8)), "boot-1")
        self.tuned: set[str] = set()
        self.errors: dict[tuple[str, str], str] = {}
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.health_ms = 1.0

    def ask(self, hosts: Any, verb: str, request: Any, timeout: float = 0) -> dict[str, HostResult]:
        return {host.name: self._one(host.name, verb, request(host)) for host in hosts}

    def changing(self) -> list[str]:
        """Verbs so far that can change a host."""
        return [verb for _, verb, _ in self.asked if verb in CHANGING_VERBS]

    def _one(self, name: str, verb: str, request: dict[str, Any]) -> HostResult:
        self.asked.append((name, verb, request))
        if (name, verb) in self.errors:
            return HostResult(name, error=self.errors[name, verb], reason="failed")
        data = getattr(self, "_" + verb)(name)
        return HostResult(name, data={"boot_id": self.boot[name], **data})

    def _facts(self, name: str) -> dict[str, Any]:
        return {}

    def _apply(self, name: str) -> dict[str, Any]:
        changed = name not in self.tuned
        self.tuned.add(name)
        return {"changed": changed, "diff": []}

    def _restore(self, name: str) -> dict[str, Any]:
        changed = name in self.tuned
        self.tuned.discard(name)
        return {"changed": changed, "nothing_to_restore": not changed}

    def _confirm(self, name: str) -> dict[str, Any]:
        return {"confirmed": name in self.tuned, "settings": [], "state": "none"}

    def _plan(self, name: str) -> dict[str, Any]:
        (row,) = observed(name)
        now = row["wanted"] if name in self.tuned else row["runtime"]
        status = "noop" if name in self.tuned else "change"
        return {"settings": [{**row, "status": status, "runtime": now, "persistent": now}]}

    def _reboot(self, name: str) -> dict[str, Any]:
        return {"rebooting": True}

    def _sample(self, name: str) -> dict[str, Any]:
        gauges = {"health_failed": 0, "health_p50_ms": self.health_ms}
        return {"uptime": 1.0, "counters": {"listen_drops": 0}, "gauges": gauges}


class World:
    """A site with one rollout on it."""

    def __init__(self, folder: Path, **planned: Any) -> None:
        state = f"sqlite:///{folder}/state.sqlite"
        inventory = write_yaml(folder / "inventory.yaml", inventory_document())
        self.config = {
            "inventory": str(inventory),
            "ssh_key_file": "/none",
            "ssh_known_hosts": "/none",
            "records": state,
            "coordination": state,
            "drain_deadline": 1,
            "reboot_deadline": 1,
            "health_deadline": 1,
        }
        self.balancer, self.hosts = Balancer(), Hosts()
        self.site = Site(self.config)
        self.site.fleet = self.hosts  # type: ignore[assignment]
        self.site.load_balancer = lambda pop: self.balancer  # type: ignore[method-assign]
        self.plan = plan(folder, **planned)
        save_plan(self.site, self.plan)
        begun = lifecycle.claim_pop(self.site, plan=self.plan["digest"], owner="run-1", by="ana")
        self.rollout, self.epoch = begun["rollout"], begun["epoch"]

    def mark(self, state: str) -> dict[str, Any]:
        marked = lifecycle.mark_rollout(self.site, self.rollout, self.epoch, state)
        self.epoch = marked["epoch"]
        return marked

    def step(self, function: Any, batch: int, **more: Any) -> dict[str, Any]:
        result: dict[str, Any] = function(self.site, self.rollout, self.epoch, batch, **more)
        return result

    def batch(self, number: int) -> Batch:
        return read_rollout(self.site, self.rollout).batch(number)

    def at(self, batch: int) -> dict[str, str]:
        return {name: host.step for name, host in self.batch(batch).hosts.items()}

    def age(self, batch: int, seconds: float = 60) -> None:
        """The last step of each host of a batch lies that much longer back."""
        opened = read_rollout(self.site, self.rollout)
        work = opened.batch(batch)
        for host in work.hosts.values():
            host.at -= seconds
        opened.save_batch(work)

    def boot(self, batch: int) -> None:
        """The hosts of a batch that were told to reboot do so."""
        for name in self.batch(batch).at("rebooting"):
            self.hosts.boot[name] += "+"

    def roll(self, batch: int, until: Any = None) -> None:
        """One batch the whole way, or up to the step ``until`` and without it."""
        for step in takewhile(lambda step: step is not until, _WAYS[self.batch(batch).what]):
            self.step(step, batch)
            if step is reboot.reboot_hosts:
                self.boot(batch)
