# SPDX-License-Identifier: Apache-2.0
"""Claims and samples on SQLite and on a real Redis; records on SQLite and on an API."""

from __future__ import annotations

import json
import math
import random
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest
import redis as redis_py
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.backoff import NoBackoff
from redis.retry import Retry

from edgetune.base import clock
from edgetune.base.documents.rounds import Rounds
from edgetune.base.documents.sample import Sample, sample_answer
from edgetune.base.documents.table import SampleTable
from edgetune.base.errors import DamagedError, FencedError, InputError, NoAnswerError, StoreError
from edgetune.intent.metrics.catalogue import METRICS
from edgetune.net.databases import Database, open_redis
from edgetune.net.metrics.samples import Limit, RedisSamples, SqliteSamples, make_sample
from edgetune.rollout.evidence.sampling import retained_bytes
from edgetune.rollout.guard.turns import TURN, Alone, RedisTurns
from edgetune.rollout.store import records as stores
from edgetune.rollout.store import stackstorm
from edgetune.rollout.store.claims import Claim, RedisClaims, SqliteClaims
from edgetune.rollout.store.heartbeat import Heartbeat, Heartbeats
from edgetune.rollout.store.nodes import FRESH, Node, RedisNodes
from edgetune.rollout.store.records import WITNESS, SensorStore, SqliteStore, St2Store, open_store
from edgetune.rollout.store.stackstorm import StackStorm
from edgetune.rollout.store.texts import RedisTexts, SqliteTexts
from edgetune.site.config import read_config
from edgetune.wings.congestion.rounds.work import KeptRounds
from tests.support.builders import reading
from tests.support.cases import cases
from tests.support.damage import damaged
from tests.support.prometheus_api import Api, Reply
from tests.support.virtual_clock import VirtualClock
from tests.support.waiting import wait_until

STORES = ["sqlite", pytest.param("redis", marks=pytest.mark.processes)]
OPTIONS = '--port 0 --unixsocket redis.sock --save "" --daemonize no'


@pytest.fixture(scope="module")
def redis_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    server = shutil.which("redis-server")
    if server is None:
        pytest.skip("redis-server is not installed")
    place = tmp_path_factory.mktemp("redis")
    # Redis writes its title over the environment by which tests.support.leftovers would find it.
    dies_with_us = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    command = [*dies_with_us, server, *shlex.split(OPTIONS)]
    process = subprocess.Popen(command, cwd=place, stdout=subprocess.DEVNULL)
    at = f"unix://{place}/redis.sock"
    config: Any = SimpleNamespace(coordination=at, coordination_password_file="")
    client = open_redis(config)
    try:
        wait_until(lambda: _answers(client))
        yield client
    finally:
        client.close()
        process.terminate()
        process.wait()


def _answers(client: Any) -> bool:
    with suppress(redis_py.ConnectionError):
        return bool(client.ping())
    return False


@pytest.fixture
def redis(redis_client: Any) -> Iterator[Any]:
    redis_client.flushall()
    yield redis_client
    # Threads of a test opened some of their own.
    redis_client.connection_pool.disconnect()


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(f"sqlite:///{tmp_path}/state.sqlite")


@pytest.fixture(params=STORES)
def opened(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Opens the first of two kinds of store on SQLite, or the second on a Redis that is empty."""
    if request.param == "sqlite":
        return lambda kind, _, *more: kind(request.getfixturevalue("database"), *more)
    return lambda _, kind, *more: kind(request.getfixturevalue("redis"), *more)


@pytest.fixture
def claims(opened: Any) -> Any:
    return opened(SqliteClaims, RedisClaims)


@pytest.fixture
def samples(opened: Any) -> Any:
    return opened(SqliteSamples, RedisSamples, 100.0)


def test_the_last_heartbeat_and_the_last_rounds_of_a_pop_are_kept(opened: Any) -> None:
    heartbeats = Heartbeats(
        opened(lambda own: SqliteTexts(own, "heartbeats", "name"), lambda own: RedisTexts(own, 9))
    )
    rounds = KeptRounds(
        opened(
            lambda own: SqliteTexts(own, "congestion", "pop"),
            lambda own: RedisTexts(own, 100, "edgetune:congestion:"),
        )
    )
    assert heartbeats.last("guard") is rounds.get("lab1") is None
    for heartbeat in (Heartbeat(7.5), Heartbeat(8.0, "\u00e9 {% x %}")):
        heartbeats.beat("guard", heartbeat)
        assert heartbeats.last("guard") == heartbeat
    for own in (Rounds("lab1", problem="\u00e9"), Rounds("lab1", epoch=7, selection="{}")):
        rounds.put(own)
        assert rounds.get("lab1") == own
    assert rounds.get("lab") is None


@pytest.mark.processes
def test_what_is_no_heartbeat_or_round_is_damaged(redis: Any, database: Database) -> None:
    key = "edgetune:heartbeat:guard"
    junk = ("", "7", "{", '{"time": "7", "problem": ""}', '{"time": 7.0}', '{"problem": ""}')
    for text in junk:
        redis.set(key, text)
        with database.transaction() as db:
            db.execute("INSERT OR REPLACE INTO heartbeats VALUES (?, ?)", (key, text))
        for kept in (RedisTexts(redis, 9), SqliteTexts(database, "heartbeats", "name")):
            with pytest.raises(DamagedError, match=f"{key} is damaged"):
                Heartbeats(kept).last("guard")
    key = "edgetune:congestion:lab1"
    rounds = KeptRounds(RedisTexts(redis, 100, "edgetune:congestion:"))
    rounds.put(Rounds("lab1"))
    assert 0 < redis.ttl(key) <= 100
    redis.set(key, b"\xff")
    with pytest.raises(DamagedError, match=f"{key} is damaged"):
        rounds.get("lab1")


@pytest.mark.processes
def test_of_two_guards_one_looks_until_it_stops(redis: Any) -> None:
    turns = RedisTurns(redis)
    assert [turns.has(name) for name in ("one", "two", "one", "two")] == [True, False, True, False]
    turns.give_up("two")
    assert not turns.has("two")
    turns.give_up("one")
    assert turns.has("two") and not turns.has("one")
    assert 0 < redis.ttl("edgetune:guard:turn") <= TURN


@pytest.mark.processes
def test_people_are_told_once_whichever_guard_tells_them(redis: Any) -> None:
    for each in (RedisTurns(redis), Alone()):
        assert not each.was_told("a")
        each.tell("a")
        assert each.was_told("a") and not each.was_told("b")
        redis.expire("edgetune:told:a", 7)
        each.tell("a")
    # That it is told again each time keeps it no longer.
    assert redis.ttl("edgetune:told:a") <= 7
    assert RedisTurns(redis).was_told("a")


@pytest.mark.processes
def test_what_nodes_hold_is_kept_by_their_names_and_damage_is_named(redis: Any) -> None:
    nodes, now = RedisNodes(redis), clock.wall()
    one, two = Node("one", now, {"inventory": "a"}), Node("two", now, {"inventory": "b"})
    for node in (two, one._replace(holds={}), one, Node("gone", now - FRESH - 1, {})):
        nodes.keep(node)
    assert nodes.all() == [one, two]
    assert redis.hkeys("edgetune:nodes") == ["two", "one"]
    for text in ("", "7", '{"time": "7", "holds": {}}', '{"time": 7.0}'):
        redis.hset("edgetune:nodes", "one", text)
        with pytest.raises(DamagedError, match="edgetune:nodes one is damaged"):
            nodes.all()


@pytest.mark.processes
def test_redis_that_takes_no_writes_is_seen_without_writing(redis: Any) -> None:
    claims, changes = RedisClaims(redis), "rdb_changes_since_last_save"
    before = redis.info("persistence")[changes]
    assert (claims.refuses_changes(), redis.dbsize()) == ("", 0)
    assert redis.info("persistence")[changes] == before
    for option, says in (
        ("maxmemory", "command not allowed when used memory"),
        ("min-replicas-to-write", "Not enough good"),
    ):
        redis.config_set(option, "1")
        try:
            assert says in claims.refuses_changes()
        finally:
            redis.config_set(option, "0")


def test_whether_sqlite_can_be_written_is_seen_without_writing(
    tmp_path: Path, database: Database
) -> None:
    (tmp_path / "none.sqlite").write_bytes(b"no database" * 100)
    none = Database(f"sqlite:///{tmp_path}/none.sqlite")
    for kind in (SqliteStore, SqliteClaims):
        assert kind(database).refuses_changes() == ""
        with pytest.raises(StoreError, match="file is not a database"):
            kind(none).refuses_changes()
    assert SqliteClaims(database).take("lab1", "one", 60).epoch == 1


def test_an_unreachable_backend_is_no_empty_one(tmp_path: Path) -> None:
    nothing = str(tmp_path / "nothing.sock")
    gone = redis_py.Redis(unix_socket_path=nothing, retry=Retry(NoBackoff(), 0))
    with pytest.raises(StoreError, match="Redis: "):
        RedisClaims(gone).holder("lab1")
    with pytest.raises(StoreError, match="Redis: "):
        RedisSamples(gone, 1.0).window("lab1", 0, 1)
    nowhere = Database(f"sqlite:///{tmp_path}/no/such/folder/state.sqlite")
    with pytest.raises(StoreError, match="state.sqlite"):
        SqliteStore(nowhere).get("key")
    with pytest.raises(StoreError, match="ST2_ACTION_API_URL is not set"):
        StackStorm({})


def call(claims: Any, pop: str, ttl: float, told: dict[str, Any]) -> None:
    """One of the calls in ``claims.yaml``."""
    if "take" in told:
        more = {name: told[name] for name in ("after", "above") if name in told}
        assert claims.take(pop, told["take"], ttl, **more) == Claim(told["take"], told["epoch"])
    elif "renew" in told:
        claims.renew(pop, Claim(*told["renew"]), ttl)
    elif "release" in told:
        grace = told.get("grace", 0.0)
        assert claims.release(pop, Claim(*told["release"]), grace) is told["is"]
    elif "holder" in told:
        assert claims.holder(pop) == (Claim(*told["holder"]) if told["holder"] else None)
    else:
        least = max(0, told["lasts"] - 30)
        left = claims.expiries([pop])[pop]
        assert least < left <= told["lasts"] or left == told["lasts"] == 0


class TestClaims:
    @pytest.mark.parametrize("calls", cases(Path(__file__).with_name("claims.yaml")))
    def test_calls_that_follow_each_other(self, claims: Any, calls: list[dict[str, Any]]) -> None:
        for told in calls:
            given = (claims, told.get("pop", "lab1"), told.get("ttl", 60), {"epoch": 0, **told})
            if "says" in told:
                with pytest.raises(FencedError, match=told["says"]):
                    call(*given)
            else:
                call(*given)
            time.sleep(told.get("pause", 0))

    def test_of_two_who_carry_on_the_same_epoch_one_wins(self, claims: Any) -> None:
        claim = claims.take("lab1", "one", 60)

        def carry_on(_: int) -> str:
            try:
                claims.take("lab1", "one", 60, after=claim.epoch)
            except FencedError:
                return "fenced"
            return "won"

        with ThreadPoolExecutor(6) as pool:
            outcomes = [*pool.map(carry_on, range(6))]
        assert sorted(outcomes) == ["fenced"] * 5 + ["won"]


SWEEP = [reading("a", 20.0, cpu=1.0, load=3.0), reading("b", 20.0, cpu=2.0, load=4.0)]
STORED = SampleTable([replace(row, counters={"drops": 5}) for row in SWEEP]).document()
BOOT = "9d3f5b1e-0000-4000-8000-000000000000"
NO_DOCUMENTS = ("", '"', "7", "[]", "null", '{"host": "a"', "[" * 100_000)
DAMAGES: list[Any] = [
    ({field: value}, False, None)
    for field in ("hosts", "boots", "uptime", "time", "schema")
    for value in (None, "ab", ["a"], ["a", 7], -1.0)
]
DAMAGES += [
    ({"gauges": {**STORED["gauges"], "cpu": value}}, True, ["load"])
    for value in (None, "", "AAAA", "no base64", "\xe4", [1.0, 2.0], 7)
]
DAMAGES += [({"counters": ["cpu"]}, False, ["cpu", "load"]), ({"gauges": ["cpu"]}, True, [])]


def _insert(database: Database, text: str) -> None:
    """A text that somebody put among the samples."""
    with database.transaction() as db:
        db.execute("INSERT INTO samples VALUES ('lab1', 20.0, ?)", (text,))


class TestSamples:
    def test_they_come_back_in_order_and_expire(self, samples: Any) -> None:
        assert samples.newest([]) == samples.newest(["lab1"]) == {}
        rows = [reading(host, at) for at in (30.0, 10.0, 20.5) for host in ("a", "b")]
        for added in (rows[:2], rows[2:], []):
            samples.add("lab1", added)
        samples.add("lab2", [reading("a", 20.5)])
        assert samples.window("lab1", 10, 20.5).time.tolist() == [10.0, 10.0, 20.5, 20.5]
        assert len(samples.window("lab3", 0, 99)) == 0
        assert samples.newest(["lab1", "lab2", "lab3"]) == {"lab1": 30.0, "lab2": 20.5}
        samples.add("lab1", [reading("a", 125.0)])
        assert samples.window("lab1", 0, 200).time.tolist() == [30.0, 30.0, 125.0]

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
    @given(text=damaged(STORED) | st.sampled_from(NO_DOCUMENTS))
    def test_what_is_damaged_is_read_as_samples_or_left_out(
        self, tmp_path: Path, text: str
    ) -> None:
        """A reader would end in the middle of its step: hosts are keys, times are compared."""
        database = Database(f"sqlite:///{tmp_path}/state.sqlite")
        samples = SqliteSamples(database, 100.0)
        with database.transaction() as db:
            db.execute("DELETE FROM samples")
        good = [reading("a", 10.0), reading("b", 30.0, cpu=1.5)]
        samples.add("lab1", good)
        _insert(database, text)
        first, *between, last = samples.window("lab1", 0, 99).rows()
        assert [first, last] == good
        for row in between:
            assert (type(row.host), type(row.boot_id), type(row.time)) == (str, str, float)
            values = [row.time, row.uptime, *row.counters.values(), *row.gauges.values()]
            assert all(type(value) is float for value in values)

    @pytest.mark.parametrize(("damage", "counters", "gauges"), DAMAGES)
    def test_readings_that_are_damaged_cost_only_themselves_and_a_sweep_of_nobody_all(
        self, database: Database, damage: dict[str, Any], counters: bool, gauges: list[str] | None
    ) -> None:
        _insert(database, json.dumps({**STORED, **damage}))
        rows = [*SqliteSamples(database, 100.0).window("lab1", 0, 99).rows()]
        whole = [] if gauges is None else SWEEP
        left = [{name: row.gauges[name] for name in gauges or ()} for row in whole]
        assert [row.gauges for row in rows] == left
        assert [row.counters for row in rows] == [{"drops": 5} if counters else {}] * len(whole)

    def test_a_number_that_no_host_counts_costs_only_itself(self, samples: Any) -> None:
        values = (1.0, math.nan, 10**400, None, True, 3.0)
        samples.add("lab1", [reading(f"e{at}", 10.0, cpu=value) for at, value in enumerate(values)])
        kept = [row.gauges for row in samples.window("lab1", 0, 99).rows()]
        assert kept == [{"cpu": 1.0}, {}, {}, {}, {}, {"cpu": 3.0}]

    def test_all_are_read_however_many_share_a_time(
        self, samples: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Redis gives some at a time; each host here is a document of its own."""
        monkeypatch.setattr("edgetune.net.metrics.samples._READ_AT_ONCE", 3)
        taken = [(host, at) for at in (1.0, 2.0, 2.5, 3.0) for host in "abcdefg"[: int(3 * at)]]
        for host, at in taken:
            samples.add("lab1", [reading(host, at)])
        for start, end in ((0, 9), (1, 3), (2, 2), (2.5, 3), (1, 1), (4, 9)):
            found = [(row.host, row.time) for row in samples.window("lab1", start, end).rows()]
            assert sorted(found) == sorted(own for own in taken if start <= own[1] <= end)
            assert [at for _, at in found] == sorted(at for _, at in found)

    def test_of_an_answer_is_kept_what_is_read_of_it(self) -> None:
        readings = {"rx_packets": 5, "rx_bytes": 7, "cpu_busy_ms": None}
        data = {
            "boot_id": "b",
            "uptime": 1.5,
            "counters": readings,
            "drift": [],
            "health": "",
            "log": "",
        }
        told = sample_answer({**data, "gauges": {"drifted": 1, "load1": 0.5}, "more": 7})
        expected = Sample(
            "a", 2.0, "b", 1.5, {"rx_packets": 5, "cpu_busy_ms": None}, {"drifted": 1}
        )
        assert make_sample("a", 2.0, told, METRICS) == expected

    @pytest.mark.processes
    @pytest.mark.parametrize("count", [1, 60])
    def test_they_take_no_more_memory_than_is_said_and_not_much_less(
        self, redis: Any, count: int
    ) -> None:
        retention, interval = 900.0, 60.0
        hosts = [f"edge-{number:04}.ams1" for number in range(count)]
        gauges = dict.fromkeys(METRICS.gauges, 0.125)
        for sweep in range(20):
            at, counters = sweep * interval, dict.fromkeys(METRICS.counters, sweep * 7919.0)
            full = Sample("", 1.8e9 + at, BOOT, 1e5 + at, counters, gauges)
            rows = [replace(full, host=host) for host in hosts]
            RedisSamples(redis, retention).add("ams1", rows)
        used = redis.memory_usage("edgetune:samples:ams1", samples=0)
        told = retained_bytes(hosts, [*METRICS.counters, *METRICS.gauges], retention, interval)
        assert used <= told <= 1.6 * used

    def test_buckets_take_no_more_than_is_said_and_not_much_less(self) -> None:
        dice = random.Random(4)
        names = [f"request_ms:{number}" for number in range(0, 300, 2)]
        hosts = [f"e{number:03}" for number in range(24)]
        for most in (1000, 2**24 - 1):
            counted = [{name: dice.randint(0, most) for name in names} for _ in hosts]
            rows = [Sample(h, 1.8e9, BOOT, 1e5, own, {}) for h, own in zip(hosts, counted)]
            used = len(json.dumps(SampleTable(rows).document()))
            # Of one sweep, and one that is about to be forgotten; and what Redis adds to both.
            told = (retained_bytes(hosts, names, 60.0, 60.0) / 2 - 160) / 1.25
            assert used <= told
        assert told <= 1.1 * used

    @pytest.mark.processes
    def test_the_bound_of_redis_is_told(self, redis: Any, database: Database) -> None:
        samples = RedisSamples(redis, 900.0)
        assert samples.limit() is None
        redis.config_set("maxmemory", 50_000_000)
        redis.config_set("maxmemory-policy", "allkeys-lru")
        try:
            assert samples.limit() == Limit(50_000_000, "allkeys-lru")
        finally:
            redis.config_set("maxmemory", 0)
            redis.config_set("maxmemory-policy", "noeviction")
        assert SqliteSamples(database, 900.0).limit() is None


def test_sqlite_lists_all_keys_with_a_prefix_and_no_others(database: Database) -> None:
    store = SqliteStore(database)
    odd = ["", *"%_*'", "[a]", "\U0010ffff", "\U0010ffffz", "\u00ff", "\ud7ff", "\x00"]
    keys = {start + end for start in ("a", "a.", "a_", "a.b", "A.", "b") for end in odd}
    for key in keys:
        assert store.get(key) is None
        for value in ("old", key):
            store.put(key, value)
            assert store.get(key) == value
        assert store.secret(key) is None
    store.put("a.gone", "")
    for _ in range(2):
        store.delete("a.gone")
        assert store.get("a.gone") is None
    for prefix in ("", "a", "a.", "a.b", "a.%", "a._", "a.*", "a.[a]", "a.\U0010ffff", "c"):
        wanted = {key: key for key in keys if key.startswith(prefix)}
        assert store.list(prefix) == wanted
        assert list(store.list(prefix)) == sorted(wanted, key=lambda key: key.encode())
    # Nor does it read others.
    with database.transaction() as db:
        (how,) = db.execute(f"EXPLAIN QUERY PLAN {stores._LIST}", ("a", "a")).fetchall()
    assert "USING INDEX" in how[-1] and "key>? AND key<?" in how[-1]


class Keys(Api):
    """The part of StackStorm's keys API that records use, with pages of at most 100."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: dict[str, str] = {}
        self.user: dict[str, Any] = {}
        self.may_view, self.may_list, self.shows_nothing, self.writes = True, True, False, 0
        # Of the next requests: "lost" before they are carried out, "cut" after it, or a status.
        self.unheard: list[str] = []
        self.turned: Callable[[], object] = lambda: None
        self.answer = self._answered

    def _answered(self, asked: Mapping[str, Any]) -> Reply:
        fate = self.unheard.pop(0) if self.unheard else ""
        status, document = (
            (200, None) if fate == "lost" else self._own(self.asked[-1]["path"], asked)
        )
        body = b"" if status == 204 else json.dumps(document).encode()
        length = len(body) + 1 if fate in ("lost", "cut") else None
        return Reply(body, int(fate) if fate.isdigit() else status, length=length)

    def _own(self, path: str, asked: Mapping[str, Any]) -> tuple[int, Any]:
        sent = self.headers[-1]
        assert sent.get("X-Auth-Token") == "token" or sent.get("St2-Api-Key") == "key"
        assert not (sent.get("X-Auth-Token") and sent.get("St2-Api-Key"))
        if self.lines[-1].startswith("PUT"):
            self.keys[asked["name"]] = asked["value"]
            self.writes += 1
            return 200, asked
        if self.lines[-1].startswith("DELETE"):
            known = self.keys.pop(unquote(path.rpartition("/")[2]), None)
            return (404, {"faultstring": "Not Found"}) if known is None else (204, None)
        if path == "/v1/keys":
            prefix = asked["prefix"] if self.may_list else ""
            shown = {} if self.shows_nothing else self.keys
            found = sorted(name for name in shown if name.startswith(prefix))
            page = found[int(asked["offset"]) :][: int(asked["limit"])]
            told = [{"name": name, "value": self.keys[name]} for name in page]
            self.turned()
            return 200, told
        if path == "/v1/user":
            # As StackStorm 3.10dev does without authentication.
            return (
                (200, self.user) if self.user else (500, {"faultstring": "Internal Server Error"})
            )
        if "decrypt" in asked and not self.may_view:
            # Before it looks for the key.
            return 403, {"faultstring": "User does not have required permission"}
        name = unquote(path.rpartition("/")[2])
        value = f"{'decrypted ' if 'decrypt' in asked else ''}{self.keys.get(name)}"
        return 200 if name in self.keys else 404, {"name": name, "value": value}


class Once:
    """Does something the first time that it is called."""

    def __init__(self, does: Callable[[], object]) -> None:
        self._does = [does]

    def __call__(self) -> None:
        while self._does:
            self._does.pop()()


def change(keys: Keys, go: Iterable[int], come: Iterable[int]) -> None:
    """Some keys go, and others come."""
    for number in go:
        keys.keys.pop(f"k.{number:03d}", None)
    keys.keys.update({f"k.{number:03d}": "" for number in come})


def paged(keys: Keys, prefix: str, limit: int, offset: int, local: bool) -> list[Any]:
    """A page as a sensor gets it."""
    found = sorted(name for name in keys.keys if name.startswith(prefix))
    page = [SimpleNamespace(name=name, value="") for name in found[offset:][:limit]]
    keys.turned()
    return page


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[Keys]:
    monkeypatch.setattr(stackstorm, "PAUSES", (0.0,) * 5)
    monkeypatch.setattr(stores, "_PAUSES", (0, 0, 0))
    made = Keys()
    made.begin()
    yield made
    made.close()


@pytest.fixture
def api(keys: Keys) -> Iterator[St2Store]:
    given = {"ST2_ACTION_API_URL": keys.url, "ST2_ACTION_AUTH_TOKEN": "token"}
    records = St2Store(StackStorm(given))
    yield records
    records.close()


class TestStackStormRecords:
    def test_all_pages_of_a_list_are_read_and_no_other_keys(
        self, api: St2Store, keys: Keys
    ) -> None:
        assert api.get("edgetune.plan.sha256:ab") is None
        api.put("edgetune.plan.sha256:ab", "{}")
        assert api.get("edgetune.plan.sha256:ab") == "{}"
        keys.keys = {f"edgetune.batch.{i:03d}": str(i) for i in range(250)}
        assert len(api.list("edgetune.batch.")) == 250
        assert api.list("edgetune.rollout.") == {}
        # With RBAC the API shows a user what was granted to it, whatever the prefix.
        keys.may_list = False
        with pytest.raises(StoreError, match=r"may not list edgetune.rollout.\*"):
            api.list("edgetune.rollout.")

    def test_keys_that_go_or_come_meanwhile_hide_no_other(self, api: St2Store, keys: Keys) -> None:
        """A page begins by number: where keys before it go, it leaves out as many."""
        api.put(WITNESS, "")
        stay = {f"k.{i:03d}": "" for i in range(100, 350)}
        for go, come in ((range(50), ()), (range(1), ()), ((), range(400, 401)), ((), range(99))):
            keys.keys = {**stay, **{f"k.{i:03d}": "" for i in go}}
            sensor = SensorStore(SimpleNamespace(list_values=lambda **asked: paged(keys, **asked)))
            for store in (api, sensor):
                keys.turned = Once(partial(change, keys, go, come))
                assert stay.keys() <= store.list("k.").keys()
                change(keys, come, go)

    def test_a_list_that_never_stands_still_is_no_answer(self, api: St2Store, keys: Keys) -> None:
        names = [f"k.{i:04d}" for i in range(3000)]
        keys.keys = dict.fromkeys(names, "")
        keys.turned = lambda: keys.keys.pop(min(keys.keys))
        # What goes steadily, as the sweep of ended rollouts does it, hides nothing.
        assert set(names[100:]) <= api.list("k.").keys()
        pages = count()
        keys.turned = lambda: [
            keys.keys.pop(name) for name in sorted(keys.keys)[: 60 * (next(pages) > 15)]
        ]
        with pytest.raises(StoreError, match=r"k.\* changes faster than it is listed"):
            api.list("k.")

    @pytest.mark.parametrize("fate", ["lost", "500"])
    def test_a_deletion_is_asked_for_once(self, api: St2Store, keys: Keys, fate: str) -> None:
        api.put("x", "old")
        for _ in range(2):
            api.delete("x")
            assert "x" not in keys.keys and api.get("x") is None
        api.put("x", "new")
        keys.unheard = [fate]
        with pytest.raises(NoAnswerError, match="StackStorm's datastore: DELETE /keys/x: "):
            api.delete("x")
        assert ("x" in keys.keys) == (fate == "lost")

    def test_a_user_that_may_write_none_is_named(self, api: St2Store, keys: Keys) -> None:
        assert api.refuses_changes() == ""
        says = "RBAC lets user ana write no records: give it records_api_key_file"
        for enabled, role, said in ((False, "", ""), (True, "admin", ""), (True, "observer", says)):
            rbac = {"enabled": enabled, "roles": [role], "is_admin": role == "admin"}
            keys.user = {"username": "ana", "rbac": rbac}
            assert api.refuses_changes() == said
        assert keys.keys == {}

    def test_an_api_key_goes_before_the_token_of_the_execution(
        self, api: St2Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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

    @pytest.mark.parametrize("known", [{}, {"edgetune.rollout.x": "{}"}])
    def test_an_empty_list_that_a_user_without_rights_gets_is_no_empty_store(
        self, api: St2Store, keys: Keys, known: dict[str, str]
    ) -> None:
        """The API shows it nothing and says 200, whether RBAC is on or installed and off."""
        keys.keys = dict(known)
        for store in (api, api, St2Store(api._api)):
            assert store.list("edgetune.stop_all") == {}
            assert (set(keys.keys), keys.writes) == ({*known, WITNESS}, 1)
        keys.shows_nothing = True
        # Once is enough.
        assert api.list("edgetune.stop_all.") == {}
        blind = St2Store(api._api)
        for prefix in ("edgetune.rollout.", "edgetune.stop_all"):
            says = rf"may not list {prefix}\*: give it records_api_key"
            with pytest.raises(StoreError, match=says):
                blind.list(prefix)

    def test_a_sensor_that_sees_nothing_does_not_look(self) -> None:
        names: list[str] = []
        service = SimpleNamespace(
            list_values=lambda prefix, limit, offset, local: [
                SimpleNamespace(name=name, value="{}") for name in names if name.startswith(prefix)
            ][offset:]
        )
        store = SensorStore(service)
        with pytest.raises(StoreError, match="or its user may not list them: with RBAC it needs a"):
            store.list("edgetune.rollout.")
        names.append(WITNESS)
        assert store.list("edgetune.rollout.") == {}
        names.append("edgetune.rollout.x")
        assert store.list("edgetune.rollout.") == {"edgetune.rollout.x": "{}"}

    def test_a_secret_is_decrypted_for_a_user_that_may_see_it(
        self, api: St2Store, keys: Keys
    ) -> None:
        assert api.secret("edgetune.bmc.lab") is None
        api.put("edgetune.bmc.lab", "AE5F")
        assert api.secret("edgetune.bmc.lab") == "decrypted AE5F"
        keys.may_view = False
        assert api.secret("edgetune.bmc.lab") is None

    @pytest.mark.parametrize("fate", ["lost", "cut", "500", "502", "503", "504"])
    def test_a_read_that_is_not_answered_is_repeated(
        self, api: St2Store, keys: Keys, fate: str
    ) -> None:
        api.put("edgetune.stop_all", "true")
        keys.unheard = [fate] * len(stackstorm.PAUSES)
        assert api.get("edgetune.stop_all") == "true"
        keys.unheard = [fate]
        assert api.list("edgetune.") == {"edgetune.stop_all": "true"}
        # A failure is no missing record.
        for read in (api.get, api.secret):
            keys.unheard = [fate] * (len(stackstorm.PAUSES) + 1)
            with pytest.raises(StoreError, match="GET /keys/edgetune.stop_all: ") as raised:
                read("edgetune.stop_all")
            assert raised.value.reason == "store"

    @pytest.mark.parametrize("known", [None, "old"])
    @pytest.mark.parametrize("fate", ["lost", "cut", "500", "503"])
    def test_a_write_that_is_not_answered_is_made_once(
        self, api: St2Store, keys: Keys, fate: str, known: str | None
    ) -> None:
        if known:
            keys.keys["x"] = known
        assert api.get("x") == known
        keys.unheard = [fate] * (1 if fate == "cut" else 3)
        api.put("x", "new")
        assert (keys.keys, keys.writes) == ({"x": "new"}, 1)
        for unheard in (["lost"], ["lost", ""]):
            keys.unheard = unheard * 100
            with pytest.raises(NoAnswerError, match="StackStorm's datastore: .* /keys/y: "):
                api.put("y", "new")
        assert keys.keys == {"x": "new"}

    @pytest.mark.parametrize("theirs", [{"x": "theirs"}, {}])
    def test_what_somebody_else_wrote_meanwhile_is_not_written_over(
        self, api: St2Store, keys: Keys, theirs: dict[str, str], clock: VirtualClock
    ) -> None:
        api.put("x", "old")
        clock.then = lambda: setattr(keys, "keys", dict(theirs))
        keys.unheard = ["lost"]
        with pytest.raises(StoreError, match="x was written by somebody else meanwhile"):
            api.put("x", "new")
        assert keys.keys == theirs
