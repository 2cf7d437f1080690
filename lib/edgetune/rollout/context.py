# SPDX-License-Identifier: Apache-2.0
"""Everything a step needs, opened when it is first asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Callable

from edgetune.base.errors import EdgetuneError, InputError, NoAnswerError
from edgetune.intent.metrics.catalogue import Catalogue
from edgetune.intent.tuning import Tuning, find_tuning
from edgetune.net.traffic import DrainDriver, open_driver
from edgetune.rollout.store.claims import Claims, open_claims
from edgetune.rollout.store.heartbeat import Heartbeats, open_heartbeats
from edgetune.rollout.store.inventory import inventory_in_place_of, stored_inventory
from edgetune.rollout.store.records import Store, known_strays, open_stackstorm, open_store
from edgetune.rollout.store.stackstorm import Executions, StackStorm
from edgetune.site.config import Config, read_config, refuse_unconfigured
from edgetune.site.inventory import Inventory, Pop

if TYPE_CHECKING:
    from edgetune.net.bmc.bmcs import Bmcs
    from edgetune.net.bmc.credentials import Credentials
    from edgetune.net.hosts.fleet import Fleet
    from edgetune.net.metrics.pop_samples import PopSamples
    from edgetune.net.metrics.source import MetricSource
    from edgetune.net.traffic.on_hosts import Agents
    from edgetune.rollout.store.nodes import Nodes


class Context:
    """Inventory, tunings, stores, hosts and load balancers of one configuration."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        refuse_unconfigured(given)
        self.given = given
        self.notes: list[str] = []
        """What every answer says beside its own."""
        self._kept_inventory: Inventory | None = None
        self._sources: dict[str, MetricSource] = {}

    @cached_property
    def config(self) -> Config:
        """The configuration that is given; InputError where it is wrong."""
        return read_config(self.given)

    @cached_property
    def inventory(self) -> Inventory:
        """The inventory, for all but plans: as its source tells it where that is a file, or as it
        is kept. InputError where the file is wrong."""
        return stored_inventory(self.config, lambda: self.store)

    @property
    def known_inventory(self) -> Inventory:
        """The same for what has to go on, rollouts above all: where the file is wrong as it is
        kept, which ``notes`` say."""
        try:
            return self._kept_inventory or self.inventory
        except InputError as error:
            self._kept_inventory, note = inventory_in_place_of(error, self.store)
            self.notes.append(note)
            return self._kept_inventory

    @cached_property
    def store(self) -> Store:
        """Where records live."""
        return open_store(self.config)

    @cached_property
    def strays(self) -> list[str]:
        """Ids of records whose keys tell no PoP, as the sweep saw them last."""
        return known_strays(self.store)

    @cached_property
    def stackstorm(self) -> StackStorm | None:
        """The API of the StackStorm that runs this action, or None in the local runner."""
        if not os.environ.get("ST2_ACTION_API_URL"):
            return None
        return open_stackstorm(self.config)

    @property
    def executions(self) -> Executions | None:
        """What runs in StackStorm, as seen once; None where that is not to be known.

        NoAnswerError where StackStorm does not answer: else what is paused would count as silent.
        """
        if isinstance(self._executions, NoAnswerError):
            raise self._executions
        return self._executions

    @cached_property
    def _executions(self) -> Executions | NoAnswerError | None:
        try:
            return Executions(self.stackstorm, self.heartbeats) if self.stackstorm else None
        except NoAnswerError as error:
            return error
        except EdgetuneError:
            # With RBAC a user may not be permitted to see that.
            return None

    @cached_property
    def heartbeats(self) -> Heartbeats:
        """Signs of life of the guard and of actions."""
        return open_heartbeats(self.config)

    @cached_property
    def nodes(self) -> Nodes:
        """What the nodes of StackStorm hold."""
        from edgetune.rollout.store.nodes import open_nodes

        return open_nodes(self.config)

    @cached_property
    def claims(self) -> Claims:
        """Who owns which PoP."""
        return open_claims(self.config)

    @cached_property
    def samples(self) -> PopSamples:
        """Samples of hosts, wherever they are kept."""
        from edgetune.net.metrics.pop_samples import PopSamples
        from edgetune.net.metrics.samples import open_samples

        return PopSamples(
            open_samples(self.config), lambda: self.known_inventory, self.metric_source
        )

    @cached_property
    def fleet(self) -> Fleet:
        """The way to the agents on hosts; importing SSH takes a while, so only when asked."""
        from edgetune.net.hosts.fleet import Fleet

        return Fleet(self.config)

    @cached_property
    def bmcs(self) -> Bmcs:
        """The way to the BMCs of hosts."""
        from edgetune.net.bmc.bmcs import Bmcs

        return Bmcs(self.config, self.credentials)

    @property
    def credentials(self) -> Credentials:
        """What BMCs are logged in with."""
        from edgetune.net.bmc.credentials import Credentials

        return Credentials(self.store.secret, self.config.bmc_credentials_file, os.environ)

    def tuning(self, name: str) -> Tuning:
        """A tuning of the catalogue."""
        return find_tuning(name, self.config.tunings, self.catalogue)

    @cached_property
    def catalogue(self) -> Catalogue:
        """The metrics that tunings may name."""
        return Catalogue(self.config.metrics)

    def metric_source(self, name: str) -> MetricSource:
        """What samples hosts: a source by the name that ``metrics`` of a PoP has."""
        if name not in self._sources:
            from edgetune.net.metrics.sources import open_source

            self._sources[name] = open_source(name, self)
        return self._sources[name]

    def remembers(self, pop: Pop) -> bool:
        """Whether the samples of a PoP are kept by what takes them, whenever that was."""
        from edgetune.net.metrics.source import RememberingSource

        return isinstance(self.metric_source(pop.metrics.source), RememberingSource)

    def load_balancer(self, pop: Pop) -> DrainDriver:
        """The drain driver of a PoP."""
        return open_driver(pop.load_balancer.driver, pop.load_balancer.fields, self._agents(pop))

    def _agents(self, pop: Pop) -> Callable[[], Agents]:
        def opened() -> Agents:
            from edgetune.net.hosts.steering import PopAgents

            return PopAgents(self.fleet, pop)

        return opened
