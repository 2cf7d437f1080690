# SPDX-License-Identifier: Apache-2.0
"""What a rollout will do to one PoP: groups, batches, settings, and how it is judged."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from itertools import chain

from edgetune import PACK, PLAN_SCHEMA
from edgetune.agent.vocabulary.kinds import KINDS
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.diagnosis import Finding
from edgetune.base.documents.effect import Expected
from edgetune.base.documents.metric import Metric
from edgetune.base.documents.options import Options
from edgetune.base.documents.reading import (
    KEPT_IF_SET,
    decoded,
    digest_of,
    encoded,
    read_document,
    renamed,
)
from edgetune.base.documents.settings import HostSetting, SettingRow
from edgetune.base.errors import RefusedError

MOST_WAYS = 10**18
"""Of drawing groups that are counted: Python refuses to write 4,300 digits, MongoDB 20."""
DRAWN_BY = 2
"""How the judge draws other groups for plans of today (see ``judge.permutation``)."""
_LARGE = {"holds": "large"}
_KEPT = 512
_RENAMED = {
    "force": "drop_sessions",
    "fraction": "test_fraction",
    "alpha_help": "alpha_benefit",
}
"""Options by the names that plans of 0.10 and older have."""


@dataclass(frozen=True)
class Groups:
    """Names of the hosts that are changed first, and of those that are compared with them."""

    test: list[str]
    control: list[str]

    @property
    def hosts(self) -> list[str]:
        """Hosts of both groups."""
        return [*self.test, *self.control]

    @property
    def named(self) -> dict[str, list[str]]:
        """Both groups, by name."""
        return {"test": self.test, "control": self.control}

    def without(self, hosts: Container[str]) -> Groups:
        """The groups that are left without these hosts."""
        test, control = (
            [h for h in group if h not in hosts] for group in (self.test, self.control)
        )
        return Groups(test, control)


Strata = Mapping[str, Groups]
"""The groups by hardware."""


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
class PlannedTuning:
    """The tuning as it stood in the catalogue."""

    name: str
    version: str
    digest: str


@dataclass(frozen=True)
class PlannedBatch:
    """Hosts of a ``group`` that take the same way together; ``batch_type`` is change or sham."""

    group: str
    batch_type: str
    hosts: list[str]


@dataclass(frozen=True)
class Profile:
    """Hosts that are alike: their ``settings``, the rows that stood there ``before``, and by id why
    optional settings were ``left_out``."""

    settings: list[HostSetting]
    before: list[SettingRow]
    hosts: list[str]
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def tries_a_boot(self) -> bool:
        """Whether a boot tries one of them, and a confirmation makes that last."""
        return any(
            KINDS[setting.kind].is_tried_by_a_boot(setting.target) for setting in self.settings
        )


@dataclass(frozen=True)
class Proof:
    """What shows that a host is one machine: the ``address`` to which the load balancer sends its
    requests ("" if it tells none), ``proven_by`` BY_INTERFACE, BY_INVENTORY or BY_HOST, and the
    machine's ``uuid`` ("" if its firmware has none)."""

    address: str
    proven_by: str
    uuid: str


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
    is how long all of it takes. ``definitions`` are those of its metrics, as they were when it was
    made; those ``beside`` are shown where they are measured, and decide nothing. ``expected`` is
    what its tuning did elsewhere by then. ``digest`` is that of the whole document without it.

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
    strata: dict[str, Groups]
    unchanged: list[str]
    profiles: list[Profile]
    inventory: str
    batches: list[PlannedBatch]
    promote_batches: list[PlannedBatch]
    assignments: int = field(metadata=_LARGE)
    seconds: float
    digest: str = ""
    draws: int = 1
    machines: dict[str, Proof] = field(default_factory=dict)
    restarts: dict[str, Restart] = field(default_factory=dict)
    definitions: dict[str, Metric] = field(default_factory=dict)
    beside: list[str] = field(default_factory=list)
    expected: Expected | None = field(default=None, metadata=KEPT_IF_SET)

    @property
    def groups(self) -> Groups:
        """The groups of all strata together."""
        return both_groups(self.strata)

    @property
    def every_batch(self) -> list[PlannedBatch]:
        """The batches before the verdict, then those of the promotion."""
        return [*self.batches, *self.promote_batches]

    @property
    def metrics(self) -> list[str]:
        """Names of metrics, each once: that of the intent, then those of the guards."""
        names = [self.intent.metric, *(guard.metric for guard in self.guards)]
        return list(dict.fromkeys(names))

    @property
    def reboots(self) -> bool:
        """Whether hosts are rebooted."""
        return self.disruption == "reboot"

    @property
    def tries_boots(self) -> bool:
        """Whether a boot tries something on any host; see ``tries_a_boot``."""
        return any(profile.tries_a_boot for profile in self.profiles)

    def tries_a_boot(self, host: str) -> bool:
        """Whether a boot tries something on a host, and its confirmation makes that last."""
        return self.profile_of(host).tries_a_boot

    def profile_of(self, host: str) -> Profile:
        """The settings of one host and what stood there when the plan was made."""
        for profile in self.profiles:
            if host in profile.hosts:
                return profile
        raise RefusedError(f"the plan does not hold {host}")

    def signed(self) -> Plan:
        """Itself, with its digest."""
        return replace(self, digest=digest_of(self._body()))

    def document(self) -> dict[str, object]:
        """As it is stored, with its digest."""
        body = self._body()
        return {**body, "schema": PLAN_SCHEMA, "digest": digest_of(body)}

    def _body(self) -> dict[str, object]:
        return {name: value for name, value in encoded(self).items() if name != "digest"}


@dataclass(frozen=True)
class ShownPlan:
    """A plan as it is shown before anything is touched: ``inventory`` says how old that is,
    ``drain`` how hosts are taken out of traffic, ``notes`` what was found beside."""

    plan: Plan
    inventory: str
    drain: str
    notes: Sequence[Finding]


def read_plan(text: str | None, digest: str) -> Plan:
    """A stored plan; RefusedError if there is none or it is not the one of that digest."""
    if text is None:
        raise RefusedError(f"there is no plan {digest}; make one with plan_rollout")
    return _read(text, digest)


@lru_cache(maxsize=_KEPT)
def _read(text: str, digest: str) -> Plan:
    """A plan never changes, and each part of a step or of a status opens the record anew."""
    key = f"{PACK}.plan.{digest}"
    document = read_document(key, text)
    body = {name: value for name, value in document.items() if name != "digest"}
    if document.get("digest") != digest or digest_of(body) != digest:
        raise RefusedError(f"the stored plan is not the one with digest {digest}")
    return decoded(key, Plan, _as_today(document))


def _as_today(document: Mapping[str, object]) -> dict[str, object]:
    """A plan of any version since 0.6 as today's have it.

    Before 0.10 plans had one list of ``resets`` for all BMCs, whatever their machines offer:
    nothing is made of it. Those of 0.6 counted ``assignments`` without end. Up to 0.10 some fields
    had other names.
    """
    kept = {name: value for name, value in document.items() if name != "resets"}
    kept = {**kept, "options": renamed(kept.get("options"), _RENAMED)}
    for name in ("batches", "promote_batches"):
        batches = kept.get(name)
        if isinstance(batches, list):
            kept[name] = [renamed(each, {"what": "batch_type"}) for each in batches]
    ways = kept.get("assignments")
    return {**kept, "assignments": min(ways, MOST_WAYS)} if type(ways) is int else kept


def both_groups(strata: Strata) -> Groups:
    """The groups of some strata together."""
    every = strata.values()
    test, control = chain(*(each.test for each in every)), chain(*(each.control for each in every))
    return Groups([*test], [*control])


def assignments(strata: Strata) -> int:
    """In how many ways the groups could have been drawn (up to MOST_WAYS)."""
    ways = 1
    for stratum in strata.values():
        test, control = len(stratum.test), len(stratum.control)
        ways = min(ways * math.comb(test + control, test), MOST_WAYS)
    return ways
