# SPDX-License-Identifier: Apache-2.0
"""PoPs that take each other's traffic: who waits for whom, and that nobody waits for ever."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

import pytest

from edgetune.base.documents.batch import Batch, HostStep, batch_key
from edgetune.base.documents.head import head_key
from edgetune.base.errors import DamagedError, DrainError, InputError
from edgetune.net.inventories.yaml import YamlInventory
from edgetune.rollout.gates.floor import with_room
from edgetune.rollout.ownership.lease import as_owner
from edgetune.rollout.record.rollout import read_rollout, under_way
from edgetune.rollout.steps.begin_rollback import begin_rollback
from edgetune.rollout.steps.check_drained import check_drained
from edgetune.rollout.steps.claim_pop import claim_pop
from edgetune.rollout.steps.drain_hosts import begin_drain
from edgetune.rollout.steps.plan_rollout import plan_rollout
from edgetune.rollout.steps.set_rollout_state import set_rollout_state
from tests.support.builders import write_yaml
from tests.support.campaign_world import inventory_of_four
from tests.support.virtual_clock import VirtualClock
from tests.support.world import Balancer, EmptyWorld

ONE, OTHER, APART = "ams1", "ams2", "fra1"


class TwinWorld(EmptyWorld):
    """Rollouts that change hosts on ams1 and ams2, which back each other up, and on fra1."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        document = inventory_of_four()
        document["pops"][ONE]["backs_up"] = [OTHER]
        self.change_inventory(document)
        self.balancers = {
            name: Balancer(self.moments, self.hosts.not_ready) for name in document["pops"]
        }
        balancers: Any = self.balancers
        self.context.load_balancer = lambda pop: balancers[pop.name]  # type: ignore[method-assign]
        self.rollouts: dict[str, str] = {}
        self.epochs: dict[str, int] = {}

    def start(self, pop: str, by: str = "ana") -> None:
        """Begin a rollout there, up to its first batch."""
        digest = plan_rollout(self.context, pop, "accept_queue")["plan"]
        begun = claim_pop(self.context, plan=digest, owner="run-1", requested_by=by)
        self.rollouts[pop], self.epochs[pop] = begun["rollout"], begun["epoch"]
        for state in ("baseline", "changing"):
            self.enter(pop, state)

    def enter(self, pop: str, state: str) -> None:
        given = (self.context, self.rollouts[pop], self.epochs[pop])
        marked: Any = (
            begin_rollback(*given) if state == "rolling_back" else set_rollout_state(*given, state)
        )
        self.epochs[pop] = marked["epoch"]

    def take_back(self, pop: str) -> int:
        """Begin its rollback; the number of the first batch of that."""
        self.enter(pop, "rolling_back")
        return read_rollout(self.context, self.rollouts[pop]).head.first_restore

    def take(self, step: Callable[..., Any], pop: str, batch: int = 0) -> Any:
        return step(self.context, self.rollouts[pop], self.epochs[pop], batch)

    def at_work(self, pop: str) -> bool:
        return any(under_way(read_rollout(self.context, self.rollouts[pop]).begun_batches))

    def settle(self, pop: str, batch: int = 0) -> None:
        """Its batch has ended, and the hosts serve again."""
        opened = as_owner(self.context, self.rollouts[pop])
        work = opened.batch(batch)
        for host in work.hosts.values():
            host.go("done")
        work.checked = True
        opened.save_batch(work)
        for name in self.balancers[pop].state:
            self.balancers[pop].state[name] = "ready"


@pytest.fixture
def world(tmp_path: Path) -> TwinWorld:
    made = TwinWorld(tmp_path)
    for pop, by in ((ONE, "ana"), (OTHER, "ben"), (APART, "cid")):
        made.start(pop, by)
    return made


def test_a_batch_waits_for_the_one_of_its_twin_and_says_whose_it_is(world: TwinWorld) -> None:
    assert world.take(begin_drain, ONE)["next"] == "check_drained"
    told = world.take(begin_drain, OTHER)
    assert (told["waiting"], told["next"]) == (1, "drain_hosts")
    assert told["message"].startswith(f"{ONE}, which {OTHER} backs up, has a batch under way (e0")
    assert f"rollout {world.rollouts[ONE]} (accept_queue, by ana) is changing" in told["message"]
    assert not world.at_work(OTHER) and world.balancers[OTHER].log == []
    # It is seen where people look, and what begun goes on.
    wait = read_rollout(world.context, world.rollouts[OTHER]).wait
    assert wait and wait.until.startswith(f"no batch of {ONE} is under way")
    assert world.take(check_drained, ONE)["failed"] == []
    assert world.take(begin_drain, APART)["next"] == "check_drained"


def test_the_twin_has_its_turn_once_the_batch_has_ended(world: TwinWorld) -> None:
    world.take(begin_drain, ONE)
    world.take(begin_drain, OTHER)
    world.settle(ONE)
    assert world.take(begin_drain, OTHER)["waiting"] == 1
    assert world.at_work(OTHER)
    assert world.take(begin_drain, ONE, 1)["next"] == "drain_hosts"


def test_a_rollback_waits_for_one_batch_of_its_twin_and_goes_before_the_next(
    world: TwinWorld,
) -> None:
    """The workflow of the change is there at once; that of the rollback looks each minute."""
    world.take(begin_drain, ONE)
    world.settle(ONE)
    world.take(begin_drain, OTHER)
    back = world.take_back(ONE)
    told = world.take(begin_drain, ONE, back)
    assert told["waiting"] and f"{OTHER}, which {ONE} backs up" in told["message"]
    world.settle(OTHER)
    told = world.take(begin_drain, OTHER, 1)
    assert told["next"] == "drain_hosts"
    assert f"{ONE}, which {OTHER} backs up, is taken back first: rollout" in told["message"]
    assert world.take(begin_drain, ONE, back)["next"] == "check_drained"
    assert world.at_work(ONE)
    assert world.take(begin_drain, OTHER, 1)["next"] == "drain_hosts"
    world.settle(ONE, back)
    world.enter(ONE, "rolled_back")
    assert world.take(begin_drain, OTHER, 1)["next"] == "check_drained"


def test_a_rollback_waits_for_no_twin_that_makes_no_step(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """A person paused its execution in the middle of a batch, or nobody carries it on."""
    world = TwinWorld(tmp_path)
    for pop in (ONE, OTHER):
        world.start(pop)
    world.take(begin_drain, ONE)
    world.settle(ONE)
    world.take(begin_drain, OTHER)
    back = world.take_back(ONE)
    clock.wait(world.context.config.owner_timeout)
    assert world.take(begin_drain, ONE, back)["waiting"]
    clock.wait(1)
    assert world.take(begin_drain, ONE, back)["next"] == "check_drained"
    # A change waits all the same.
    world.settle(ONE, back)
    world.enter(ONE, "rolled_back")
    world.start(ONE)
    assert world.take(begin_drain, ONE)["next"] == "drain_hosts"


def test_two_that_go_back_with_hosts_out_do_not_wait_for_each_other(world: TwinWorld) -> None:
    for pop in (ONE, OTHER):
        world.take(begin_drain, pop)
        world.settle(pop)
        # Both have a batch under way, as if the claim of both had been lost.
        opened = as_owner(world.context, world.rollouts[pop])
        work = opened.batch(1)
        for name, host in work.hosts.items():
            host.lb_before = "ready"
            world.balancers[pop].state[name] = "drain"
        opened.move(work, [*work.hosts], "draining")
    first = {pop: world.take_back(pop) for pop in (ONE, OTHER)}
    # What the way forward left is out of traffic, and no batch any more.
    assert world.take(begin_drain, ONE, first[ONE] + 1)["next"] == "check_drained"
    world.settle(ONE, first[ONE] + 1)
    for pop in (ONE, OTHER):
        told = world.take(begin_drain, pop, first[pop])
        assert told["next"] == "check_drained", (pop, told)


def test_a_batch_that_has_begun_goes_on(world: TwinWorld) -> None:
    world.take(begin_drain, ONE)
    opened = as_owner(world.context, world.rollouts[OTHER])
    work = opened.batch(0)
    work.hosts[[*work.hosts][0]].lb_before = "ready"
    opened.move(work, [*work.hosts], "draining")
    for pop in (ONE, OTHER):
        assert world.take(begin_drain, pop)["next"] == "check_drained"


def test_both_at_one_moment_begin_once(world: TwinWorld) -> None:
    key = f"twins/{ONE}+{OTHER}"
    claim = world.context.claims.take(key, "somebody", 60)
    told = world.take(begin_drain, ONE)
    assert told["next"] == "drain_hosts" and "at this moment" in told["message"]
    world.context.claims.release(key, claim)
    assert world.take(begin_drain, ONE)["next"] == "check_drained"
    # Nobody has to wait until it runs out.
    assert world.context.claims.holder(key) is None


def test_a_turn_that_was_lost_meanwhile_begins_nothing(world: TwinWorld) -> None:
    key = f"twins/{ONE}+{OTHER}"
    own = world.balancers[ONE]

    def lost() -> Any:
        held = world.context.claims.holder(key)
        if held and held.rollout == world.rollouts[ONE]:
            world.context.claims.release(key, held)
            world.context.claims.take(key, "somebody", 60)
        return Balancer.servers(own)

    own.servers = lost  # type: ignore[method-assign]
    assert "at this moment" in world.take(begin_drain, ONE)["message"]
    assert not world.at_work(ONE) and own.log == []


def test_both_together_keep_their_common_floor(world: TwinWorld) -> None:
    serving = read_rollout(world.context, world.rollouts[OTHER]).pop
    out = len(serving.hosts) - serving.must_serve
    for name in list(world.balancers[OTHER].state)[: 2 * out]:
        world.balancers[OTHER].state[name] = "maint"
    told = world.take(begin_drain, ONE)
    assert told["next"] == "drain_hosts"
    assert f"{ONE} and {OTHER} back each other up: without e0" in told["message"]
    assert "hosts of both would serve" in told["message"]
    assert world.balancers[ONE].log == []
    world.balancers[OTHER].state["e000"] = "ready"
    assert world.take(begin_drain, ONE)["next"] == "check_drained"


def test_a_way_back_takes_as_many_as_their_common_floor_permits(world: TwinWorld) -> None:
    changes = len(read_rollout(world.context, world.rollouts[ONE]).plan.batches)
    for number in range(changes):
        world.take(begin_drain, ONE, number)
        world.settle(ONE, number)
    back = world.take_back(ONE)
    opened = read_rollout(world.context, world.rollouts[ONE])
    whole = len(opened.batch(back).hosts)
    assert whole > 2
    # Without all of the batch two too few would serve.
    out = 2 * (len(opened.pop.hosts) - opened.pop.must_serve) - whole + 2
    for name in [*world.balancers[OTHER].state][:out]:
        world.balancers[OTHER].state[name] = "maint"
    told = world.take(begin_drain, ONE, back)
    assert (told["next"], told["waiting"]) == ("check_drained", whole - 2)
    batch = read_rollout(world.context, world.rollouts[ONE]).batch(back)
    assert (len(batch.at("draining")), len(batch.at("planned"))) == (whole - 2, 2)


def test_where_nobody_can_tell_of_a_twin_a_change_waits_and_a_way_back_goes_on(
    world: TwinWorld,
) -> None:
    world.take(begin_drain, ONE)
    world.settle(ONE)
    away = world.balancers[OTHER]
    away.gone = "lb2"
    told = world.take(begin_drain, ONE, 1)
    assert told["next"] == "drain_hosts"
    assert f"how many hosts of {OTHER} serve, which {ONE} backs up, is not known" in told["message"]
    away.gone = ""
    world.context.store.put(head_key(world.rollouts[OTHER]), "no JSON")
    told = world.take(begin_drain, ONE, 1)
    assert "has a rollout whose record cannot be read" in told["message"]
    away.gone = "lb2"
    back = world.take_back(ONE)
    assert world.take(begin_drain, ONE, back)["next"] == "check_drained"


def test_hosts_of_a_twin_that_do_not_answer_hold_up_no_way_back(world: TwinWorld) -> None:
    world.take(begin_drain, ONE)
    world.settle(ONE)
    own = world.balancers[OTHER]

    def servers() -> Any:
        told = Balancer.servers(own)
        return {n: replace(s, up=False, unknown="no answer over SSH") for n, s in told.items()}

    own.servers = servers  # type: ignore[method-assign]
    assert "hosts of both would serve" in world.take(begin_drain, ONE, 1)["message"]
    back = world.take_back(ONE)
    assert world.take(begin_drain, ONE, back)["next"] == "check_drained"


def test_what_is_kept_damaged_of_a_twin_holds_up_no_way_back(
    world: TwinWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.take(begin_drain, ONE)
    world.settle(ONE)
    inventory: Any = world.context.inventory
    read, take = inventory.pop, world.context.claims.take

    def no_twin(name: str) -> Any:
        if name == OTHER:
            raise DamagedError(f"edgetune.inventory.{OTHER}", "", "is no JSON")
        return read(name)

    def no_turn(key: str, *given: Any) -> Any:
        if key.startswith("twins/"):
            raise DamagedError(key, "", "holds no claim, or no epoch")
        return take(key, *given)

    monkeypatch.setattr(inventory, "pop", no_twin)
    told = world.take(begin_drain, ONE, 1)
    assert told["next"] == "drain_hosts" and "is no JSON" in told["message"]
    back = world.take_back(ONE)
    monkeypatch.setattr(world.context.claims, "take", no_turn)
    assert world.take(begin_drain, ONE, back)["next"] == "check_drained"


def test_a_batch_of_a_twin_that_cannot_be_read_counts_as_one(world: TwinWorld) -> None:
    world.context.store.put(batch_key(world.rollouts[OTHER], 0), "no JSON")
    told = world.take(begin_drain, ONE)
    assert f"{OTHER}, which {ONE} backs up, may have a batch under way" in told["message"]


def test_its_own_load_balancer_is_asked_as_before(world: TwinWorld) -> None:
    world.balancers[ONE].gone = "lb1"
    with pytest.raises(DrainError, match="lb1: does not answer"):
        world.take(begin_drain, ONE)


def test_a_group_that_fails_together_stays_in_while_another_is_out(world: TwinWorld) -> None:
    (host,) = read_rollout(world.context, world.rollouts[APART]).batch(0).hosts
    others = sorted(own for own in world.balancers[APART].state if own != host)
    document = inventory_of_four()
    document["pops"][APART]["fails_together"] = [[host, others[0]], others[1:3]]
    world.change_inventory(document)
    for name in others[:3]:
        world.balancers[APART].state[name] = "maint"
    told = world.take(begin_drain, APART)
    assert told["next"] == "drain_hosts"
    pair = ", ".join((host, others[0]))
    assert f"without {host} all of {pair} would be out, which fail together" in told["message"]
    world.balancers[APART].state[others[1]] = "ready"
    assert world.take(begin_drain, APART)["next"] == "check_drained"


def test_a_way_back_takes_one_group_after_the_other(world: TwinWorld) -> None:
    opened = read_rollout(world.context, world.rollouts[APART])
    names = sorted(world.balancers[APART].state)[:4]
    document = inventory_of_four()
    document["pops"][APART]["fails_together"] = [names[:2], names[2:]]
    work = Batch("", 0, "restore", "", {name: HostStep() for name in names})
    driver: Any = world.balancers[APART]
    assert with_room(opened, driver, work, names) == names
    world.change_inventory(document)
    opened = read_rollout(world.context, world.rollouts[APART])
    assert with_room(opened, driver, work, names) == names[:2]
    assert with_room(opened, driver, work, names[2:]) == names[2:]


def pops(folder: Path, **more: dict[str, Any]) -> YamlInventory:
    document = inventory_of_four()
    for name, fields in more.items():
        document["pops"][name].update(fields)
    return YamlInventory(write_yaml(folder / "inventory.yaml", document))


def test_one_word_makes_two_twins_and_is_kept_of_both(tmp_path: Path) -> None:
    inventory = pops(tmp_path, ams1={"backs_up": ["ams2", "fra1"]}, fra1={"backs_up": ["ams1"]})
    assert inventory.pop("ams1").backs_up == ("ams2", "fra1")
    assert inventory.pop("ams2").backs_up == inventory.pop("fra1").backs_up == ("ams1",)
    assert inventory.pop("lax1").backs_up == ()
    # Single PoPs are read of what is kept.
    assert inventory.entry("ams2")["backs_up"] == ["ams1"]
    assert "backs_up" not in inventory.entry("lax1")


@pytest.mark.parametrize(
    ("twins", "says"),
    [
        (["ams3"], "pops.ams1.backs_up[0]: there is no PoP 'ams3' (did you mean ams2?"),
        (["fra1", "ams1"], "pops.ams1.backs_up[1]: is the PoP itself"),
        ("ams2", "pops.ams1.backs_up: must be a list"),
    ],
)
def test_a_twin_that_is_none_is_refused(tmp_path: Path, twins: Any, says: str) -> None:
    with pytest.raises(InputError) as caught:
        pops(tmp_path, ams1={"backs_up": twins})
    assert says in str(caught.value)
