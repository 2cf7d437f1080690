# SPDX-License-Identifier: Apache-2.0
"""The record of a rollout: small documents that outlive every workflow.

edgetune.plan.DIGEST            the plan
edgetune.rollout.ID             the head: who, what, state, epoch, history
edgetune.baseline.ID            what was measured before anything was changed
edgetune.batch.ID.NUMBER        one batch: where each host stands, written ahead of each step
edgetune.look.ID.NUMBER         one look: what was counted since the last one, and the verdict
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, Callable
from zoneinfo import ZoneInfoNotFoundError

from edgetune import PACK, RECORD_SCHEMA
from edgetune.documents.plan import Plan, read_plan
from edgetune.documents.reading import check_fields, check_is, digest_of, read_document
from edgetune.errors import DamagedError, FencedError, InputError, RefusedError
from edgetune.freezes import in_force, read_written
from edgetune.inventory import NAME, Host, Pop
from edgetune.plan import settings_by_bmc
from edgetune.rollout import steady_clock
from edgetune.rollout.claims import LARGEST_EPOCH, Claim
from edgetune.rollout.site import Site
from edgetune.rollout.steady_clock import Reading, shifted
from edgetune.rollout.switch import refuse_if_stopped
from edgetune.texts import shortened

if TYPE_CHECKING:
    from edgetune.hosts.result import HostResult

FORWARD = {
    "claimed": ("baseline", "rolling_back"),
    "baseline": ("baseline", "changing", "rolling_back"),
    "changing": ("changing", "soaking", "rolling_back"),
    "soaking": ("soaking", "promoting", "held", "rolling_back"),
    "held": ("soaking", "promoting", "rolling_back"),
    "promoting": ("promoting", "complete", "rolling_back"),
    "complete": ("rolling_back",),
    "rolling_back": ("rolling_back", "rolled_back"),
    "rolled_back": (),
}
"""Which states may follow which; entering the present one again carries it on."""

ENDED = ("complete", "rolled_back")
CHANGES_HOSTS = ("changing", "promoting", "rolling_back")
CARRIED_ON_BY_A_WORKFLOW = ("claimed", "baseline", *CHANGES_HOSTS)

UNTOUCHED_STEPS = ("planned", "skipped")
SETTLED_STEPS = ("done", "skipped", "quarantined")
# Characters of a reason in the history: it may name every host of a batch.
_LONGEST_REASON = 2_000
# How long a look at the kill switch and the claim holds for further side effects, in seconds.
_PERMIT_HOLDS = 1.0
_ID = re.compile(rf"({NAME})-(\d{{8}}T\d{{6}})-[0-9a-f]{{4}}")
_MOST_DOCUMENTS = 100_000


@dataclass
class HostStep:
    """Where one host of a batch stands; written before the side effect that it names.

    ``ours`` marks a host that carried our change when its way back began, ``live_back`` one
    whose live settings are back already. ``bios`` is "asked" from ``bios_at`` on, and "set" once
    its next boot makes of the BIOS what it should; the host answered from that boot at
    ``back_at``. ``resets`` are those its BMC was asked for in this reboot, ``refused`` those that
    it refused, and why. ``goes_back_to`` holds by id what settings go back to where that is not
    what the plan saw: None where a tuning that came later holds them. ``told_at`` is when the
    drained host was told to say "not ready", 0 before. From ``reverts_at`` on a host has taken a
    change back by itself that nobody confirmed; 0 where it waits for no confirmation.
    ``boot_took`` is how long its reboot lasted, in seconds, 0 where none was seen to end.
    """

    step: str = "planned"
    at: float = 0.0
    reboot: bool = False
    ours: bool = False
    live_back: bool = False
    bios: str = ""
    bios_at: float = 0.0
    back_at: float = 0.0
    resets: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    reverts_at: float = 0.0
    lb_before: str | None = None
    boot_before: str | None = None
    error: str | None = None
    goes_back_to: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    told_at: float = 0.0
    boot_took: float = 0.0

    def go(self, step: str, error: str | None = None) -> None:
        """The host is now at ``step``."""
        told = None if error is None else shortened(error)
        self.step, self.at, self.error = step, steady_clock.now(), told

    def shift(self, seconds: float) -> None:
        """Move the moments by which the host is awaited; one that is settled keeps its own."""
        if self.step in SETTLED_STEPS:
            return
        self.at, self.told_at = shifted(self.at, seconds), shifted(self.told_at, seconds)
        self.bios_at, self.back_at = shifted(self.bios_at, seconds), shifted(self.back_at, seconds)
        self.reverts_at += seconds if self.reverts_at else 0.0


@dataclass(frozen=True)
class Unreadable:
    """A head that cannot be read, with ``why``; ``pop`` is empty where its key does not tell.

    ``state`` is known of one that another version of the pack wrote. ``epoch`` is 0 where the
    text tells none.
    """

    id: str
    pop: str
    why: str
    text: str
    state: str = ""
    epoch: int = 0

    def may_be_on(self, pop: str) -> bool:
        """Whether it can be a rollout of this PoP."""
        return self.pop in ("", pop)

    @property
    def digest(self) -> str:
        """That of its text."""
        return hashlib.sha256(self.text.encode("utf-8", "replace")).hexdigest()

    def may_stand_on(self, head: Head) -> bool:
        """Whether it can be a later rollout of the same PoP that was not taken back."""
        own, other = _ID.fullmatch(self.id), _ID.fullmatch(head.id)
        earlier = own is not None and other is not None and own[2] < other[2]
        return self.may_be_on(head.pop) and self.state != "rolled_back" and not earlier


@dataclass(frozen=True)
class Wait:
    """Why a batch may not begin: ``since`` when (epoch seconds), ``why``, and ``until`` what.

    ``until`` is empty where ``why`` tells it.
    """

    since: float
    why: str
    until: str = ""


@dataclass
class Batch:
    """Hosts that take the same way together; ``what`` is change, sham or restore.

    ``checked`` says that they were held against the hard limits once they served again.
    ``passing`` are the servers whose check passed when hosts were last told to say "not ready".
    ``clock`` was read when it was last written. ``wait`` is there while it may not begin.
    """

    rollout: str
    number: int
    what: str
    group: str
    hosts: dict[str, HostStep]
    checked: bool = False
    passing: list[str] = field(default_factory=list)
    clock: Reading | None = None
    wait: Wait | None = None

    def at(self, *steps: str) -> list[str]:
        """Names of the hosts that stand at one of these steps."""
        return [name for name, host in self.hosts.items() if host.step in steps]

    @property
    def finished(self) -> bool:
        """Whether nothing of it is left to do."""
        return (
            self.checked and not self.failures and len(self.at(*SETTLED_STEPS)) == len(self.hosts)
        )

    @property
    def failures(self) -> dict[str, str]:
        """Hosts that failed it, with the reason."""
        failed = {name: host.error for name, host in self.hosts.items() if host.step != "skipped"}
        return {name: error for name, error in failed.items() if error}


@dataclass
class Entry:
    """An entry of a head's ``history``, as documents hold it: ``at`` is in epoch seconds."""

    at: float
    state: str
    by: str
    reason: str


@dataclass
class Quarantine:
    """What a head's ``quarantined`` tells of a host, as documents hold it."""

    reason: str
    since: float = 0.0
    batch: int = 0
    step: str = ""
    boot_id: str | None = None
    load_balancer: str | None = None
    bmc: dict[str, Any] = field(default_factory=dict)
    out_of_service: bool = False
    seen: str = ""
    noted: str = ""


@dataclass
class Head:
    """The rollout as a whole; ``baseline`` and ``soak`` are [start, end] in epoch seconds,
    ``usual_load`` is the most packets per second that the PoP took during the baseline,
    ``first_look`` the number of the present soak's first look, ``channel`` the chat channel in
    which it was asked for.

    ``wait`` says that its workflow stays until the end of the soak, ``taken_over`` when it was
    last taken from a workflow that may have an action running still, ``recoveries`` how often
    its owner died in the present state, ``only`` which hosts a rollback visits (empty: all).
    During ``freezes`` no batch begins. ``clock`` was read when it was last written.
    ``quarantined`` holds for each host the
    ``reason``, ``since`` when, in which ``batch`` at which ``step``, its last known ``boot_id``
    and state in the ``load_balancer`` before, what its ``bmc`` said, and whether it was seen out
    of service (see ``quarantine``).
    """

    id: str
    pop: str
    tuning: str
    plan: str
    state: str
    epoch: int
    owner: str
    by: str
    created: float
    channel: str = ""
    baseline: list[float] = field(default_factory=list)
    soak: list[float] = field(default_factory=list)
    usual_load: float = 0.0
    looks: int = 0
    first_look: int = 0
    verdict: dict[str, Any] = field(default_factory=dict)
    first_restore: int = 0
    restore_batches: int = 0
    quarantined: dict[str, dict[str, Any]] = field(
        default_factory=dict, metadata={"holds": "dict[str, Quarantine]"}
    )
    wait: bool = False
    taken_over: float = 0.0
    freezes: list[dict[str, Any]] = field(default_factory=list)
    recoveries: int = 0
    only: list[str] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list, metadata={"holds": "list[Entry]"})
    clock: Reading | None = None

    def enter(self, state: str, by: str, reason: str) -> None:
        """Change the state; RefusedError if it cannot follow the present one."""
        if state not in self.may_become:
            raise RefusedError(f"rollout {self.id} is {self.state}; it cannot become {state}")
        self.state = state
        self.note(by, reason)

    @property
    def may_become(self) -> tuple[str, ...]:
        """The states that may follow; what is rolled back is so again for quarantined hosts."""
        if self.state == "rolled_back" and self.quarantined:
            return ("rolling_back",)
        return FORWARD[self.state]

    @property
    def cause(self) -> str:
        """Why it was taken back the last time, or is; empty if it never was."""
        runs = groupby(self.history, key=lambda entry: entry["state"])
        causes = [next(own)["reason"] for state, own in runs if state == "rolling_back"]
        return str(causes[-1]) if causes else ""

    @property
    def wants_a_workflow(self) -> bool:
        """Whether somebody should be carrying it on."""
        waits = self.state == "soaking" and self.wait
        return waits or self.state in CARRIED_ON_BY_A_WORKFLOW

    def note(self, by: str, reason: str) -> None:
        """Write down who did or decided what."""
        told = {"by": shortened(by), "reason": shortened(reason, _LONGEST_REASON)}
        entry = {"at": time.time(), "state": self.state, **told}
        self.history.append(entry)


class Rollout:
    """One rollout's record, with its plan and its PoP."""

    def __init__(self, site: Site, head: Head) -> None:
        self.site = site
        self.head = head
        self._permitted_at = float("-inf")

    @cached_property
    def plan(self) -> Plan:
        """The plan that is being carried out."""
        return load_plan(self.site, self.head.plan)

    @cached_property
    def drains(self) -> bool:
        """Whether hosts are drained. What was rolled out later may be lifted to take this back."""
        goes_back = self.head.state == "rolling_back"
        if goes_back and self.sets_bios:
            # A BIOS that held all of it already may go back now: a tuning below it is gone.
            return True
        heads, unreadable = read_heads(self.site)
        above = [each for each in unreadable if goes_back and each.may_stand_on(self.head)]
        if not all(is_released(self.site, each) for each in above):
            # It may be one that drains.
            return True
        later = [head for head in heads if head.created > self.head.created]
        standing = [head for head in later if (head.pop, head.state) == (self.head.pop, "complete")]
        plans = [self.plan, *(load_plan(self.site, head.plan) for head in standing)]
        return any(plan.disruption != "live" for plan in plans)

    @cached_property
    def pop(self) -> Pop:
        """The PoP as the inventory has it now."""
        return self.site.inventory.pop(self.head.pop)

    @cached_property
    def sets_bios(self) -> bool:
        """Whether the BIOS of hosts is looked after, be it as wanted already."""
        rows = [row for profile in self.plan.profiles for row in profile.before]
        return bool(settings_by_bmc(rows))

    @property
    def claim(self) -> Claim:
        """The claim this record's present epoch stands for."""
        return Claim(self.head.id, self.head.epoch)

    def hosts(self, names: Sequence[str]) -> list[Host]:
        """The inventory's hosts of these names."""
        return [self.pop.host(name) for name in names]

    def numbers(self, state: str) -> range:
        """Numbers of the batches that are taken in a state."""
        changes = len(self.plan.batches)
        planned = len(self.plan.every_batch)
        return {
            "changing": range(changes),
            "promoting": range(changes, planned),
            "rolling_back": range(self.head.first_restore, planned + self.head.restore_batches),
        }.get(state, range(0))

    def batches(self) -> Iterator[Batch]:
        """Every batch there is or will be, the planned ones first."""
        planned = len(self.plan.every_batch)
        kept = self.site.store.list(_batch_key(self.head.id))
        for number in range(planned + self.head.restore_batches):
            yield self._batch(number, kept.get(_batch_key(self.head.id, number)))

    def batch(self, number: int) -> Batch:
        """A batch as its document has it, or as planned.

        InputError if there is none, DamagedError if its document cannot be read.
        """
        return self._batch(number, self.site.store.get(_batch_key(self.head.id, number)))

    def _batch(self, number: int, text: str | None) -> Batch:
        if text is not None:
            return _load_batch(self.head.id, number, text)
        planned = self.plan.every_batch
        if not 0 <= number < len(planned):
            raise InputError("parameter", "batch", f"rollout {self.head.id} has no batch {number}")
        own, reboot = planned[number], self.plan.reboots
        hosts = {host: HostStep(reboot=reboot) for host in own.hosts}
        return Batch(self.head.id, number, own.what, own.group, hosts)

    @property
    def wait(self) -> Wait | None:
        """What the present state waits for, if it waits."""
        numbers = self.numbers(self.head.state)
        waits = [batch.wait for batch in self.batches() if batch.number in numbers and batch.wait]
        return waits[-1] if waits else None

    def renew(self) -> None:
        """Keep the claim; FencedError if somebody else owns the rollout by now, and who."""
        try:
            self.site.claims.renew(self.head.pop, self.claim, self.site.config.claim_ttl)
        except FencedError as error:
            raise FencedError(f"{error}{_who_goes_on(self.site, self.head.id)}") from None

    def permit(self) -> None:
        """To be called before every side effect: our claim still holds, nothing is stopped.

        FencedError if somebody else owns the rollout by now, RefusedError while everything is
        stopped; the claim is renewed.
        """
        if time.monotonic() - self._permitted_at < _PERMIT_HOLDS:
            return
        self.renew()
        refuse_if_stopped(self.site)
        self._permitted_at = time.monotonic()

    def ask(
        self,
        names: Sequence[str],
        verb: str,
        request: Callable[[Host], Mapping[str, Any]],
        timeout: float = 60,
        patient: bool = True,
    ) -> dict[str, HostResult]:
        """Have hosts change something, under our epoch and as long as it is permitted.

        A host that cannot be reached is asked again for ``health_deadline`` s: every verb can be
        repeated. ``patient`` False asks once.
        """

        def permitted(host: Host) -> dict[str, Any]:
            self.permit()
            return {"epoch": self.head.epoch, **request(host)}

        patience = self.site.config.health_deadline if patient else 0
        return self.site.fleet.ask(self.hosts(names), verb, permitted, timeout, patience)

    def ask_bmcs(
        self, names: Sequence[str], verb: str, request: Callable[[Host], Mapping[str, Any]]
    ) -> dict[str, HostResult]:
        """Ask the BMCs of hosts, as long as it is permitted, be it in the middle of it."""

        def permitted(host: Host) -> Mapping[str, Any]:
            self.permit()
            return request(host)

        hosts = self.hosts(names)
        return self.site.bmcs.ask(hosts, verb, permitted, permit=self.permit) if names else {}

    def save_batch(self, batch: Batch) -> None:
        """Write a batch's document, as its owner only."""
        self.renew()
        batch.clock = steady_clock.reading()
        document = {"schema": RECORD_SCHEMA, **asdict(batch)}
        self.site.store.put(_batch_key(self.head.id, batch.number), json.dumps(document))

    def move(self, batch: Batch, names: Sequence[str], step: str) -> None:
        """Write down that these hosts are now at ``step``."""
        for name in names:
            batch.hosts[name].go(step)
        self.save_batch(batch)

    def fail(
        self, batch: Batch, name: str, error: str, bmc: Mapping[str, Any] | None = None
    ) -> bool:
        """Write down that a host failed, with what its BMC says; True if that fails the batch.

        A rollback goes on with the other hosts: the one that failed it quarantines, which is to
        say it is named and waits for a person; ``quarantine`` sees it out of service.
        """
        host = batch.hosts[name]
        error = shortened(error)
        if batch.what != "restore":
            host.error = error
            return True
        step = host.step
        host.go("quarantined", error)
        self.head.quarantined[name] = {
            "reason": error,
            "since": host.at,
            "batch": batch.number,
            "step": step,
            "boot_id": host.boot_before,
            "load_balancer": host.lb_before,
            "bmc": dict(bmc or {}),
        }
        self.save()
        return False

    def baseline(self) -> dict[str, Any] | None:
        """The baseline's document, None before it was measured; DamagedError if it is damaged."""
        return self._document(f"{PACK}.baseline.{self.head.id}", _BASELINE)

    def save_baseline(self, baseline: Mapping[str, Any]) -> None:
        """Write the baseline's document."""
        self._save_document(f"{PACK}.baseline.{self.head.id}", baseline)

    def look(self, number: int) -> dict[str, Any]:
        """A look's document; RefusedError if it is not there, DamagedError if it is damaged."""
        look = self._document(f"{PACK}.look.{self.head.id}.{number}", _LOOK)
        if look is None:
            raise RefusedError(f"the record of rollout {self.head.id} lacks look {number}")
        return look

    def save_look(self, number: int, look: Mapping[str, Any]) -> None:
        """Write a look's document."""
        self._save_document(f"{PACK}.look.{self.head.id}.{number}", {"number": number, **look})

    def _document(self, key: str, shape: Mapping[str, Any]) -> dict[str, Any] | None:
        text = self.site.store.get(key)
        if text is None:
            return None
        document = read_document(key, text)
        _refuse_schema(key, document.get("schema"))
        digest = document.pop("digest", None)
        # Earlier versions wrote none.
        good = digest in (None, digest_of(document)) and document.get("rollout") == self.head.id
        check_is(key, "digest", good, "is of another document")
        for name, kinds in shape.items():
            if name in document:
                check_is(key, name, isinstance(document[name], kinds), "is of another type")
        return document

    def _save_document(self, key: str, body: Mapping[str, Any]) -> None:
        document = json.loads(
            json.dumps({"schema": RECORD_SCHEMA, "rollout": self.head.id, **body})
        )
        self.site.store.put(key, json.dumps({**document, "digest": digest_of(document)}))

    def save(self) -> None:
        """Write the head, as its owner only."""
        self.renew()
        self.head.clock = steady_clock.reading()
        document = {"schema": RECORD_SCHEMA, **asdict(self.head)}
        self.site.store.put(_head_key(self.head.id), json.dumps(document))


def idle_time(site: Site, pop: str) -> float:
    """Seconds since the owner of a PoP made its last step: each one renews the claim."""
    return idle_times(site, [pop])[pop]


def idle_times(site: Site, pops: Sequence[str]) -> dict[str, float]:
    """The same of several PoPs, all at one moment, so that they can be put in order."""
    left = site.claims.expiries(pops)
    return {pop: site.config.claim_ttl - left[pop] for pop in pops}


def _who_goes_on(site: Site, rollout: str) -> str:
    """Who moved a rollout on since, for the line that tells somebody else that it ends there."""
    text = site.store.get(_head_key(rollout))
    try:
        head = _load_head(rollout, text) if text is not None else None
    except RefusedError:
        head = None
    return "" if head is None else _goes_on(head)


def _goes_on(head: Head) -> str:
    by = (head.history[-1]["by"] if head.history else "") or "unknown"
    return f"; {by} goes on with it ({head.state}), and nothing is left to do here"


def load_plan(site: Site, digest: str) -> Plan:
    """A stored plan; RefusedError if it is not there or damaged."""
    known = re.fullmatch(r"sha256:[0-9a-f]{16}", digest)
    return read_plan(site.store.get(f"{PACK}.plan.{digest}") if known else None, digest)


def save_plan(site: Site, plan: Plan) -> None:
    """Keep a plan under its digest."""
    site.store.put(f"{PACK}.plan.{plan.digest}", json.dumps(plan.document()))


def read_rollout(site: Site, rollout: str) -> Rollout:
    """A rollout to look at; InputError if there is none of that id, DamagedError if the head
    cannot be read."""
    # What is no name at all is never made a part of a key or of a URL.
    text = site.store.get(_head_key(rollout)) if re.fullmatch(NAME, rollout) else None
    if text is None:
        raise InputError("parameter", "rollout", f"there is no rollout {rollout!r}")
    return Rollout(site, _load_head(rollout, text))


def has_record(site: Site, rollout: str) -> bool:
    """Whether there is a record of that rollout, be it one that cannot be read."""
    return site.store.get(_head_key(rollout)) is not None


def open_rollout(site: Site, rollout: str, epoch: int) -> Rollout:
    """A rollout to act on, called before every side effect.

    FencedError if ``epoch`` is not the claim's any more, RefusedError while everything is
    stopped; the claim is renewed.
    """
    opened = read_rollout(site, rollout)
    if epoch < opened.head.epoch:
        # Claims that lost their last write know nothing of who came later; the record does.
        lost = f"{rollout}, epoch {epoch}, has lost its claim on {opened.head.pop}"
        newer = f"its record is at epoch {opened.head.epoch}"
        raise FencedError(f"{lost}: {newer}{_goes_on(opened.head)}")
    opened.head.epoch = epoch
    opened.permit()
    return opened


def all_heads(site: Site) -> list[Head]:
    """Heads of all rollouts that can be read, oldest first."""
    return read_heads(site)[0]


def read_heads(site: Site) -> tuple[list[Head], list[Unreadable]]:
    """Heads of all rollouts, oldest first, and those that cannot be read."""
    heads, unreadable = [], []
    prefix = _head_key("")
    for key, text in site.store.list(prefix).items():
        rollout = key[len(prefix) :]
        try:
            heads.append(_load_head(rollout, text))
        except RefusedError as error:
            unreadable.append(_unreadable(rollout, text, str(error)))
    return sorted(heads, key=lambda head: head.created), unreadable


def is_released(site: Site, each: Unreadable) -> bool:
    """Whether a person gave up this text of a record."""
    key = release_key(each.id)
    text = site.store.get(key)
    try:
        return text is not None and read_document(key, text)["digest"] == each.digest
    except (DamagedError, KeyError):
        return False


def release_key(rollout: str) -> str:
    """Where it is written that a record was given up."""
    return f"{PACK}.released.{rollout}"


def _unreadable(rollout: str, text: str, why: str) -> Unreadable:
    named = _ID.fullmatch(rollout)
    pop, state, epoch = named[1] if named else "", "", 0
    try:
        document = read_document(_head_key(rollout), text)
    except DamagedError:
        return Unreadable(rollout, pop, why, text)
    if type(document.get("epoch")) is int and 0 <= document["epoch"] <= LARGEST_EPOCH:
        epoch = document["epoch"]
    if _is_other_schema(document.get("schema")):
        state = str(document.get("state", ""))
        pop = pop or str(document.get("pop", ""))
    return Unreadable(rollout, pop, why, text, state, epoch)


def _head_key(rollout: str) -> str:
    return f"{PACK}.rollout.{rollout}"


def _batch_key(rollout: str, number: int | str = "") -> str:
    return f"{PACK}.batch.{rollout}.{number}"


def _load_head(rollout: str, text: str) -> Head:
    key = _head_key(rollout)
    values = _known(key, text)
    check_fields(key, Head, values)
    head = Head(**{**values, "clock": _reading_of(values)})
    head.taken_over = _taken_over(head)
    named = _ID.fullmatch(rollout)
    check_is(key, "id", head.id == rollout, "is that of another rollout")
    check_is(key, "pop", named is None or named[1] == head.pop, "is not that of the id")
    check_is(key, "pop", bool(re.fullmatch(NAME, head.pop)), "is no name")
    check_is(key, "state", head.state in FORWARD, f"is none of {', '.join(FORWARD)}")
    check_is(key, "epoch", 0 < head.epoch <= LARGEST_EPOCH, "is no epoch")
    for name in ("baseline", "soak"):
        span = getattr(head, name)
        check_is(key, name, not span or (len(span) == 2 and span[0] <= span[1]), "is no span")
    for name in ("looks", "first_look", "first_restore", "restore_batches", "recoveries"):
        check_is(key, name, 0 <= getattr(head, name) <= _MOST_DOCUMENTS, "is out of range")
    _check_shown(key, head)
    try:
        # At a moment on each day of the week.
        for day in range(7):
            in_force(read_written(head.freezes), day * 86400.0)
    except (TypeError, ValueError, KeyError, ArithmeticError, ZoneInfoNotFoundError, OSError):
        raise DamagedError(key, "freezes", "holds what is no freeze") from None
    return head


def _taken_over(head: Head) -> float:
    """When it was, by the present wall clock.

    No step of a batch writes the head again. So in another boot the moment stays where it is:
    a shift that is worked out anew at each read would move it along with the present.
    """
    here = head.clock is not None and steady_clock.is_of_this_boot(head.clock)
    return shifted(head.taken_over, steady_clock.shift_since(head.clock) if here else 0.0)


def _check_shown(key: str, head: Head) -> None:
    """What people are shown of a rollout holds what its text takes from it."""
    for host, why in head.quarantined.items():
        named = f"quarantined.{host}"
        check_is(key, named, ("step" in why) == ("batch" in why), "tells no step of a batch")
        events = _are_mappings(why.get("bmc", {}).get("events", []))
        check_is(key, f"{named}.bmc", events, "tells no events")
    verdict = head.verdict
    for name in ("verdict", "reason", "decision"):
        check_is(key, f"verdict.{name}", type(verdict.get(name, "")) is str, "must be text")
    check_is(key, "verdict.metrics", _are_mappings(verdict.get("metrics") or []), "holds no rows")


def _are_mappings(values: Any) -> bool:
    return type(values) is list and all(type(value) is dict for value in values)


def _load_batch(rollout: str, number: int, text: str) -> Batch:
    key = _batch_key(rollout, number)
    values = _known(key, text)
    check_fields(key, Batch, values)
    hosts = {name: HostStep(**host) for name, host in values["hosts"].items()}
    wait = Wait(**values["wait"]) if values.get("wait") else None
    batch = Batch(**{**values, "hosts": hosts, "clock": _reading_of(values), "wait": wait})
    shift = steady_clock.shift_since(batch.clock)
    for host in hosts.values():
        host.shift(shift)
    mine = (batch.rollout, batch.number) == (rollout, number)
    check_is(key, "number", mine, "is that of another batch")
    check_is(key, "what", batch.what in _BATCHES, f"is none of {', '.join(_BATCHES)}")
    return batch


def _reading_of(values: Mapping[str, Any]) -> Reading | None:
    clock = values.get("clock")
    return Reading(**clock) if clock else None


def _known(key: str, text: str) -> dict[str, Any]:
    document = read_document(key, text)
    schema = document.pop("schema", None)
    _refuse_schema(key, schema)
    return {name: _UNDERSTOOD[schema](name, value) for name, value in document.items()}


def _is_other_schema(schema: Any) -> bool:
    return type(schema) is int and 0 < schema < _MOST_DOCUMENTS and schema not in _UNDERSTOOD


def _refuse_schema(key: str, schema: Any) -> None:
    if _is_other_schema(schema):
        understood = f"this edgetune understands up to {RECORD_SCHEMA}"
        raise RefusedError(
            f"{key}: a record has schema {schema}, {understood}; "
            "carry the rollout on with the version of the pack that wrote it, or a later one"
        )
    check_is(key, "schema", type(schema) is int and schema in _UNDERSTOOD, "is none of ours")


def _from_first(name: str, value: Any) -> Any:
    """A field as the first version of the pack wrote it; a quarantine was its reason alone."""
    if name != "quarantined" or not isinstance(value, dict):
        return value
    return {host: {"reason": reason} for host, reason in value.items()}


_UNDERSTOOD: dict[Any, Callable[[str, Any], Any]] = {
    1: _from_first,
    # Baselines and looks had their rows as lists of numbers (see judge/rows.py); batches did not
    # say what they wait for.
    2: lambda name, value: value,
    RECORD_SCHEMA: lambda name, value: value,
}

_BATCHES = ("change", "sham", "restore")
_BASELINE = {"health": dict, "metrics": dict, "facts": dict, "doubts": list, "power": dict}
_LOOK = {
    "verdict": str,
    "decision": str,
    "reason": str,
    "tests": dict,
    "metrics": list,
    "until": (int, float),
    "block": dict,
}
