# SPDX-License-Identifier: Apache-2.0
"""Claims and samples on SQLite and on a real Redis; records on SQLite and on an API."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgetune.config import read_config
from edgetune.connections import Database, open_redis
from edgetune.documents.reading import encoded
from edgetune.documents.rounds import Rounds
from edgetune.documents.sample import Sample, sample_answer
from edgetune.errors import DamagedError, FencedError, InputError, NoAnswerError, StoreError
from edgetune.metrics.catalogue import METRICS
from edgetune.metrics.memory import retained_bytes
from edgetune.metrics.samples import Limit, RedisSamples, SqliteSamples, make_sample
from edgetune.metrics.table import SampleTable
from edgetune.rollout import stackstorm
from edgetune.rollout import store as stores
from edgetune.rollout.claims import Claim, RedisClaims, SqliteClaims
from edgetune.rollout.guard.turns import TURN, Alone, RedisTurns
from edgetune.rollout.heartbeat import (
    Heartbeat,
    Heartbeats,
    RedisHeartbeats,
    SqliteHeartbeats,
)
from edgetune.rollout.nodes import FRESH, Node, RedisNodes
from edgetune.rollout.stackstorm import StackStorm
from edgetune.rollout.store import WITNESS, SensorStore, SqliteStore, St2Store, open_store
from edgetune.rounds.kept import KeptRounds, RedisRounds, SqliteRounds
from tests.support.builders import reading
from tests.support.virtual_clock import VirtualClock

FIELDS = ("host", "boot_id", "time", "uptime", "counters", "gauges")

STORES = ["sqlite", pytest.param("redis", marks=pytest.mark.processes)]


@pytest.fixture(scope="module")
def redis_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    server = shutil.which("redis-server")
    if server is None:
        pytest.skip("redis-server is not installed")
    place = tmp_path_factory.mktemp("redis")
    # Redis writes its title over the environment by which tests.support.leftovers would find it.
    dies_with_us = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    command = [
        *dies_with_us,
        server,
        "--port",
        "0",
        "--unixsocket",
        "redis.sock",
        "--save",
        "",
        "--daemonize",
        "no",
    ]
    process = subprocess.Popen(command, cwd=place, stdout=subprocess.DEVNULL)
    socket = str(place / "redis.sock")
    config: Any = SimpleNamespace(coordination=f"unix://{socket}", coordination_password_file="")
    client = open_redis(config)
    try:
        _until_it_answers(client)
        yield client
    finally:
        client.close()
        process.terminate()
        process.wait()


def _until_it_answers(client: Any) -> None:
    import redis

    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            client.ping()
            return
        except redis.ConnectionError:
            time.sleep(0.02)
    raise AssertionError("redis-server did not start")


@pytest.fixture(params=STORES)
def claims(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "sqlite":
        return SqliteClaims(Database(f"sqlite:///{tmp_path}/state.sqlite"))
    client = request.getfixturevalue("redis_client")
    client.flushall()
    return RedisClaims(client)


@pytest.fixture(params=STORES)
def samples(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "sqlite":
        return SqliteSamples(Database(f"sqlite:///{tmp_path}/state.sqlite"), 100.0)
    client = request.getfixturevalue("redis_client")
    client.flushall()
    return RedisSamples(client, 100.0)


def test_whether_claims_can_be_written_is_seen_without_writing(claims: Any) -> None:
    assert claims.refuses_changes() == ""
    assert claims.take("lab1", "one", 60).epoch == 1


@pytest.fixture(params=STORES)
def heartbeats(request: pytest.FixtureRequest, tmp_path: Path) -> Heartbeats:
    if request.param == "sqlite":
        return SqliteHeartbeats(Database(f"sqlite:///{tmp_path}/state.sqlite"))
    client = request.getfixturevalue("redis_client")
    client.flushall()
    return RedisHeartbeats(client)


@pytest.mark.processes
def test_the_last_heartbeat_is_kept(heartbeats: Heartbeats) -> None:
    assert heartbeats.last("guard") is None
    for heartbeat in (Heartbeat(7.5), Heartbeat(8.0, "\u00e9 {% x %}")):
        heartbeats.beat("guard", heartbeat)
        assert heartbeats.last("guard") == heartbeat


@pytest.mark.processes
@pytest.mark.parametrize(
    "text", ["", "7", "{", '{"time": "7", "problem": ""}', '{"time": 7.0}', '{"problem": ""}']
)
def test_what_is_no_heartbeat_is_damaged(redis_client: Any, tmp_path: Path, text: str) -> None:
    redis_client.set("edgetune:heartbeat:guard", text)
    database = Database(f"sqlite:///{tmp_path}/state.sqlite")
    with database.transaction() as db:
        db.execute("INSERT INTO heartbeats VALUES (?, ?)", ("edgetune:heartbeat:guard", text))
    for kept in (RedisHeartbeats(redis_client), SqliteHeartbeats(database)):
        with pytest.raises(DamagedError, match="edgetune:heartbeat:guard is damaged"):
            kept.last("guard")


@pytest.fixture(params=STORES)
def kept_rounds(request: pytest.FixtureRequest, tmp_path: Path) -> KeptRounds:
    if request.param == "sqlite":
        return SqliteRounds(Database(f"sqlite:///{tmp_path}/state.sqlite"))
    client = request.getfixturevalue("redis_client")
    client.flushall()
    return RedisRounds(client, 100.0)


def test_rounds_of_a_pop_are_kept_instead_of_those_before(kept_rounds: KeptRounds) -> None:
    assert kept_rounds.get("lab1") is None
    for rounds in (Rounds("lab1", problem="\u00e9"), Rounds("lab1", epoch=7, selection="{}")):
        kept_rounds.put(rounds)
        assert kept_rounds.get("lab1") == rounds
    assert kept_rounds.get("lab") is None


@pytest.mark.processes
def test_rounds_are_kept_in_redis_for_a_while_and_damage_is_named(redis_client: Any) -> None:
    redis_client.flushall()
    rounds = RedisRounds(redis_client, 100.0)
    rounds.put(Rounds("lab1"))
    assert 0 < redis_client.ttl("edgetune:congestion:lab1") <= 100
    redis_client.set("edgetune:congestion:lab1", b"\xff")
    with pytest.raises(DamagedError, match="edgetune:congestion:lab1 is damaged"):
        rounds.get("lab1")


@pytest.mark.processes
def test_of_two_guards_one_looks_until_it_stops(redis_client: Any) -> None:
    redis_client.flushall()
    turns = RedisTurns(redis_client)
    assert [turns.has(name) for name in ("one", "two", "one", "two")] == [True, False, True, False]
    turns.give_up("two")
    assert not turns.has("two")
    turns.give_up("one")
    assert turns.has("two") and not turns.has("one")
    assert 0 < redis_client.ttl("edgetune:guard:turn") <= TURN


@pytest.mark.processes
def test_people_are_told_once_whichever_guard_tells_them(redis_client: Any) -> None:
    redis_client.flushall()
    turns, alone = RedisTurns(redis_client), Alone()
    for each in (turns, alone):
        assert not each.was_told("a")
        each.tell("a")
        assert each.was_told("a") and not each.was_told("b")
        redis_client.expire("edgetune:told:a", 7)
        each.tell("a")
    # That it is told again each time keeps it no longer.
    assert redis_client.ttl("edgetune:told:a") <= 7
    assert RedisTurns(redis_client).was_told("a")


@pytest.mark.processes
def test_what_nodes_hold_is_kept_by_their_names(redis_client: Any) -> None:
    redis_client.flushall()
    nodes, now = RedisNodes(redis_client), time.time()
    one, two = Node("one", now, {"inventory": "a"}), Node("two", now, {"inventory": "b"})
    for node in (two, one._replace(holds={}), one, Node("gone", now - FRESH - 1, {})):
        nodes.keep(node)
    assert nodes.all() == [one, two]
    assert redis_client.hkeys("edgetune:nodes") == ["two", "one"]


@pytest.mark.processes
@pytest.mark.parametrize("text", ["", "7", '{"time": "7", "holds": {}}', '{"time": 7.0}'])
def test_what_is_no_node_is_damaged(redis_client: Any, text: str) -> None:
    redis_client.flushall()
    redis_client.hset("edgetune:nodes", "one", text)
    with pytest.raises(DamagedError, match="edgetune:nodes one is damaged"):
        RedisNodes(redis_client).all()


@pytest.mark.processes
def test_redis_that_takes_no_writes_is_seen_without_writing(redis_client: Any) -> None:
    redis_client.flushall()
    claims, before = RedisClaims(redis_client), redis_client.info("persistence")
    assert (claims.refuses_changes(), redis_client.dbsize()) == ("", 0)
    changes = "rdb_changes_since_last_save"
    assert redis_client.info("persistence")[changes] == before[changes]
    for breaks, heals, says in (
        ({"maxmemory": "1"}, {"maxmemory": "0"}, "command not allowed when used memory"),
        ({"min-replicas-to-write": "1"}, {"min-replicas-to-write": "0"}, "Not enough good"),
    ):
        redis_client.config_set(*next(iter(breaks.items())))
        try:
            assert says in claims.refuses_changes()
        finally:
            redis_client.config_set(*next(iter(heals.items())))


def test_sqlite_that_cannot_be_written_is_seen_without_writing(tmp_path: Path) -> None:
    (tmp_path / "state.sqlite").write_bytes(b"no database" * 100)
    database = Database(f"sqlite:///{tmp_path}/state.sqlite")
    for store in (SqliteStore(database), SqliteClaims(database)):
        with pytest.raises(StoreError, match="file is not a database"):
            store.refuses_changes()


def test_a_pop_has_one_owner(claims: Any) -> None:
    claim = claims.take("lab1", "one", 60)
    with pytest.raises(FencedError, match="lab1 is claimed by rollout one"):
        claims.take("lab1", "two", 60)
    assert claims.holder("lab1") == claim == Claim("one", 1)
    assert claims.take("lab2", "two", 60).epoch == 1


def test_the_epoch_only_grows(claims: Any) -> None:
    first = claims.take("lab1", "one", 60)
    assert claims.release("lab1", first)
    assert claims.holder("lab1") is None
    assert claims.take("lab1", "two", 60).epoch == 2


def test_an_older_epoch_is_fenced_out(claims: Any) -> None:
    old = claims.take("lab1", "one", 60)
    new = claims.take("lab1", "one", 60)
    assert new.epoch == old.epoch + 1
    with pytest.raises(FencedError, match="has lost its claim on lab1: it belongs to one, epoch 2"):
        claims.renew("lab1", old, 60)
    assert not claims.release("lab1", old)
    claims.renew("lab1", new, 60)


def test_of_two_who_carry_on_the_same_epoch_one_wins(claims: Any) -> None:
    claim = claims.take("lab1", "one", 60)
    outcomes: list[str] = []

    def carry_on() -> None:
        try:
            claims.take("lab1", "one", 60, after=claim.epoch)
            outcomes.append("won")
        except FencedError:
            outcomes.append("fenced")

    callers = [threading.Thread(target=carry_on) for _ in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert sorted(outcomes) == ["fenced"] * 5 + ["won"]


def test_a_claim_that_ran_out_is_its_owner_s_until_somebody_takes_it(claims: Any) -> None:
    claim = claims.take("lab1", "one", 0.05)
    time.sleep(0.1)
    assert claims.holder("lab1") is None
    claims.renew("lab1", claim, 60)
    assert claims.holder("lab1") == claim
    claims.renew("lab1", claim, 0.05)
    time.sleep(0.1)
    carried_on = claims.take("lab1", "one", 0.05, after=claim.epoch)
    time.sleep(0.1)
    assert claims.take("lab1", "two", 60).epoch == 3
    with pytest.raises(FencedError, match="it belongs to two, epoch 3"):
        claims.renew("lab1", carried_on, 60)


def test_a_released_claim_cannot_be_renewed_by_an_older_epoch(claims: Any) -> None:
    old = claims.take("lab1", "one", 60)
    new = claims.take("lab1", "one", 60)
    assert claims.release("lab1", new)
    with pytest.raises(FencedError, match="nobody holds it"):
        claims.renew("lab1", old, 60)


def test_the_epoch_is_above_what_hosts_have_seen(claims: Any) -> None:
    assert claims.take("lab1", "one", 60, above=41).epoch == 42
    assert claims.take("lab1", "one", 60, above=7).epoch == 43


def test_an_owner_goes_on_above_an_epoch_that_the_backend_lost(claims: Any) -> None:
    with pytest.raises(FencedError, match="nobody holds it"):
        claims.renew("lab1", Claim("one", 41), 60)
    taken = claims.take("lab1", "one", 60, after=41, above=41)
    assert claims.holder("lab1") == taken == Claim("one", 42)


def test_a_claim_says_how_long_it_lasts(claims: Any) -> None:
    assert claims.expiries(["lab1"])["lab1"] == 0
    claim = claims.take("lab1", "one", 60)
    assert 30 < claims.expiries(["lab1"])["lab1"] <= 60
    claims.renew("lab1", claim, 30)
    assert 0 < claims.expiries(["lab1"])["lab1"] <= 30
    assert claims.release("lab1", claim)
    assert claims.expiries(["lab1"])["lab1"] == 0


def test_a_claim_given_back_with_a_grace_keeps_others_out_meanwhile(claims: Any) -> None:
    claim, other = claims.take("lab1", "one", 60), claims.take("lab2", "one", 60)
    assert claims.release("lab1", claim, after=30)
    assert 0 < claims.expiries(["lab1"])["lab1"] <= 30
    with pytest.raises(FencedError, match="lab1 is claimed by rollout one"):
        claims.take("lab1", "two", 60)
    assert claims.release("lab2", other, after=0.05)
    time.sleep(0.1)
    assert claims.take("lab2", "two", 60).epoch == 2
    assert not claims.release("lab2", other, after=60)
    assert claims.holder("lab2") == Claim("two", 2)


def test_samples_come_back_in_order_and_expire(samples: Any) -> None:
    rows = [reading(host, at) for at in (30.0, 10.0, 20.0) for host in ("a", "b")]
    samples.add("lab1", rows)
    samples.add("lab1", [])
    assert samples.window("lab1", 10, 20).time.tolist() == [10.0, 10.0, 20.0, 20.0]
    assert len(samples.window("lab2", 0, 99)) == 0
    samples.add("lab1", [reading("a", 125.0)])
    assert samples.window("lab1", 0, 200).time.tolist() == [30.0, 30.0, 125.0]


def test_the_newest_sample_of_each_pop_and_none_of_one_without(samples: Any) -> None:
    assert samples.newest([]) == {}
    assert samples.newest(["lab1"]) == {}
    samples.add("lab1", [reading("a", 30.0), reading("b", 10.5)])
    samples.add("lab2", [reading("a", 20.5)])
    assert samples.newest(["lab1", "lab2", "lab3"]) == {"lab1": 30.0, "lab2": 20.5}


def _is_left_out(folder: Path, text: str) -> None:
    """Of what is stored beside good samples."""
    database = Database(f"sqlite:///{folder}/state.sqlite")
    samples = SqliteSamples(database, 100.0)
    good = [reading("a", 10.0), reading("b", 30.0, cpu=1.5)]
    samples.add("lab1", good)
    _insert(database, text)
    assert [*samples.window("lab1", 0, 99).rows()] == good


@pytest.mark.parametrize(
    "field, value",
    [
        *((field, value) for field in FIELDS for value in ([], {"a": {}}, True, None)),
        *((field, value) for field in ("counters", "gauges") for value in ("", {"a": "1"})),
        *((field, 7) for field in ("host", "boot_id", "counters")),
        *((field, "7") for field in ("time", "uptime")),
    ],
)
def test_a_sample_with_a_field_of_another_type_is_left_out(
    tmp_path: Path, field: str, value: Any
) -> None:
    """Who reads them would end in the middle of its step: hosts are keys, times are compared."""
    _is_left_out(tmp_path, json.dumps({**encoded(reading("a", 20.0)), field: value}))


@pytest.mark.parametrize("text", ["", "{", '"', "7", "[]", "null", '{"host": "a"', "[" * 100_000])
def test_a_text_that_is_no_sample_is_left_out(tmp_path: Path, text: str) -> None:
    _is_left_out(tmp_path, text)


def test_samples_that_were_stored_alone_are_read_with_those_of_sweeps(tmp_path: Path) -> None:
    """The store of the version before keeps them for two weeks."""
    database = Database(f"sqlite:///{tmp_path}/state.sqlite")
    samples = SqliteSamples(database, 100.0)
    sweep = [reading("a", 10.0), reading("b", 10.0, cpu=1.5)]
    alone = replace(reading("c", 20.0, cpu=2.5), counters={"drops": 7, "packets": None})
    samples.add("lab1", sweep)
    for host in ("c", "d"):
        _insert(database, json.dumps({"schema": 1, **encoded(alone), "host": host}))
    samples.add("lab1", [reading("a", 30.0)])
    read = replace(alone, counters={"drops": 7})
    expected = [*sweep, read, replace(read, host="d"), reading("a", 30.0)]
    assert [*samples.window("lab1", 0, 99).rows()] == expected


def _stored_sweep() -> dict[str, Any]:
    rows = [reading("a", 20.0, cpu=1.0, load=3.0), reading("b", 20.0, cpu=2.0, load=4.0)]
    return SampleTable([replace(row, counters={"drops": 5}) for row in rows]).document()


@pytest.mark.parametrize(
    "field, value",
    [
        *(
            (field, value)
            for field in ("hosts", "boots")
            for value in (None, "ab", ["a"], ["a", 7])
        ),
        *(("uptime", value) for value in (None, "", "AAAA", "no base64", ["a"], 7)),
        *(("time", value) for value in (None, "7", True, -1.0, 1e999)),
        *(("schema", value) for value in (None, 3, "2")),
    ],
)
def test_a_sweep_that_does_not_say_whose_it_is_is_left_out(
    tmp_path: Path, field: str, value: Any
) -> None:
    _is_left_out(tmp_path, json.dumps({**_stored_sweep(), field: value}))


@pytest.mark.parametrize("value", [None, "", "AAAA", "no base64", "\xe4", [1.0, 2.0], 7])
def test_a_damaged_column_of_a_sweep_costs_only_itself(tmp_path: Path, value: Any) -> None:
    database = Database(f"sqlite:///{tmp_path}/state.sqlite")
    stored = _stored_sweep()
    stored["gauges"]["cpu"] = value
    _insert(database, json.dumps(stored))
    rows = [*SqliteSamples(database, 100.0).window("lab1", 0, 99).rows()]
    assert [row.gauges for row in rows] == [{"load": 3.0}, {"load": 4.0}]
    assert [row.counters for row in rows] == [{"drops": 5}] * 2


@pytest.mark.parametrize("kind", ["counters", "gauges"])
def test_readings_of_a_sweep_that_are_none_cost_only_themselves(tmp_path: Path, kind: str) -> None:
    database = Database(f"sqlite:///{tmp_path}/state.sqlite")
    _insert(database, json.dumps({**_stored_sweep(), kind: ["cpu"]}))
    rows = [*SqliteSamples(database, 100.0).window("lab1", 0, 99).rows()]
    assert [bool(getattr(row, own)) for row in rows for own in ("counters", "gauges")] == [
        kind != own for _ in rows for own in ("counters", "gauges")
    ]


@pytest.mark.processes
@pytest.mark.parametrize("count", [1, 60])
def test_samples_take_no_more_memory_than_is_said_and_not_much_less(
    redis_client: Any, count: int
) -> None:
    retention, interval, hosts = 900.0, 60.0, [f"edge-{number:04}.ams1" for number in range(count)]
    redis_client.flushall()
    samples = RedisSamples(redis_client, retention)
    for sweep in range(20):
        rows = [_full(host, 1.8e9 + sweep * interval, float(sweep * 7919)) for host in hosts]
        samples.add("ams1", rows)
    used = redis_client.memory_usage("edgetune:samples:ams1", samples=0)
    told = retained_bytes(hosts, [*METRICS.counters, *METRICS.gauges], retention, interval)
    assert used <= told <= 1.6 * used


@pytest.mark.processes
def test_the_bound_of_redis_is_told(redis_client: Any, tmp_path: Path) -> None:
    samples = RedisSamples(redis_client, 900.0)
    assert samples.limit() is None
    redis_client.config_set("maxmemory", 50_000_000)
    redis_client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        assert samples.limit() == Limit(50_000_000, "allkeys-lru")
    finally:
        redis_client.config_set("maxmemory", 0)
        redis_client.config_set("maxmemory-policy", "noeviction")
    assert SqliteSamples(Database(f"sqlite:///{tmp_path}/state.sqlite"), 900.0).limit() is None


def _full(host: str, at: float, value: float) -> Sample:
    boot = "9d3f5b1e-0000-4000-8000-000000000000"
    counters, gauges = dict.fromkeys(METRICS.counters, value), dict.fromkeys(METRICS.gauges, 0.125)
    return Sample(host, at, boot, 1e5 + at - 1.8e9, counters, gauges)


def test_a_number_that_no_host_counts_costs_only_itself(samples: Any) -> None:
    values = (1.0, math.nan, 10**400, None, True, 3.0)
    samples.add("lab1", [reading(f"e{at}", 10.0, cpu=value) for at, value in enumerate(values)])
    kept = [row.gauges for row in samples.window("lab1", 0, 99).rows()]
    assert kept == [{"cpu": 1.0}, {}, {}, {}, {}, {"cpu": 3.0}]


def test_all_samples_are_read_however_many_share_a_time(
    samples: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis gives some at a time; each host here is a document of its own."""
    monkeypatch.setattr("edgetune.metrics.samples._READ_AT_ONCE", 3)
    taken = [(host, at) for at in (1.0, 2.0, 2.5, 3.0) for host in "abcdefg"[: int(3 * at)]]
    for host, at in taken:
        samples.add("lab1", [reading(host, at)])
    for start, end in ((0, 9), (1, 3), (2, 2), (2.5, 3), (1, 1), (4, 9)):
        found = [(row.host, row.time) for row in samples.window("lab1", start, end).rows()]
        assert sorted(found) == sorted(own for own in taken if start <= own[1] <= end)
        assert [at for _, at in found] == sorted(at for _, at in found)


def test_of_an_answer_is_kept_what_is_read_of_it() -> None:
    readings = {"rx_packets": 5, "rx_bytes": 7, "cpu_busy_ms": None}
    data = {"boot_id": "b", "uptime": 1.5, "counters": readings, "drift": [], "health": ""}
    told = sample_answer({**data, "gauges": {"drifted": 1, "load1": 0.5}, "more": 7})
    counters = {"rx_packets": 5, "cpu_busy_ms": None}
    assert make_sample("a", 2.0, told, METRICS) == Sample(
        "a", 2.0, "b", 1.5, counters, {"drifted": 1}
    )


def _insert(database: Database, text: str) -> None:
    """A text that somebody put among the samples."""
    with database.transaction() as db:
        db.execute("INSERT INTO samples VALUES ('lab1', 20.0, ?)", (text,))


def test_an_unreachable_backend_is_no_empty_one(tmp_path: Path) -> None:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    nothing = str(tmp_path / "nothing.sock")
    gone = redis.Redis(unix_socket_path=nothing, retry=Retry(NoBackoff(), 0))
    with pytest.raises(StoreError, match="Redis: "):
        RedisClaims(gone).holder("lab1")
    with pytest.raises(StoreError, match="Redis: "):
        RedisSamples(gone, 1.0).window("lab1", 0, 1)
    nowhere = Database(f"sqlite:///{tmp_path}/no/such/folder/state.sqlite")
    with pytest.raises(StoreError, match="state.sqlite"):
        SqliteStore(nowhere).get("key")


def test_records_on_sqlite(tmp_path: Path) -> None:
    store = SqliteStore(Database(f"sqlite:///{tmp_path}/state.sqlite"))
    assert store.get("edgetune.rollout.x") is None
    store.put("edgetune.rollout.x", "1")
    store.put("edgetune.rollout.x", "2")
    store.put("edgetune_rollout.y", "3")
    assert store.get("edgetune.rollout.x") == "2"
    assert store.list("edgetune.rollout.") == {"edgetune.rollout.x": "2"}


def test_a_list_of_sqlite_is_of_all_keys_with_the_prefix_and_of_no_others(tmp_path: Path) -> None:
    store = SqliteStore(Database(f"sqlite:///{tmp_path}/state.sqlite"))
    odd = ["", "%", "_", "*", "[a]", "'", "\U0010ffff", "\U0010ffffz", "\u00ff", "\ud7ff", "\x00"]
    keys = [start + end for start in ("a", "a.", "a.b", "A.", "b") for end in odd]
    for key in keys:
        store.put(key, key)
    for prefix in ("", "a", "a.", "a.b", "a.%", "a._", "a.*", "a.[a]", "a.\U0010ffff", "c"):
        wanted = {key: key for key in keys if key.startswith(prefix)}
        assert store.list(prefix) == wanted
        assert list(store.list(prefix)) == sorted(wanted, key=lambda key: key.encode())


def test_a_list_of_sqlite_reads_no_other_keys(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/state.sqlite")
    with database.transaction() as db:
        (how,) = db.execute(f"EXPLAIN QUERY PLAN {stores._LIST}", ("a", "a")).fetchall()
    assert "USING INDEX" in how[-1] and "key>? AND key<?" in how[-1]


class _Keys(BaseHTTPRequestHandler):
    """The part of StackStorm's keys API that records use, with pages of at most 100."""

    keys: dict[str, str] = {}
    user: dict[str, Any] = {}
    broken = False
    may_view = may_list = True
    shows_nothing = False
    unheard: list[str] = []
    """What happens to the next requests: "lost" before they are carried out, "cut" after it."""
    writes = 0

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        self.fate = self.unheard.pop(0) if self.unheard else ""
        if self.fate == "lost":
            self.close_connection = True
            return False
        return True

    def _answer(self, status: int, document: Any) -> None:
        import json

        if self.fate == "cut":
            self.close_connection = True
            return
        if self.fate.isdigit():
            self.broken, status = False, int(self.fate)
        body = json.dumps(document).encode()
        self.send_response(500 if self.broken else status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        from urllib.parse import parse_qs, unquote, urlsplit

        assert self.headers["X-Auth-Token"] == "token" or self.headers["St2-Api-Key"] == "key"
        assert not (self.headers["X-Auth-Token"] and self.headers["St2-Api-Key"])
        parts = urlsplit(self.path)
        if parts.path == "/v1/keys":
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            prefix = query["prefix"] if self.may_list else ""
            shown = {} if self.shows_nothing else self.keys
            found = sorted(name for name in shown if name.startswith(prefix))
            page = found[int(query["offset"]) :][: int(query["limit"])]
            self._answer(200, [{"name": name, "value": self.keys[name]} for name in page])
            return
        if parts.path == "/v1/user":
            # As StackStorm 3.10dev does without authentication.
            unknown = {"faultstring": "Internal Server Error"}
            self._answer(*((200, self.user) if self.user else (500, unknown)))
            return
        name = unquote(parts.path.rpartition("/")[2])
        known = name in self.keys
        value = self.keys.get(name)
        if parts.query == "decrypt=true":
            # Before it looks for the key.
            if not self.may_view:
                self._answer(403, {"faultstring": "User does not have required permission"})
                return
            value = f"decrypted {value}"
        self._answer(200 if known else 404, {"name": name, "value": value})

    def do_PUT(self) -> None:
        import json

        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.keys[document["name"]] = document["value"]
        type(self).writes += 1
        self._answer(200, document)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    _Keys.keys, _Keys.broken, _Keys.may_view, _Keys.may_list = {}, False, True, True
    _Keys.user, _Keys.unheard, _Keys.writes, _Keys.shows_nothing = {}, [], 0, False
    monkeypatch.setattr(stackstorm, "PAUSES", (0.0,) * 5)
    monkeypatch.setattr(stores, "_PAUSES", (0, 0, 0))
    server = HTTPServer(("127.0.0.1", 0), _Keys)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    environment = {
        "ST2_ACTION_API_URL": f"http://127.0.0.1:{server.server_port}",
        "ST2_ACTION_AUTH_TOKEN": "token",
    }
    records = St2Store(StackStorm(environment))
    yield records
    records.close()
    server.shutdown()
    thread.join()
    server.server_close()


def test_records_on_stackstorm(api: St2Store) -> None:
    assert api.get("edgetune.plan.sha256:ab") is None
    api.put("edgetune.plan.sha256:ab", "{}")
    assert api.get("edgetune.plan.sha256:ab") == "{}"
    _Keys.keys = {f"edgetune.batch.{i:03d}": str(i) for i in range(250)}
    assert len(api.list("edgetune.batch.")) == 250


@pytest.mark.parametrize(
    ("rbac", "refused"),
    [
        ({"enabled": False, "roles": [], "is_admin": False}, False),
        ({"enabled": True, "roles": ["admin"], "is_admin": True}, False),
        ({"enabled": True, "roles": ["observer"], "is_admin": False}, True),
    ],
)
def test_a_user_that_may_write_no_records_is_named(
    api: St2Store, rbac: dict[str, Any], refused: bool
) -> None:
    assert api.refuses_changes() == ""
    _Keys.user = {"username": "ana", "rbac": rbac}
    says = "RBAC lets user ana write no records: give it records_api_key_file"
    assert api.refuses_changes() == (says if refused else "")
    assert _Keys.keys == {}


def test_an_api_key_goes_before_the_token_of_the_execution(
    api: St2Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    file.write_text("key\n")
    monkeypatch.setenv("ST2_ACTION_API_URL", api._api.url)
    monkeypatch.setenv("ST2_ACTION_AUTH_TOKEN", "token of a user without grants")
    given = {"inventory": "i", "ssh_key_file": "k", "ssh_known_hosts": "h"}
    store = open_store(read_config({**given, "records_api_key_file": str(file)}))
    store.put("edgetune.stop_all", "true")
    assert store.get("edgetune.stop_all") == "true"
    store.close()
    with pytest.raises(InputError, match="records_api_key_file: cannot be read"):
        open_store(read_config({**given, "records_api_key_file": str(tmp_path / "none")}))


def test_keys_that_were_not_asked_for_are_no_records(api: St2Store) -> None:
    """With RBAC the API shows a user what was granted to it, whatever the prefix."""
    _Keys.keys = {"edgetune.stop_all": "false"}
    assert api.list("edgetune.rollout.") == {}
    _Keys.may_list = False
    with pytest.raises(StoreError, match=r"may not list edgetune.rollout.\*"):
        api.list("edgetune.rollout.")


@pytest.mark.parametrize("known", [{}, {"edgetune.rollout.x": "{}"}])
def test_an_empty_list_that_a_user_without_rights_gets_is_no_empty_store(
    api: St2Store, known: dict[str, str]
) -> None:
    """The API shows it nothing and says 200, whether RBAC is on or installed and off."""
    _Keys.keys = dict(known)
    assert api.list("edgetune.stop_all") == {}
    assert set(_Keys.keys) == {*known, WITNESS}
    _Keys.shows_nothing = True
    blind = St2Store(api._api)
    for prefix in ("edgetune.rollout.", "edgetune.stop_all"):
        with pytest.raises(StoreError, match=rf"may not list {prefix}\*: give it records_api_key"):
            blind.list(prefix)


def test_whole_lists_are_proven_once(api: St2Store) -> None:
    for _ in range(3):
        assert api.list("edgetune.rollout.") == {}
    assert _Keys.writes == 1
    later = St2Store(api._api)
    assert later.list("edgetune.rollout.") == {}
    assert _Keys.writes == 1


def test_a_sensor_that_sees_nothing_does_not_look() -> None:
    class Item:
        value = "{}"

        def __init__(self, name: str) -> None:
            self.name = name

    class Service:
        names: tuple[str, ...] = ()

        def list_values(self, prefix: str, limit: int, offset: int, local: bool) -> list[Item]:
            return [Item(name) for name in self.names if name.startswith(prefix)][offset:]

    store = SensorStore(Service())
    with pytest.raises(StoreError, match="or its user may not list them: with RBAC it needs a"):
        store.list("edgetune.rollout.")
    Service.names = (WITNESS,)
    assert store.list("edgetune.rollout.") == {}
    Service.names = (WITNESS, "edgetune.rollout.x")
    assert store.list("edgetune.rollout.") == {"edgetune.rollout.x": "{}"}


def test_a_secret_of_stackstorm_is_decrypted(api: St2Store) -> None:
    assert api.secret("edgetune.bmc.lab") is None
    api.put("edgetune.bmc.lab", "AE5F")
    assert api.secret("edgetune.bmc.lab") == "decrypted AE5F"
    _Keys.broken = True
    with pytest.raises(StoreError, match="GET /keys/edgetune.bmc.lab: 500"):
        api.secret("edgetune.bmc.lab")


def test_a_secret_that_is_not_for_this_user_is_looked_for_elsewhere(api: St2Store) -> None:
    api.put("edgetune.bmc.lab", "AE5F")
    _Keys.may_view = False
    assert api.secret("edgetune.bmc.lab") is None


def test_sqlite_keeps_no_secrets(tmp_path: Path) -> None:
    store = SqliteStore(Database(f"sqlite:///{tmp_path}/state.sqlite"))
    store.put("edgetune.bmc.lab", "{}")
    assert store.secret("edgetune.bmc.lab") is None


def test_an_api_that_fails_is_no_missing_record(api: St2Store) -> None:
    _Keys.broken = True
    with pytest.raises(StoreError, match="StackStorm's datastore: GET /keys/x: 500"):
        api.get("x")


@pytest.mark.parametrize("fate", ["lost", "cut", "500", "502", "503", "504"])
def test_a_read_that_is_not_answered_is_repeated(api: St2Store, fate: str) -> None:
    api.put("edgetune.stop_all", "true")
    _Keys.unheard = [fate] * len(stackstorm.PAUSES)
    assert api.get("edgetune.stop_all") == "true"
    _Keys.unheard = [fate]
    assert api.list("edgetune.") == {"edgetune.stop_all": "true"}
    _Keys.unheard = [fate] * (len(stackstorm.PAUSES) + 1)
    with pytest.raises(StoreError, match="GET /keys/edgetune.stop_all: ") as raised:
        api.get("edgetune.stop_all")
    assert raised.value.reason == "store"


@pytest.mark.parametrize("known", [None, "old"])
@pytest.mark.parametrize("fate", ["lost", "cut", "500", "503"])
def test_a_write_that_is_not_answered_is_made_once(
    api: St2Store, fate: str, known: str | None
) -> None:
    if known:
        _Keys.keys["x"] = known
    assert api.get("x") == known
    _Keys.unheard = [fate] * (1 if fate == "cut" else 3)
    api.put("x", "new")
    assert (_Keys.keys, _Keys.writes) == ({"x": "new"}, 1)


def test_a_write_is_given_up_when_nothing_is_answered(api: St2Store) -> None:
    _Keys.unheard = ["lost"] * 100
    with pytest.raises(NoAnswerError, match="StackStorm's datastore: .* /keys/x: "):
        api.put("x", "new")
    assert _Keys.keys == {}


@pytest.mark.parametrize("theirs", ["theirs", None])
def test_what_somebody_else_wrote_meanwhile_is_not_written_over(
    api: St2Store, theirs: str | None, clock: VirtualClock
) -> None:
    api.put("x", "old")

    def meanwhile() -> None:
        _Keys.keys = {"x": theirs} if theirs else {}

    clock.then = meanwhile
    _Keys.unheard = ["lost"]
    with pytest.raises(StoreError, match="x was written by somebody else meanwhile"):
        api.put("x", "new")
    assert _Keys.keys == ({"x": theirs} if theirs else {})


def test_no_api_url_is_said() -> None:
    with pytest.raises(StoreError, match="ST2_ACTION_API_URL is not set"):
        StackStorm({})
