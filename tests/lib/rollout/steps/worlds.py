# SPDX-License-Identifier: Apache-2.0
"""The worlds in which scenarios of steps play, by the names that their files use."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from edgetune.base.documents.plan import Plan, Proof
from edgetune.base.errors import ServerError
from edgetune.base.files import load_yaml
from edgetune.fleet.campaign.control import approve
from edgetune.net.traffic import Server
from edgetune.net.traffic.drivers.haproxy import Part, Several
from edgetune.rollout.record.rollout import load_plan, save_plan
from edgetune.rollout.steps.plan_rollout import plan_rollout
from tests.lib.rollout.steps.moves import RESET_AFTER
from tests.support.builders import LOGGED, inventory_document, plan, tuning
from tests.support.scenarios import begun, bios_scenario
from tests.support.soaking import Soaking
from tests.support.world import Balancer, BiosWorld, EmptyWorld, World, as_far_as

OLD = {"package": "linux-image-6.1.0-39-amd64", "version": "6.1.148-1"}
NEW = {"package": "linux-image-6.1.0-40-amd64", "version": "6.1.153-1"}
KERNEL = "kernel.package"
SILENT = "no route to host"
RESETS = {"reset_after": RESET_AFTER, "reboot_deadline": 100.0}


def approved(first: dict[str, Any], folder: Path) -> EmptyWorld:
    """Plans need an approval, and ben gave one to the plan that is there."""
    made = EmptyWorld(folder, plan_approval=True)
    made.plan = plan(folder)
    save_plan(made.context, made.plan)
    approve(made.context, made.plan.digest, requested_by="ben")
    return made


class Both(Several):
    advice = "let edgetune change servers"

    def under(self, epoch: int) -> Both:
        return self

    def certificates(self) -> Mapping[str, bytes]:
        return {}

    def refuses_changes_of(self, servers: Collection[str]) -> str:
        return self.refuses_changes()


def two(first: dict[str, Any], folder: Path) -> World:
    """A rollout that changes hosts, behind the load balancer of the world and a second one."""
    made: Any = begun(first, folder)
    made.second = Balancer(made.moments, made.hosts.not_ready)
    parts = [Part("lb1", "edges", made.balancer), Part("lb2", "edges", made.second)]
    made.context.load_balancer = lambda pop: Both(parts)
    return cast(World, made)


class KernelWorld(EmptyWorld):
    """A context with `kernel_upgrade` planned; its hosts boot the new kernel once they reboot."""

    def __init__(self, folder: Path, **config: Any) -> None:
        super().__init__(folder, **config)
        document: Any = load_yaml(self.context.config.inventory)
        document["pops"]["lab1"]["metrics"] = LOGGED
        self.change_inventory(document)
        self.hosts.standing = tuning("kernel_upgrade")
        self.facts: dict[str, dict[str, Any]] = {}
        self.verified: dict[str, dict[str, Any]] = {}
        self.unconfirmed: set[str] = set()
        hosts: Any = self.hosts
        own_facts, own_verify, own_confirm = hosts._facts, hosts._verify, hosts._confirm
        row = {"id": KERNEL, "runtime": OLD, "persistent": OLD, "wanted": NEW, "reason": "differs"}
        hosts._facts = lambda name, asked: {**own_facts(name, asked), **self.facts.get(name, {})}
        hosts._plan = lambda name, asked: {"settings": [{**row, "status": "change"}]}
        hosts._verify = lambda name, asked: {**own_verify(name, asked), **self._seen(name)}
        hosts._confirm = lambda name, asked: {
            **own_confirm(name, asked),
            "confirmed": name not in self.unconfirmed,
        }

    def _seen(self, name: str) -> dict[str, Any]:
        return {"verified": True, "state": "provisional", **self.verified.get(name, {})}

    def _planned(self, folder: Path, disruption: str = "", **planned: Any) -> Plan:
        made = plan_rollout(self.context, pop="lab1", tuning="kernel_upgrade", seed=7, **planned)
        return load_plan(self.context, made["plan"])


def kernels(first: dict[str, Any], folder: Path) -> KernelWorld:
    """A kernel is rolled out; nothing is changed yet."""
    made = KernelWorld(folder, **first.pop("site", {}))
    made.hosts.told_by_dmi = lambda name: {"uuid": f"uuid-{name}", "serial": ""}
    made.begin(folder, **first.pop("plan", {}))
    return as_far_as("changing", made)


class Steering(Balancer):
    """Hosts in ``silent`` tell nothing and do nothing; those in ``refusing`` do nothing."""

    silent: frozenset[str] = frozenset()
    refusing: frozenset[str] = frozenset()

    def servers(self) -> Mapping[str, Server]:
        return {name: self._as_told(own) for name, own in super().servers().items()}

    def _as_told(self, own: Server) -> Server:
        own = replace(own, address="", port=0, checked=False, told_by_host=True)
        if own.name in self.silent:
            return replace(own, withdrawn="", up=False, sessions=None, unknown=SILENT)
        return own

    def _set(self, server: str, state: str) -> None:
        if server in self.silent | self.refusing:
            raise ServerError(f"{server}: {SILENT}")
        super()._set(server, state)


class OwnWorld(World):
    """Its plan knows of each host that it is drained over the SSH by which it is changed."""

    def _planned(self, folder: Path, disruption: str = "", **planned: Any) -> Plan:
        made = super()._planned(folder, disruption, **planned)
        proofs = {name: Proof("", "host", "") for name in made.machines}
        return replace(made, machines=proofs).signed()


def steering(first: dict[str, Any], folder: Path) -> OwnWorld:
    """The load balancer are the hosts themselves."""
    made = as_far_as("changing", OwnWorld(folder))
    document = inventory_document()
    own = {"driver": "flag", "file": "/etc/edgetune/drained", "checks": "none"}
    document["pops"]["lab1"]["load_balancer"] = own
    made.change_inventory(document)
    made.balancer.__class__ = Steering
    return made


WORLDS: dict[str, Any] = {
    "changing": begun,
    "approved": approved,
    "two": two,
    "kernels": kernels,
    "kernels_unplanned": lambda first, folder: KernelWorld(folder, **first.pop("site", {})),
    "steering": steering,
    "empty": lambda first, folder: EmptyWorld(folder, **first.pop("site", {})),
    "claimed": lambda first, folder: World(folder, **first.pop("plan", {})),
    "soaking": lambda first, folder: Soaking(folder, **first.pop("plan", {})),
    "bmcs": lambda first, folder: BiosWorld(folder, **first.pop("site", {})),
    "bios": lambda first, folder: bios_scenario(first, folder, {}, {}),
    "resets": lambda first, folder: bios_scenario(first, folder, RESETS, {"force_restart": True}),
}
