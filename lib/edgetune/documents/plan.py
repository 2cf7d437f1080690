# SPDX-License-Identifier: Apache-2.0
"""What a rollout will do to one PoP: groups, batches, settings, and how it is judged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from edgetune import PACK, PLAN_SCHEMA
from edgetune.documents.reading import decoded, digest_of, read_document
from edgetune.errors import InputError, RefusedError

MOST_WAYS = 10**18
"""Of drawing the groups that are told apart: Python refuses to write 4,300 digits, MongoDB 20."""
DRAWN_BY = 2
"""How the judge draws other groups for plans of today (see ``judge.permutation``)."""
LEAST_SAMPLES = 3
"""Samples that a look needs at least."""
_MOST_SEED = 2**63 - 1
_LARGE = {"holds": "large"}

Strata = Mapping[str, Mapping[str, Sequence[str]]]
"""Names of hosts by hardware, and by group: ``test`` and ``control``."""


@dataclass(frozen=True)
class Intent:
    """What a tuning is for.

    ``goal`` is ``improve`` (promoted only on a proven improvement) or ``no_harm`` (promoted
    when the interval lies inside ``margin``, a share of the metric).
    """

    goal: str
    metric: str
    margin: float


@dataclass(frozen=True)
class Guard:
    """A metric that may not get worse; harm must exceed ``margin`` (a share) to count.

    One that is ``optional`` is not watched on hosts that do not measure it; any other must be
    measured on every host.
    """

    metric: str
    margin: float
    optional: bool = False


@dataclass(frozen=True)
class Options:
    """What a person may choose about a rollout; times in seconds, alphas as probabilities.

    ``force`` goes on with a host whose sessions do not end; by default it is skipped.
    ``force_restart`` lets its BMC force a host that neither its operating system nor the BMC
    could restart gracefully. ``without_packets`` goes on where hosts do not count packets, though
    traffic that moves from one group to the other is not seen there.
    """

    fraction: float = 0.5
    batch_size: int = 0
    baseline: float = 86400
    soak: float = 86400
    interval: int = 60
    warmup: float = 300
    looks: int = 12
    alpha_help: float = 0.05
    alpha_harm: float = 0.05
    exclude: tuple[str, ...] = ()
    seed: int = field(default=0, metadata=_LARGE)
    force: bool = False
    force_restart: bool = False
    without_packets: bool = False

    def checked(self) -> Options:
        """Itself; InputError names a value out of its range."""
        _between("fraction", self.fraction, 0.05, 0.95)
        _between("batch_size", self.batch_size, 0, 10000)
        _between("interval", self.interval, 1, 3600)
        _between("baseline", self.baseline, 2 * self.interval, 30 * 86400)
        _between("soak", self.soak, LEAST_SAMPLES * self.interval + self.warmup, 30 * 86400)
        _between("warmup", self.warmup, 0, 86400)
        _between("looks", self.looks, 1, 1000)
        _between("alpha_help", self.alpha_help, 0.0001, 0.5)
        _between("alpha_harm", self.alpha_harm, 0.0001, 0.5)
        _between("seed", self.seed, -_MOST_SEED, _MOST_SEED)
        return self

    @property
    def planned_looks(self) -> int:
        """How often a soak is looked at: as often as asked for, but over three samples at least."""
        room = (self.soak - self.warmup) / (LEAST_SAMPLES * self.interval)
        return max(1, min(self.looks, int(room)))


@dataclass(frozen=True)
class PlannedTuning:
    """The tuning as it stood in the catalogue."""

    name: str
    version: str
    digest: str


@dataclass(frozen=True)
class PlannedBatch:
    """Hosts of a ``group`` that take the same way together; ``what`` is change or sham."""

    group: str
    what: str
    hosts: list[str]


@dataclass(frozen=True)
class Profile:
    """Hosts that are alike: their ``settings`` in the form the host agent takes, the rows that
    stood there ``before``, and by id why optional settings were ``left_out``."""

    settings: list[dict[str, Any]]
    before: list[dict[str, Any]]
    hosts: list[str]
    left_out: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Restart:
    """The machine of a BMC, and the ``resets`` that may restart it, the gentlest first."""

    system: str
    serial: str
    sku: str
    resets: list[str]

    @property
    def machine(self) -> dict[str, str]:
        """What names the machine."""
        return {"system": self.system, "serial": self.serial, "sku": self.sku}


@dataclass(frozen=True)
class Plan:
    """What a rollout will do.

    ``strata`` are as ``Strata``. ``draws`` is the way in which the judge draws other groups (see
    ``judge.permutation``), and ``assignments`` in how many ways that can be done. ``machines``
    holds by host what proves that it is one machine (see ``rollout.identity``), ``restarts`` how
    the BMC of a host may restart it. ``inventory`` is the digest of the PoP's hosts. ``seconds``
    is how long all of it takes. ``digest`` is that of the whole document without it.

    Fields with a default were not known to version 0.6.
    """

    schema: int
    pop: str
    tuning: PlannedTuning
    intent: Intent
    guards: list[Guard]
    options: Options
    disruption: str
    hosts_in_pop: int
    must_serve: int
    strata: dict[str, dict[str, list[str]]]
    unchanged: list[str]
    profiles: list[Profile]
    inventory: str
    batches: list[PlannedBatch]
    promote_batches: list[PlannedBatch]
    assignments: int = field(metadata=_LARGE)
    seconds: float
    digest: str = ""
    draws: int = 1
    machines: dict[str, dict[str, str]] = field(default_factory=dict)
    restarts: dict[str, Restart] = field(default_factory=dict)

    @property
    def groups(self) -> dict[str, list[str]]:
        """Hosts of the ``test`` and of the ``control`` group."""
        return both_groups(self.strata)

    @property
    def every_batch(self) -> list[PlannedBatch]:
        """Those before the verdict, and those of the promotion."""
        return [*self.batches, *self.promote_batches]

    @property
    def metrics(self) -> list[str]:
        """That of the intent first, then those of the guards; each once."""
        names = [self.intent.metric, *(guard.metric for guard in self.guards)]
        return list(dict.fromkeys(names))

    @property
    def reboots(self) -> bool:
        """Whether hosts are rebooted."""
        return self.disruption == "reboot"

    def profile_of(self, host: str) -> Profile:
        """The settings of one host and what stood there when the plan was made."""
        for profile in self.profiles:
            if host in profile.hosts:
                return profile
        raise RefusedError(f"the plan does not hold {host}")

    def document(self) -> dict[str, Any]:
        """As it is stored, with its digest."""
        body = asdict(self)
        body["options"]["exclude"] = list(self.options.exclude)
        del body["digest"]
        return {**body, "schema": PLAN_SCHEMA, "digest": digest_of(body)}


def read_plan(text: str | None, digest: str) -> Plan:
    """A stored plan; RefusedError if there is none or it is not the one of that digest."""
    if text is None:
        raise RefusedError(f"there is no plan {digest}; make one with plan_rollout")
    key = f"{PACK}.plan.{digest}"
    document = read_document(key, text)
    body = {name: value for name, value in document.items() if name != "digest"}
    if document.get("digest") != digest or digest_of(body) != digest:
        raise RefusedError(f"the stored plan is not the one with digest {digest}")
    return decoded(key, Plan, document)


def both_groups(strata: Strata) -> dict[str, list[str]]:
    """Hosts of the ``test`` and of the ``control`` group of some strata."""
    return {g: [host for own in strata.values() for host in own[g]] for g in ("test", "control")}


def assignments(strata: Strata) -> int:
    """In how many ways the groups could have been drawn (up to MOST_WAYS)."""
    ways = 1
    for stratum in strata.values():
        test, control = len(stratum["test"]), len(stratum["control"])
        ways = min(ways * math.comb(test + control, test), MOST_WAYS)
    return ways


def _between(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        # An integer beyond every float can be neither shown nor converted.
        shown = "the number" if abs(value) > 1e300 else f"{value:g}"
        raise InputError("parameter", name, f"{shown} is not between {low:g} and {high:g}")
