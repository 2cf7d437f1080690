# SPDX-License-Identifier: Apache-2.0
"""A PoP whose hosts count what they get by their weights, and drop what is beyond their knee."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgetune.base import clock
from edgetune.base.documents.capacity import Capacity
from edgetune.rollout.record.capacity import load_capacity
from edgetune.rollout.record.rollout import read_rollout
from edgetune.rollout.steps.begin_capacity import begin_capacity
from edgetune.rollout.steps.plan_capacity import plan_capacity
from edgetune.rollout.steps.read_capacity import read_capacity
from edgetune.rollout.steps.return_weights import return_weights
from edgetune.rollout.steps.shift_weights import shift_weights
from tests.support.scenarios import Scenario
from tests.support.world import World

PACKETS = 1000.0
"""Those of a host with its usual weight, per second."""
STEPS = {
    "shift_weights": shift_weights,
    "read_capacity": read_capacity,
    "return_weights": return_weights,
}
ASKED = {"most": 0.35, "pairs": 1, "rungs": 20, "hold": "20s", "limit": 500, "seed": 5}


class Carrying(World):
    """A rollout that soaks; ``knees`` are the loads, in multiples of the usual one, from which on
    a host drops a tenth of what comes: of tuned and of untuned hosts. ``own_knees`` are by host."""

    def __init__(self, folder: Path, state: str = "soaking", **planned: Any) -> None:
        folder.mkdir(exist_ok=True)
        super().__init__(folder, **planned)
        self.knees = {True: 2.0, False: 1.25}
        self.own_knees: dict[str, float] = {}
        self.surge = 1.0
        self._counted: dict[str, tuple[float, float, float]] = {}
        self.hosts._sample = self._sample  # type: ignore[method-assign]
        self.mark("baseline")
        self.roll_all(self.mark("changing"))
        self.mark("soaking")
        self.set_head(soak=[clock.wall() - 10, clock.wall() + 86400])
        if state == "held":
            self.mark("held")

    def load(self, name: str) -> float:
        """What a host gets, in multiples of the usual."""
        gone, self.balancer.gone = self.balancer.gone, ""
        servers = self.balancer.servers()
        self.balancer.gone = gone
        serving = {name: own.weight or 0 for name, own in servers.items() if own.is_serving}
        share = serving.get(name, 0) / max(1, sum(serving.values()))
        return self.surge * len(servers) * share

    def knee(self, name: str) -> float:
        return self.own_knees.get(name, self.knees[name in self.hosts.tuned])

    def _sample(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        now, load = clock.wall(), self.load(name)
        then, packets, drops = self._counted.get(name, (now, 1e6, 0.0))
        packets += (now - then) * PACKETS * load
        drops += (now - then) * PACKETS * max(0.0, load - self.knee(name)) / 10
        self._counted[name] = now, packets, drops
        gauges = {"health_failed": float(name in self.hosts.health), "health_p50_ms": 1.0}
        counters = {"listen_drops": int(drops), "rx_packets": int(packets)}
        more = {"drift": [], "health": self.hosts.health.get(name, "")}
        return {"uptime": now - 1e9, "counters": counters, "gauges": gauges, **more}

    def plan_it(self, **more: Any) -> str:
        """The digest of a plan for a measurement."""
        return plan_capacity(self.context, "lab1", "accept_queue", **{**ASKED, **more})["plan"]

    def begin_it(self, **more: Any) -> None:
        begun = begin_capacity(self.context, self.plan_it(**more), owner="m-1", requested_by="ana")
        self.epoch = begun["epoch"]

    def measure_on(self, following: str = "shift_weights", until: str = "") -> Any:
        """Take steps as the workflow does, until a step is next, or none is."""
        told: Any = {}
        while following and following != until:
            told = STEPS[following](self.context, self.rollout, self.epoch)
            following = told["next"]
            clock.sleep(told["retry_after"])
        return told

    def climb(self, rungs: int) -> Any:
        """So many weights were lent, the last of which is not read yet."""
        told: Any = {}
        following = "shift_weights"
        while True:
            told = STEPS[following](self.context, self.rollout, self.epoch)
            if following == "shift_weights" and len(self.measured.pairs[0].rungs) == rungs + 1:
                return told
            following = told["next"]
            clock.sleep(told["retry_after"])

    @property
    def measured(self) -> Capacity:
        found = load_capacity(self.context, self.rollout)
        assert found is not None
        return found

    @property
    def weights(self) -> set[int]:
        """Those that the load balancer has, of all servers."""
        return {*self.balancer.weights.values()}

    @property
    def lent(self) -> dict[str, int]:
        """The servers whose weight is not the usual one."""
        return {name: own for name, own in self.balancer.weights.items() if own != 16}

    @property
    def is_measuring(self) -> bool:
        return read_rollout(self.context, self.rollout).head.measuring is not None


class CarryingMoves(Scenario):
    """Moves upon a Carrying."""

    def planned(self, more: dict[str, Any] | None) -> None:
        """A measurement is planned, and PLAN is its digest."""
        self._names["PLAN"] = self.world.plan_it(**(more or {}))  # type: ignore[attr-defined]

    def measuring(self, rungs: int) -> None:
        """A measurement has begun, and so many weights were lent; -1 for none at all."""
        self.world.begin_it()  # type: ignore[attr-defined]
        if rungs >= 0:
            self.world.climb(rungs)  # type: ignore[attr-defined]
