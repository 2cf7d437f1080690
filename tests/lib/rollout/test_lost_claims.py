# SPDX-License-Identifier: Apache-2.0
"""Claims whose backend lost its last writes, or keeps junk: two owners never share an epoch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest

from edgetune.base.errors import DamagedError, EdgetuneError, FencedError, RefusedError, StoreError
from edgetune.net.databases import Database
from edgetune.net.metrics.samples import RedisSamples
from edgetune.rollout.ownership.lease import open_rollout
from edgetune.rollout.record.rollout import save_plan
from edgetune.rollout.store.claims import Claim, RedisClaims, SqliteClaims
from tests.lib.rollout.test_stores import STORES, redis, redis_client  # noqa: F401 - fixtures
from tests.support.builders import plan, reading
from tests.support.world import EmptyWorld, World, changing, ended

TABLES = {"claims": "pop, value, expires", "epochs": "pop, epoch"}


class Sqlite:
    """The claims of a world, and what a backup of them holds."""

    def __init__(self, world: EmptyWorld) -> None:
        self.database = Database(world.config["coordination"])
        world.context.claims = SqliteClaims(self.database)

    def backup(self) -> Any:
        with self.database.transaction() as db:
            return {name: db.execute(f"SELECT * FROM {name}").fetchall() for name in TABLES}

    def restore(self, kept: Any, *lost: str) -> None:
        """Go back to a backup, from which what is ``lost`` is missing."""
        with self.database.transaction() as db:
            for name, columns in TABLES.items():
                db.execute(f"DELETE FROM {name}")
                marks = ", ".join("?" for _ in columns.split(", "))
                for row in [] if name in lost else kept[name]:
                    db.execute(f"INSERT INTO {name} VALUES ({marks})", row)


class Redis:
    """The same on a real server."""

    def __init__(self, world: EmptyWorld, client: Any) -> None:
        self.client = client
        client.flushall()
        claim = world.context.claims.holder("lab1")
        if claim:
            client.set("edgetune:epoch:lab1", claim.epoch)
            text = json.dumps({"rollout": claim.rollout, "epoch": claim.epoch})
            client.set("edgetune:claim:lab1", text, px=int(world.context.config.claim_ttl * 1000))
        world.context.claims = RedisClaims(client)

    def backup(self) -> Any:
        keys = list(self.client.scan_iter())
        return {key: (self.client.get(key), self.client.pttl(key)) for key in keys}

    def restore(self, kept: Any, *lost: str) -> None:
        self.client.flushall()
        for key, (value, left) in kept.items():
            if not any(key.startswith(f"edgetune:{name[:5]}") for name in lost):
                self.client.set(key, value, px=left if left > 0 else None)


@pytest.fixture(params=STORES)
def backend(request: pytest.FixtureRequest) -> Iterator[Callable[[EmptyWorld], Any]]:
    if request.param == "sqlite":
        yield Sqlite
    else:
        client = request.getfixturevalue("redis")
        yield lambda world: Redis(world, client)


def took_a_new_epoch(world: World, before: int) -> None:
    """Somebody takes the rollout over: above all that was ever given away, alone from then on."""
    taken = world.run("take_over_rollout", requested_by="bo")
    assert taken["epoch"] > before
    for epoch in range(1, taken["epoch"]):
        with pytest.raises(FencedError):
            open_rollout(world.context, world.rollout, epoch)
    open_rollout(world.context, world.rollout, taken["epoch"])
    assert world.head.epoch == taken["epoch"]


STEPS: dict[str, Callable[[World], Any]] = {
    "mark": lambda world: world.mark("changing"),
    "take over": lambda world: world.take_over(),
    "take over twice": lambda world: [world.take_over(), world.take_over()],
    "roll back": lambda world: world.mark("rolling_back"),
}


@pytest.mark.parametrize("lost", [(), ("claims",), ("epochs",), ("claims", "epochs")])
@pytest.mark.parametrize("step", STEPS)
def test_a_backend_that_lost_its_last_write_gives_no_epoch_twice(
    tmp_path: Path, backend: Any, step: str, lost: tuple[str, ...]
) -> None:
    world = changing(tmp_path)
    kept = backend(world)
    older, image = world.epoch, kept.backup()
    STEPS[step](world)
    assert world.epoch > older
    kept.restore(image, *lost)
    # Whoever was replaced is told so by the record, although the claim is its own again.
    with pytest.raises(FencedError):
        open_rollout(world.context, world.rollout, older)
    with pytest.raises(FencedError):
        world.run("begin_rollback", epoch=older)
    took_a_new_epoch(world, world.epoch)


def test_states_and_looks_are_above_the_record_when_the_count_alone_is_lost(
    tmp_path: Path, backend: Any
) -> None:
    """The claim is still held, so nobody is fenced; hosts would refuse a smaller epoch."""
    world = changing(tmp_path)
    kept = backend(world)
    kept.restore(kept.backup(), "epochs")
    before = world.epoch
    assert world.mark("changing")["epoch"] == before + 1
    world.roll_all({"first_batch": 0, "end_batch": 4})
    world.mark("soaking")
    kept.restore(kept.backup(), "epochs")
    world.set_head(soak=[at - 1e5 for at in world.head.soak])
    looked = world.run("compare_groups")["epoch"]
    assert looked > world.epoch
    took_a_new_epoch(world, looked)


def test_of_two_marks_of_one_epoch_the_later_is_fenced(tmp_path: Path) -> None:
    """Both were let in before either took the new epoch."""
    world = changing(tmp_path)
    epoch, take = world.epoch, world.context.claims.take
    inside: list[int] = []

    def taken(*given: Any, **more: Any) -> Claim:
        if not inside:
            inside.append(epoch)
            inside.append(world.run("begin_rollback")["epoch"])
        return take(*given, **more)

    world.context.claims.take = taken
    with pytest.raises(FencedError, match=f"epoch {epoch}, has lost its claim on lab1"):
        world.run("set_rollout_state", state="changing")
    assert (world.head.state, world.head.epoch) == ("rolling_back", inside[1])


def planned(world: EmptyWorld, folder: Path, seed: int = 7) -> str:
    made = plan(folder, seed=seed)
    save_plan(world.context, made)
    return made.digest


def forget(world: EmptyWorld) -> None:
    with Database(world.config["coordination"]).transaction() as db:
        for name in TABLES:
            db.execute(f"DELETE FROM {name}")


def test_a_rollout_begins_and_is_taken_over_above_all_of_its_pop(tmp_path: Path) -> None:
    world = ended(tmp_path)
    forget(world)
    begun = world.run("claim_pop", planned(world, tmp_path))
    assert begun["epoch"] == world.epoch + 1
    forget(world)
    # The PoP is half changed, although the claim has run out.
    with pytest.raises(
        RefusedError, match=f"lab1 has a rollout that is claimed: {begun['rollout']}"
    ):
        world.run("take_over_rollout")
    assert world.context.claims.holder("lab1") is None
    taken = world.run("take_over_rollout", begun["rollout"])
    assert taken["epoch"] == begun["epoch"] + 1


def test_of_two_that_begin_at_once_the_later_sees_the_other(tmp_path: Path) -> None:
    """Its own look came before the other one had begun, its claim after that one's ran out."""
    world = EmptyWorld(tmp_path)
    take, begun = world.context.claims.take, []

    def taken(*given: Any, **more: Any) -> Claim:
        if not begun:
            begun.append("")
            begun[0] = world.run("claim_pop", planned(world, tmp_path, 8))["rollout"]
            forget(world)
        return take(*given, **more)

    world.context.claims.take = taken
    digest = planned(world, tmp_path)
    with pytest.raises(RefusedError, match="lab1 has a rollout that is claimed: "):
        world.run("claim_pop", digest)
    assert world.context.claims.holder("lab1") is None
    assert world.run("rollout_status", "")["ids"] == begun


JUNK = ["", "{", "7", "[]", "null", '{"rollout": 7, "epoch": 1}', '{"rollout": "x"}']
JUNK += ['{"rollout": "x", "epoch": 1e300}', '{"rollout": "x", "epoch": "1"}', "[" * 5000]
JUNK += ['{"rollout": "x", "epoch": -1}', '{"rollout": "x", "epoch": 1.5}', "\x00"]


def calls(claims: Any, pop: str) -> list[Callable[[], Any]]:
    mine = Claim("one", 1)
    return [
        lambda: claims.take(pop, "one", 60),
        lambda: claims.holder(pop),
        lambda: claims.renew(pop, mine, 60),
        lambda: claims.release(pop, mine),
    ]


def _say_damaged(claims: Any, key: str, count: int = 4) -> None:
    for call in calls(claims, "lab1")[:count]:
        with pytest.raises(DamagedError, match=f"{key} is damaged"):
            call()


@pytest.mark.processes
def test_junk_in_the_place_of_a_claim_is_named(tmp_path: Path, redis: Any) -> None:  # noqa: F811
    database = Database(f"sqlite:///{tmp_path}/state.sqlite")
    for junk in [*JUNK, b"\xff\xfe"]:
        redis.set("edgetune:claim:lab1", junk)
        _say_damaged(RedisClaims(redis), "edgetune:claim:lab1")
        with database.transaction() as db:
            db.execute("INSERT OR REPLACE INTO claims VALUES ('lab1', ?, 1e10)", (junk,))
        _say_damaged(SqliteClaims(database), "claims.lab1")
    assert SqliteClaims(database).take("lab2", "one", 60).epoch == 1
    for junk in (b"a\xff", b"\\ud800"):
        redis.set("edgetune:claim:lab1", b'{"rollout": "%s", "epoch": 1}' % junk)
        _say_damaged(RedisClaims(redis), "edgetune:claim:lab1", 3)


@pytest.mark.processes
def test_junk_in_the_place_of_an_epoch_is_named(tmp_path: Path, redis: Any) -> None:  # noqa: F811
    database = Database(f"sqlite:///{tmp_path}/state.sqlite")
    claims = SqliteClaims(database)
    for junk in ("x", "-1", "1.5", "1e300", "nan", "inf", ""):
        redis.set("edgetune:epoch:lab1", junk)
        _say_damaged(RedisClaims(redis), "edgetune:epoch:lab1", 1)
        with database.transaction() as db:
            db.execute("INSERT OR REPLACE INTO epochs VALUES ('lab1', ?)", (f"x{junk}",))
            db.execute("INSERT OR REPLACE INTO claims VALUES ('lab2', 'x', ?)", (f"x{junk}",))
        with pytest.raises(DamagedError, match="epochs.lab1 is damaged: epoch: is no epoch"):
            claims.take("lab1", "one", 60)
        assert claims.expiries(["lab1", "lab2"]) == {"lab1": 0.0, "lab2": 0.0}


@pytest.mark.processes
def test_a_key_of_another_kind_is_an_error_that_names_it(redis: Any) -> None:  # noqa: F811
    for kind in ("claim", "epoch", "samples"):
        redis.hset(f"edgetune:{kind}:lab1", "a", "b")
    samples = RedisSamples(redis, 60.0)
    for call in (
        *calls(RedisClaims(redis), "lab1"),
        lambda: samples.window("lab1", 0, 1),
        lambda: samples.add("lab1", [reading("a", 1.0)]),
    ):
        with pytest.raises(StoreError, match="Redis: edgetune:(claim|samples):lab1: "):
            call()


def test_junk_about_one_pop_stops_no_other(tmp_path: Path, backend: Any) -> None:
    world = changing(tmp_path)
    kept = backend(world)
    if isinstance(kept, Redis):
        kept.client.set("edgetune:claim:lab2", "{")
    else:
        with kept.database.transaction() as db:
            db.execute("INSERT INTO claims VALUES ('lab2', '{', 1e10)")
    assert world.run("rollout_status", rollout="", orphaned=True)["ids"] == []
    assert world.take_over()["claimed"]
    with pytest.raises(EdgetuneError, match="lab2 is damaged"):
        world.context.claims.holder("lab2")
