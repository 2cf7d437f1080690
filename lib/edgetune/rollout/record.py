# SPDX-License-Identifier: Apache-2.0
"""The record of a rollout: small documents that outlive every workflow.

edgetune.plan.DIGEST            the plan
edgetune.rollout.ID             the head: who, what, state, epoch, history
edgetune.batch.ID.NUMBER        one batch: where each host stands, written ahead of each step
edgetune.look.ID.NUMBER         one look: the verdict and its numbers
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

from edgetune import PACK, RECORD_SCHEMA
from edgetune.errors import InputError, RefusedError
from edgetune.inventory import Host, Pop
from edgetune.plan import read_plan
from edgetune.rollout.claims import Claim
from edgetune.rollout.site import Site

FORWARD = {
    "claimed": ("baseline", "rolling_back"),
    "baseline": ("changing", "rolling_back"),
    "changing": ("soaking", "rolling_back"),
    "soaking": ("promoting", "held", "rolling_back"),
    "held": ("soaking", "promoting", "rolling_back"),
    "promoting": ("complete", "rolling_back"),
    "complete": ("rolling_back",),
    "rolling_back": ("rolling_back", "rolled_back"),
    "rolled_back": (),
}
"""Which states may follow which."""

ENDED = ("complete", "rolled_back")
CARRIED_ON_BY_A_WORKFLOW = ("claimed", "baseline", "changing", "promoting", "rolling_back")

UNTOUCHED_STEPS = ("planned", "skipped")
STOP_KEY = f"{PACK}.stop_all"


@dataclass
class HostStep:
    """Where one host of a batch stands; written before the side effect that it names.

    ``ours`` marks a host that carried our change when its way back began.
    """

    step: str = "planned"
    at: float = 0.0
    reboot: bool = False
    ours: bool = False
    lb_before: str | None = None
    boot_before: str | None = None
    error: str | None = None

    def go(self, step: str, error: str | None = None) -> None:
        """The host is now at ``step``."""
        self.step, self.at, self.error = step, time.time(), error


@dataclass
class Batch:
    """Hosts that take the same way together; ``what`` is change, sham or restore."""

    rollout: str
    number: int
    what: str
    group: str
    hosts: dict[str, HostStep]

    def at(self, *steps: str) -> list[str]:
        """Names of the hosts that stand at one of these steps."""
        return [name for name, host in self.hosts.items() if host.step in steps]


@dataclass
class Head:
    """The rollout as a whole; ``baseline`` and ``soak`` are [start, end] in epoch seconds."""

    id: str
    pop: str
    tuning: str
    plan: str
    state: str
    epoch: int
    owner: str
    by: str
    created: float
    baseline: list[float] = field(default_factory=list)
    soak: list[float] = field(default_factory=list)
    looks: int = 0
    verdict: dict[str, Any] = field(default_factory=dict)
    first_restore: int = 0
    restore_batches: int = 0
    quarantined: dict[str, str] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)

    def enter(self, state: str, by: str, reason: str) -> None:
        """Change the state; RefusedError if it cannot follow the present one."""
        if state not in FORWARD[self.state]:
            raise RefusedError(f"rollout {self.id} is {self.state}; it cannot become {state}")
        self.state = state
        self.note(by, reason)

    def note(self, by: str, reason: str) -> None:
        """Write down who did or decided what."""
        entry = {"at": time.time(), "state": self.state, "by": by, "reason": reason}
        self.history.append(entry)


class Rollout:
    """One rollout's record, with its plan and its PoP."""

    def __init__(self, site: Site, head: Head) -> None:
        self.site = site
        self.head = head

    @cached_property
    def plan(self) -> dict[str, Any]:
        """The plan that is being carried out."""
        return load_plan(self.site, self.head.plan)

    @cached_property
    def pop(self) -> Pop:
        """The PoP as the inventory has it now."""
        return self.site.inventory.pop(self.head.pop)

    @property
    def claim(self) -> Claim:
        """The claim this record's present epoch stands for."""
        return Claim(self.head.id, self.head.epoch)

    def hosts(self, names: Sequence[str]) -> list[Host]:
        """The inventory's hosts of these names."""
        return [self.pop.host(name) for name in names]

    def batches(self) -> Iterator[Batch]:
        """Every batch there is or will be, the planned ones first."""
        planned = len(self.plan["batches"]) + len(self.plan["promote_batches"])
        for number in range(planned + self.head.restore_batches):
            yield self.batch(number)

    def batch(self, number: int) -> Batch:
        """A batch as its document has it, or as planned; InputError if there is none."""
        text = self.site.store.get(_batch_key(self.head.id, number))
        if text is not None:
            return _load_batch(text)
        planned = [*self.plan["batches"], *self.plan["promote_batches"]]
        if not 0 <= number < len(planned):
            raise InputError("parameter", "batch", f"rollout {self.head.id} has no batch {number}")
        reboot = self.plan["disruption"] == "reboot"
        hosts = {host: HostStep(reboot=reboot) for host in planned[number]["hosts"]}
        return Batch(self.head.id, number, planned[number]["what"], planned[number]["group"], hosts)

    def renew(self) -> None:
        """Keep the claim; FencedError if somebody else owns the rollout by now."""
        self.site.claims.renew(self.head.pop, self.claim, self.site.config.claim_ttl)

    def save_batch(self, batch: Batch) -> None:
        """Write a batch's document, as its owner only."""
        self.renew()
        document = {"schema": RECORD_SCHEMA, **asdict(batch)}
        self.site.store.put(_batch_key(self.head.id, batch.number), json.dumps(document))

    def move(self, batch: Batch, names: Sequence[str], step: str) -> None:
        """Write down that these hosts are now at ``step``."""
        for name in names:
            batch.hosts[name].go(step)
        self.save_batch(batch)

    def fail(self, batch: Batch, name: str, error: str) -> bool:
        """Write down that a host failed; True if that fails the batch.

        A rollback goes on with the other hosts: the one that failed it quarantines, which is to
        say it stays out of service, is named, and waits for a person.
        """
        host = batch.hosts[name]
        if batch.what != "restore":
            host.error = error
            return True
        host.go("quarantined", error)
        self.head.quarantined[name] = error
        self.save()
        return False

    def save_look(self, number: int, look: Mapping[str, Any]) -> None:
        """Write a look's document."""
        document = {"schema": RECORD_SCHEMA, "rollout": self.head.id, "number": number, **look}
        self.site.store.put(f"{PACK}.look.{self.head.id}.{number}", json.dumps(document))

    def save(self) -> None:
        """Write the head, as its owner only."""
        self.renew()
        document = {"schema": RECORD_SCHEMA, **asdict(self.head)}
        self.site.store.put(_head_key(self.head.id), json.dumps(document))


def load_plan(site: Site, digest: str) -> dict[str, Any]:
    """A stored plan; RefusedError if it is not there or damaged."""
    return read_plan(site.store.get(f"{PACK}.plan.{digest}"), digest)


def save_plan(site: Site, plan: Mapping[str, Any]) -> None:
    """Keep a plan under its digest."""
    site.store.put(f"{PACK}.plan.{plan['digest']}", json.dumps(plan))


def read_rollout(site: Site, rollout: str) -> Rollout:
    """A rollout to look at; InputError if there is none of that id."""
    text = site.store.get(_head_key(rollout))
    if text is None:
        raise InputError("parameter", "rollout", f"there is no rollout {rollout!r}")
    return Rollout(site, _load_head(text))


def open_rollout(site: Site, rollout: str, epoch: int) -> Rollout:
    """A rollout to act on, called before every side effect.

    FencedError if ``epoch`` is not the claim's any more, RefusedError while everything is
    stopped; the claim is renewed.
    """
    opened = read_rollout(site, rollout)
    opened.head.epoch = epoch
    opened.renew()
    if (site.store.get(STOP_KEY) or "").strip().lower() not in ("", "false", "0", "no"):
        raise RefusedError(f"everything is stopped (the key {STOP_KEY} is set)")
    return opened


def all_heads(site: Site) -> list[Head]:
    """Heads of all rollouts whose schema we speak, oldest first."""
    texts = site.store.list(_head_key("")).values()
    heads = [_load_head(text) for text in texts if json.loads(text)["schema"] == RECORD_SCHEMA]
    return sorted(heads, key=lambda head: head.created)


def _head_key(rollout: str) -> str:
    return f"{PACK}.rollout.{rollout}"


def _batch_key(rollout: str, number: int) -> str:
    return f"{PACK}.batch.{rollout}.{number}"


def _load_head(text: str) -> Head:
    return Head(**_known(text, Head))


def _load_batch(text: str) -> Batch:
    values = _known(text, Batch)
    values["hosts"] = {name: HostStep(**host) for name, host in values["hosts"].items()}
    return Batch(**values)


def _known(text: str, kind: type[Any]) -> dict[str, Any]:
    document = json.loads(text)
    if document.get("schema") != RECORD_SCHEMA:
        raise RefusedError(
            f"a record has schema {document.get('schema')}, this edgetune speaks {RECORD_SCHEMA}; "
            "finish the rollout with the version of the pack that began it"
        )
    names = {each.name for each in fields(kind)}
    return {key: value for key, value in document.items() if key in names}
