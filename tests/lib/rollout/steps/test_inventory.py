# SPDX-License-Identifier: Apache-2.0
"""The inventory is read for plans, and kept; a source that is away or shrinks stops plans alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edgetune import PACK, clock
from edgetune.documents.inventory import KEY, pop_key
from edgetune.errors import DamagedError, InputError, RefusedError
from edgetune.inventory import Pop
from edgetune.rollout.context import Context
from edgetune.rollout.kept_inventory import pop_for_plan, whole_inventory
from edgetune.rollout.record import read_rollout
from edgetune.rollout.steps.accept_inventory import accept_inventory
from edgetune.rollout.steps.diff_inventory import diff_inventory
from edgetune.rollout.steps.plan_rollout import PlanResult, plan_rollout
from tests.support.builders import inventory_document, write_yaml
from tests.support.inventories.netbox import Netbox
from tests.support.prometheus_api import api
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
        return self.later().inventory.pop("lab1")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, lambda pops: _write(tmp_path, pops))


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


class TestPlans:
    def test_one_host_less_is_planned(self, site: Site) -> None:
        site.plan()
        site.lose("e007")
        site.plan()
        assert len(pop_for_plan(site.later(), "lab1").hosts) == 7

    def test_more_hosts_less_are_refused_until_somebody_takes_that(self, site: Site) -> None:
        site.plan()
        site.lose("e006", "e007")
        for _ in range(2):
            with pytest.raises(RefusedError, match="lab1 lost e006, e007 since its inventory"):
                site.plan()
        accept_inventory(site.later(), pop="lab1")
        site.plan()

    def test_hosts_that_come_are_planned(self, site: Site) -> None:
        site.lose("e006", "e007")
        site.plan()
        site.pops = inventory_document()["pops"]
        site.write()
        site.plan()

    def test_a_share_may_be_given(self, tmp_path: Path) -> None:
        site = Site(tmp_path, lambda pops: _write(tmp_path, pops), inventory_shrink=0.25)
        site.plan()
        site.lose("e006", "e007")
        site.plan()

    def test_a_pop_that_is_gone_refuses_campaigns(self, site: Site) -> None:
        site.pops["lab2"] = {**site.pops["lab1"], "hosts": {"f0": {"address": "127.1.1.1"}}}
        site.write()
        assert whole_inventory(site.later()).pop_names() == ["lab1", "lab2"]
        del site.pops["lab2"]
        site.write()
        with pytest.raises(
            RefusedError, match=r"lost the PoP lab2 since .*\.accept_inventory pop=lab2"
        ):
            whole_inventory(site.later())
        accept_inventory(site.later())
        assert whole_inventory(site.later()).pop_names() == ["lab1"]

    def test_where_all_hosts_may_be_gone_all_pops_may(self, tmp_path: Path) -> None:
        site = Site(tmp_path, lambda pops: _write(tmp_path, pops), inventory_shrink=1)
        site.plan()
        site.pops = {"lab2": site.pops["lab1"]}
        site.write()
        assert whole_inventory(site.later()).pop_names() == ["lab2"]

    def test_a_source_that_is_away_stops_plans(self, served: Site) -> None:
        served.plan()
        served.server.answer = None  # type: ignore[attr-defined]
        with pytest.raises(InputError, match="NetBox at http://127"):
            served.plan()
        assert len(served.known().hosts) == 8

    def test_a_source_is_asked_once_for_plans_that_follow_each_other(self, served: Site) -> None:
        served.world.config["inventory_max_age"] = 60
        served.plan()
        asked = len(served.server.asked)  # type: ignore[attr-defined]
        served.lose("e007")
        served.plan()
        assert len(served.server.asked) == asked  # type: ignore[attr-defined]
        assert len(served.known().hosts) == 8

    def test_a_plan_says_how_old_its_inventory_is(self, served: Site, site: Site) -> None:
        lines = served.planned()["text"].splitlines()
        (line,) = [line for line in lines if line.startswith("  inventory ")]
        assert "netbox" in line
        assert "s ago" in " ".join(lines[1:4])
        assert "  inventory " not in site.planned()["text"]

    def test_what_was_read_in_the_future_is_read_anew(
        self, served: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        served.world.config["inventory_max_age"] = 60
        with clock.use(VirtualClock(clock.wall() + 3600)):
            served.plan()
        served.lose("e007")
        served.plan()
        assert len(served.known().hosts) == 7


class TestSteps:
    def test_a_service_is_not_asked_by_steps(self, served: Site) -> None:
        served.plan()
        asked = len(served.server.asked)  # type: ignore[attr-defined]
        assert len(served.known().hosts) == 8
        assert len(served.server.asked) == asked  # type: ignore[attr-defined]

    def test_to_find_out_what_is_kept_reads_no_pop(self, site: Site) -> None:
        site.plan()
        assert list(site.world.context.store.list(KEY)) == [KEY]

    def test_a_service_is_asked_while_nothing_is_kept(self, served: Site) -> None:
        assert len(served.known().hosts) == 8
        assert KEY not in served.world.context.store.list(KEY)

    def test_a_file_is_read_by_steps(self, site: Site) -> None:
        site.plan()
        site.pops["lab1"]["hosts"]["e000"]["rack"] = "r7"
        site.write()
        assert site.known().host("e000").rack == "r7"

    def test_a_file_that_cannot_be_read_is_as_it_was(self, site: Site, tmp_path: Path) -> None:
        (tmp_path / "inventory.yaml").write_text("pops: {")
        with pytest.raises(InputError, match=r"inventory\.yaml"):
            site.known()
        site.write()
        site.plan()
        (tmp_path / "inventory.yaml").write_text("pops: {")
        assert len(site.known().hosts) == 8
        with pytest.raises(InputError, match=r"inventory\.yaml"):
            site.plan()


class TestRollouts:
    def test_a_rollout_keeps_the_hosts_that_it_was_planned_with(self, site: Site) -> None:
        site.world.begin_planned(site.plan())
        site.lose("e000", "e001", "e002")
        opened = read_rollout(site.later(), site.world.rollout)
        names = [host.name for host in opened.pop.hosts]
        assert sorted(names) == [f"e{number:03d}" for number in range(8)]
        assert opened.pop.host("e000").address == "127.0.9.1"
        assert opened.pop.must_serve == 4

    def test_a_rollout_sees_where_a_host_is_now(self, site: Site) -> None:
        site.world.begin_planned(site.plan())
        site.pops["lab1"]["hosts"]["e000"]["address"] = "127.0.9.77"
        site.write()
        opened = read_rollout(site.later(), site.world.rollout)
        assert opened.pop.host("e000").address == "127.0.9.77"

    def test_a_rollout_goes_on_without_its_pop(self, site: Site) -> None:
        site.world.begin_planned(site.plan())
        site.pops = {"lab2": {**site.pops["lab1"]}}
        site.write()
        opened = read_rollout(site.later(), site.world.rollout)
        assert len(opened.pop.hosts) == 8 and opened.pop.name == "lab1"

    def test_a_rollout_of_before_asks_the_inventory(self, site: Site, tmp_path: Path) -> None:
        site.world.begin(tmp_path)
        site.lose("e000")
        opened = read_rollout(site.later(), site.world.rollout)
        assert len(opened.pop.hosts) == 7


class TestDamage:
    """What cannot be read is put right by a person, and stops no rollout meanwhile."""

    def test_a_rollout_goes_on_without_the_copy_of_its_pop(self, site: Site) -> None:
        site.world.begin_planned(site.plan())
        store = site.world.context.store
        (key,) = store.list(f"{PACK}.entry.")
        for text in ("{", '{"pop": "lab1", "entry": {"hosts": 7}}'):
            store.put(key, text)
            assert len(read_rollout(site.later(), site.world.rollout).pop.hosts) == 8

    def test_a_copy_of_a_pop_stops_its_own_plans_until_somebody_takes_that(
        self, site: Site
    ) -> None:
        site.pops["lab2"] = {**site.pops["lab1"], "hosts": {"f0": {"address": "127.1.1.1"}}}
        site.write()
        site.plan()
        site.world.context.store.put(pop_key("lab1"), "{")
        for pops in (site.pops["lab1"], site.pops["lab2"]):
            pops["reboot_time"] = 60
        site.write()
        assert pop_for_plan(site.later(), "lab2").reboot_time == 60
        with pytest.raises(RefusedError, match=r"of lab1 .* cannot be read: .*pop=lab1 takes it"):
            site.plan()
        assert [row["pop"] for row in diff_inventory(site.later())["pops"]] == ["lab1"]
        accept_inventory(site.later(), pop="lab1")
        site.plan()

    def test_a_list_of_what_is_kept_is_made_anew(self, served: Site) -> None:
        served.plan()
        served.world.context.store.put(KEY, "{")
        assert len(served.known().hosts) == 8
        with pytest.raises(DamagedError, match="edgetune.inventories is damaged"):
            served.plan()
        accept_inventory(served.later())
        served.plan()


class TestDiff:
    def test_what_differs_is_told(self, site: Site) -> None:
        site.plan()
        hosts = site.pops["lab1"]["hosts"]
        hosts["e008"] = {"address": "127.0.9.9"}
        for name in ("e003", "e004"):
            hosts[name]["rack"] = "r7"
        site.pops["lab1"]["reboot_time"] = 60
        site.lose("e006", "e007")
        told = diff_inventory(site.later())
        assert told["pops"] == [
            {
                "pop": "lab1",
                "added": ["e008"],
                "removed": ["e006", "e007"],
                "changed": {"e003": ["rack"], "e004": ["rack"]},
                "fields": ["reboot_time"],
            }
        ]
        assert told["text"].splitlines()[1:] == [
            "lab1",
            "  - 2 gone: e006, e007",
            "  + 1 new: e008",
            "  ~ rack of e003, e004",
            "  ~ reboot_time of the PoP",
        ]
        assert "1 PoP differs from what was kept" in told["message"]

    def test_what_is_the_same_is_told(self, site: Site) -> None:
        site.plan()
        told = diff_inventory(site.later(), pop="lab1")
        assert told["pops"] == [] and "nothing differs from what was kept" in told["message"]
