# SPDX-License-Identifier: Apache-2.0
"""The inventory is read for plans, and kept; a source that is away or shrinks stops plans alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from edgetune import PACK
from edgetune.base import clock
from edgetune.base.documents.inventory import KEY, pop_key
from edgetune.base.errors import InputError, RefusedError, StoreError
from edgetune.net.inventories import yaml
from edgetune.rollout.context import Context
from edgetune.rollout.guard import Guard
from edgetune.rollout.record.kept_inventory import pop_for_plan, whole_inventory
from edgetune.rollout.record.rollout import read_rollout
from edgetune.rollout.steps.accept_inventory import accept_inventory
from edgetune.rollout.steps.diff_inventory import diff_inventory
from edgetune.rollout.steps.plan_rollout import PlanResult, plan_rollout
from edgetune.rollout.store import inventory
from edgetune.site.inventory import Inventory, Pop
from tests.support.asked_store import AskedStore
from tests.support.builders import inventory_document, write_yaml
from tests.support.inventories.netbox import Netbox
from tests.support.prometheus_api import api
from tests.support.scenarios import Scenario, scenarios
from tests.support.virtual_clock import VirtualClock
from tests.support.world import EmptyWorld


class Site:
    """A world, and what its inventory says."""

    def __init__(self, folder: Path, keep: Callable[[Any], None], **config: Any) -> None:
        self.world = EmptyWorld(folder, **config)
        self._keep = keep
        self.pops: Any = inventory_document()["pops"]
        self.write()

    def write(self) -> None:
        self._keep(self.pops)

    def lose(self, *hosts: str, pop: str = "lab1") -> None:
        for host in hosts:
            del self.pops[pop]["hosts"][host]
        self.write()

    def later(self) -> Context:
        """As another action has it."""
        made = Context(self.world.config)
        made.store, made.fleet = self.world.context.store, self.world.context.fleet
        made.load_balancer = self.world.context.load_balancer  # type: ignore[method-assign]
        return made

    def plan(self) -> str:
        return self.planned()["plan"]

    def planned(self) -> PlanResult:
        asked: Any = {"pop": "lab1", "tuning": "accept_queue", "soak": "10m", "baseline": "10m"}
        return plan_rollout(self.later(), **asked, seed=1)

    def known(self) -> Pop:
        return self.later().known_inventory.pop("lab1")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Site]:
    """The inventory is in a NetBox that is read for each plan."""
    with api() as server:
        netbox = Netbox(tmp_path, server)
        config = {"inventory": str(netbox.path), "inventory_source": "netbox"}
        made = Site(tmp_path, netbox.keep, **config, inventory_max_age=0)
        made.server = server  # type: ignore[attr-defined]
        yield made


def _write(folder: Path, pops: Any) -> None:
    write_yaml(folder / "inventory.yaml", {"pops": pops})


class SiteMoves(Scenario):
    """Moves of what the inventory says."""

    def __init__(self, site: Site) -> None:
        super().__init__(site.world)
        self._site, self._pops = site, site.pops

    def plan(self, _: object) -> None:
        self.result = self._site.planned()

    def silent(self, _: object) -> None:
        """The source does not answer."""
        self._site.server.answer = None  # type: ignore[attr-defined]

    def broken(self, _: object) -> None:
        """The file is not whole."""
        Path(self.world.config["inventory"]).write_text("pops: {")

    def max_age(self, seconds: float) -> None:
        self.world.config["inventory_max_age"] = seconds

    def known(self, hosts: int) -> None:
        """How many hosts steps know."""
        assert len(self._site.known().hosts) == hosts, self.where

    def begin_unkept(self, _: object) -> None:
        """A rollout begins that kept no inventory."""
        self.world.begin(Path(self.world.config["inventory"]).parent)

    @property
    def questions(self) -> int:
        """How often the source was asked."""
        return len(self._site.server.asked)  # type: ignore[attr-defined]

    @property
    def kept_keys(self) -> list[str]:
        return list(self.world.context.store.list(KEY))

    def begin(self, _: object) -> None:
        self.world.begin_planned(self._site.plan())

    def lose(self, hosts: list[str]) -> None:
        self._site.lose(*hosts)

    def gain(self, _: object) -> None:
        self._pops.update(inventory_document()["pops"])
        self._site.write()

    def host(self, hosts: dict[str, dict[str, Any]]) -> None:
        for name, fields in hosts.items():
            self._pops["lab1"]["hosts"].setdefault(name, {}).update(fields)
        self._site.write()

    def pop(self, fields: dict[str, Any]) -> None:
        for each in self._pops.values():
            each.update(fields)
        self._site.write()

    def other(self, name: str) -> None:
        self._pops[name] = {**self._pops["lab1"], "hosts": {"f0": {"address": "127.1.1.1"}}}
        self._site.write()

    def without(self, name: str) -> None:
        del self._pops[name]
        self._site.write()

    def accept(self, more: dict[str, Any]) -> None:
        accept_inventory(self._site.later(), **more)

    def differs(self, more: dict[str, Any]) -> None:
        self.result = diff_inventory(self._site.later(), **more)

    def damaged_copy(self, text: str) -> None:
        (key,) = self.world.context.store.list(f"{PACK}.entry.")
        self.store({key: text})

    def planned(self, hosts: int) -> None:
        assert len(pop_for_plan(self._site.later(), "lab1").hosts) == hosts, self.where

    def whole(self, pops: list[str]) -> None:
        assert whole_inventory(self._site.later()).pop_names() == pops, self.where

    def rack(self, of_e000: str) -> None:
        assert self._site.known().host("e000").rack == of_e000, self.where

    def of_rollout(self, hosts: int) -> None:
        assert len(self.opened.hosts) == hosts, self.where

    @property
    def opened(self) -> Pop:
        return read_rollout(self._site.later(), self.world.rollout).pop


@pytest.mark.parametrize("large", [100_000, 0])
@pytest.mark.parametrize("case", scenarios(__file__))
def test_a_plan_refuses_what_a_rollout_outlives(
    case: Any,
    large: int,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where the file counts as large, so that steps read what was kept of it."""
    monkeypatch.setattr(inventory, "LARGE", large)
    case = deepcopy(case)
    options = case[0].pop("site", {})
    if "served" in case[0]:
        del case[0]["served"]
        site = request.getfixturevalue("served")
    else:
        site = Site(tmp_path, lambda pops: _write(tmp_path, pops), **options)
    SiteMoves(site).play(case)


def test_what_was_read_in_the_future_is_read_anew(served: Site) -> None:
    served.world.config["inventory_max_age"] = 60
    with clock.use(VirtualClock(clock.wall() + 3600)):
        served.plan()
    served.lose("e007")
    served.plan()
    assert len(served.known().hosts) == 7


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Its file is large, and a plan has read it."""
    monkeypatch.setattr(inventory, "LARGE", 0)
    site = Site(tmp_path, lambda pops: _write(tmp_path, pops))
    for number in range(6):
        hosts = {f"f{number}": {"address": f"127.1.{number}.1"}}
        site.pops[f"ams{number}"] = {**site.pops["lab1"], "hosts": hosts}
    site.write()
    site.plan()
    return site


def _parses(site: Site, monkeypatch: pytest.MonkeyPatch, ask: Callable[[Inventory], object]) -> int:
    """How often a step reads the whole file, which tells the same."""
    parsed = []
    real = inventory.open_inventory
    monkeypatch.setattr(
        inventory, "open_inventory", lambda config: parsed.append(1) or real(config)
    )
    found = ask(site.later().inventory)
    monkeypatch.setattr(inventory, "open_inventory", real)
    assert found == ask(real(site.later().config))
    return len(parsed)


def _put_entry(site: Site, entry: object) -> None:
    kept = {"pop": "lab1", "entry": entry}
    site.world.context.store.put(pop_key("lab1"), json.dumps(kept))


CHANGES: dict[str, tuple[int, Callable[[Site], object]]] = {
    "nothing": (0, lambda site: None),
    "the file": (1, lambda site: site.lose("e007")),
    "the file, planned again": (0, lambda site: [site.lose("e007"), site.plan()]),
    # What steps would read has them still.
    "too many hosts gone": (1, lambda site: [site.lose("e005", "e006", "e007"), _refused(site)]),
    "a PoP gone": (1, lambda site: [site.pops.pop("ams0"), site.write(), site.plan()]),
    "what was kept is damaged": (1, lambda site: _put_entry(site, "no")),
    "what was kept is of another file": (1, lambda site: _put_entry(site, dict(site.pops["ams1"]))),
    "the index is damaged": (1, lambda site: site.world.context.store.put(KEY, "{}")),
}


def _refused(site: Site) -> None:
    with pytest.raises(RefusedError, match="lost e005"):
        site.plan()


@pytest.mark.parametrize("changed", CHANGES)
def test_a_step_reads_one_pop_of_a_large_file_as_long_as_that_is_the_same(
    large: Site, changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parses, change = CHANGES[changed]
    change(large)
    assert _parses(large, monkeypatch, lambda it: (it.pop("lab1"), it.pop_names())) == parses


def test_a_plan_takes_no_large_file_that_was_read_before_it_changed(large: Site) -> None:
    """Another plan has read it since."""
    context = large.later()
    assert context.inventory.pop("lab1").host("e000").rack != "r7"
    large.pops["lab1"]["hosts"]["e000"]["rack"] = "r7"
    large.write()
    large.plan()
    assert pop_for_plan(context, "lab1").host("e000").rack == "r7"


def test_the_guard_asks_no_service_for_an_inventory_that_no_rollout_needs(served: Site) -> None:
    [*Guard(pytest.fail).look(served.later())]
    assert served.server.asked == []  # type: ignore[attr-defined]


def test_hosts_stay_in_the_order_of_a_large_file(
    large: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    large.pops["lab1"]["hosts"] = dict(reversed([*large.pops["lab1"]["hosts"].items()]))
    # Which our YAML writer would sort.
    file = Path(large.world.config["inventory"])
    file.write_text(json.dumps({"pops": large.pops}), encoding="utf-8")
    large.plan()
    assert [*large.later().inventory.pop("lab1").hosts][0].name == "e007"
    assert _parses(large, monkeypatch, lambda it: it.pop("lab1")) == 0


def test_one_that_reads_all_pops_of_a_large_file_reads_the_file_once(
    large: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = AskedStore(large.world.context.store)
    large.world.context.store = asked  # type: ignore[assignment]
    assert _parses(large, monkeypatch, lambda it: [*map(it.pop, it.pop_names())]) == 1
    assert asked.requests <= 1 + inventory._FEW


def test_a_large_file_is_read_where_the_store_is_away(
    large: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*key: str) -> None:
        raise StoreError("it is away")

    monkeypatch.setattr(large.world.context.store, "get", away)
    monkeypatch.setattr(large.world.context.store, "list", away)
    assert _parses(large, monkeypatch, lambda it: it.pop("lab1")) == 1


def test_a_step_that_reads_all_pops_sees_one_inventory(large: Site) -> None:
    """Whatever becomes of the file meanwhile."""
    opened = large.later().inventory
    names = opened.pop_names()
    first = [opened.pop(name) for name in names[:2]]
    known = {name: Context(large.world.config).inventory.pop(name) for name in names}
    Path(large.world.config["inventory"]).write_text("pops: {")
    assert [*first, *(opened.pop(name) for name in names[2:])] == [known[name] for name in names]
    with pytest.raises(InputError, match="there is no PoP 'lab2'"):
        opened.pop("lab2")


def test_a_large_file_needs_no_key_of_the_store(large: Site) -> None:
    def unreadable() -> Any:
        raise InputError("configuration", "records_api_key_file", "cannot be read")

    assert inventory.stored_inventory(large.later().config, unreadable).pop("lab1")


def test_a_file_that_is_written_while_it_is_read_is_not_kept_as_it_was(
    large: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, load = Path(large.world.config["inventory"]), yaml.load_yaml

    def written(file: Path) -> Any:
        read = load(file)
        path.write_text(path.read_text() + "\n# later\n")
        return read

    monkeypatch.setattr(yaml, "load_yaml", written)
    assert yaml.YamlInventory(path).file == ""


def test_another_version_reads_the_file_anew(large: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "__version__", "99.0.0")
    assert _parses(large, monkeypatch, lambda it: it.pop("lab1")) == 1
