# SPDX-License-Identifier: Apache-2.0
"""Names: what stands in a file's path, a record's key, a query or a command is one, or refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from edgetune.base.errors import EdgetuneError, InputError, RefusedError
from edgetune.base.names import NAME
from edgetune.intent.tuning import find_tuning, load_tuning
from edgetune.net.bmc.credentials import Credentials
from edgetune.net.databases import Database
from edgetune.net.http import Answer, Service
from edgetune.net.inventories.yaml import YamlInventory
from edgetune.net.metrics.samples import RedisSamples, SqliteSamples
from edgetune.net.traffic import haproxy_backend, open_driver
from edgetune.rollout.context import Context
from edgetune.rollout.ownership.lease import open_rollout
from edgetune.rollout.record.rollout import load_plan, read_rollout
from edgetune.rollout.store.claims import RedisClaims, SqliteClaims
from edgetune.rollout.store.records import SqliteStore, St2Store
from edgetune.rollout.store.stackstorm import StackStorm
from tests.support import ROOT
from tests.support.builders import inventory_document, reading, write_yaml
from tests.support.hostile import HOSTILE

WHOLE = {name: text for name, text in HOSTILE.items() if name != "half a character"}
hostile = pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
whole = pytest.mark.parametrize("text", WHOLE.values(), ids=WHOLE)


def a_pop() -> dict[str, Any]:
    document: dict[str, Any] = inventory_document(hosts=2)
    return document


# Files.


@hostile
def test_a_tuning_is_looked_for_among_the_files_of_its_directories(
    text: str, tmp_path: Path
) -> None:
    (tmp_path / "own").mkdir()
    write_yaml(tmp_path / "other.yaml", {"name": "other"})
    for name in (text, "../other", str(tmp_path / "other"), "accept_queue.yaml", "."):
        with pytest.raises(InputError, match="there is no tuning"):
            find_tuning(name, [tmp_path / "own", ROOT / "tunings"])


@whole
def test_a_tuning_has_a_plain_name(text: str, tmp_path: Path) -> None:
    """It is a part of files on every host."""
    place = write_yaml(tmp_path / "own.yaml", {"name": text, "version": "1.0.0"})
    with pytest.raises(InputError, match="name: "):
        load_tuning(place)


# The inventory.


@whole
@pytest.mark.parametrize(
    "field", ["pop", "host", "server", "address", "backend", "balancer", "bmc"]
)
def test_what_the_inventory_names_is_a_name(field: str, text: str, tmp_path: Path) -> None:
    """Or an address. What hardware and racks are called is never more than shown."""
    document = a_pop()
    pop = document["pops"]["lab1"]
    host = pop["hosts"]["e000"]
    if field == "pop":
        document["pops"] = {text: pop}
    elif field == "host":
        pop["hosts"][text] = pop["hosts"].pop("e000")
    elif field == "backend":
        pop["load_balancer"]["backend"] = text
    elif field == "balancer":
        pop["load_balancer"]["address"] = text
    elif field == "bmc":
        host["bmc"] = {"address": "https://10.0.0.1", "credentials": text}
    else:
        host[field] = text
    with pytest.raises(InputError, match=r"lab1|the name does not match|pops: the text holds"):
        YamlInventory(write_yaml(tmp_path / "inventory.yaml", document))


def test_a_command_to_haproxy_is_one_line_of_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []

    def ask(address: str, command: str, deadline: float, tls: object) -> str:
        sent.append(command)
        return ""

    monkeypatch.setattr(haproxy_backend, "ask", ask)
    inventory = YamlInventory(write_yaml(tmp_path / "inventory.yaml", a_pop()))
    entry = inventory.pop("lab1").load_balancer
    balancer = open_driver(entry.driver, entry.fields, lambda: pytest.fail("no host is asked"))
    for text in HOSTILE.values():
        with pytest.raises(EdgetuneError):
            balancer.restore("e000", text)
    with pytest.raises(EdgetuneError):
        balancer.isolate("e000")
    read = "show servers state edges;show stat -1 6 -1"
    assert sent == ["set server edges/e000 state maint", read]


# Records.


@hostile
def test_an_id_that_is_none_is_no_part_of_a_key(text: str) -> None:
    context: Any = Context.__new__(Context)
    context.store = None
    with pytest.raises(RefusedError, match="there is no plan"):
        load_plan(context, text)
    if re.fullmatch(NAME, text) is None:
        with pytest.raises(InputError, match="there is no rollout"):
            read_rollout(context, text)
        with pytest.raises(InputError, match="there is no rollout"):
            open_rollout(context, text, 1)


@whole
def test_a_key_is_one_part_of_a_url(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def ask(self: Service, method: str, path: str, *more: Any) -> Answer:
        asked.append(path)
        return Answer(404, "", {}, b"")

    monkeypatch.setattr(Service, "ask", ask)
    store = St2Store(StackStorm({"ST2_ACTION_API_URL": "http://127.0.0.1:9101"}))
    try:
        assert store.get(f"edgetune.plan.{text}") is None
    finally:
        store.close()
    (path,) = asked
    before, _, name = path.partition("/keys/")
    assert before == ""
    assert not set("/?#\\\r\n") & set(name)


# SQL.


@whole
def test_sqlite_keeps_a_text_as_it_is(text: str, tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/state.sqlite")
    store, claims = SqliteStore(database), SqliteClaims(database)
    store.put("other", "1")
    store.put(text, text)
    assert store.get(text) == text
    assert store.list("") == {"other": "1", text: text}
    # A key has no NUL, and SQLite's substr ends there.
    prefix = text.partition("\0")[0]
    assert store.list(prefix) == {text: text}
    claim = claims.take(text, text, 60)
    assert (claims.holder(text), claims.holder("other")) == (claim, None)
    assert claims.release(text, claim)
    samples = SqliteSamples(database, 60)
    samples.add(text, [reading(text, 1.0)])
    assert [*samples.window(text, 0, 2).rows()] == [reading(text, 1.0)]
    assert len(samples.window("other", 0, 2)) == 0


# Redis.


class Redis:
    """Remembers what it is asked for, and in which words."""

    def __init__(self) -> None:
        self.scripts: list[tuple[str, tuple[Any, ...]]] = []
        self.keys: list[str] = []

    def eval(self, script: str, count: int, *words: Any) -> list[Any]:
        self.scripts.append((script, words))
        return [1, '{"rollout": "r", "epoch": 1}']

    def get(self, key: str) -> None:
        self.keys.append(key)

    def zrangebyscore(self, key: str, *given: object, **named: object) -> list[str]:
        self.keys.append(key)
        return []


@whole
def test_a_name_is_no_part_of_a_script_in_redis_and_its_key_begins_with_ours(text: str) -> None:
    def scripts(name: str) -> set[str]:
        client = Redis()
        claims = RedisClaims(client)
        claims.release(name, claims.take(name, name, 60))
        assert all(f"edgetune:claim:{name}" in words for _, words in client.scripts)
        claims.holder(name)
        RedisSamples(client, 60).window(name, 0, 1)
        assert client.keys == [f"edgetune:claim:{name}", f"edgetune:samples:{name}"]
        return {script for script, _ in client.scripts}

    assert scripts(text) == scripts("lab1")


# Credentials.


@whole
def test_credentials_are_looked_for_below_our_own_names(text: str) -> None:
    asked: list[str] = []
    looked: list[str] = []

    class Environment(dict[str, str]):
        def get(self, name: str, default: Any = None) -> Any:
            looked.append(name)

    with pytest.raises(InputError):
        Credentials(asked.append, "", Environment())(text)  # type: ignore[arg-type,func-returns-value]
    assert asked == [f"edgetune.bmc.{text}"]
    (variable,) = looked
    assert variable.startswith("EDGETUNE_BMC_")
    assert variable.replace("_", "").isalnum()
