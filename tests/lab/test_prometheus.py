# SPDX-License-Identifier: Apache-2.0
"""The lab of namespaces with Debian's Prometheus, node_exporter and Alertmanager."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from edgetune.rollout.context import Context
from lab import pop
from lab.pop.files import write_configuration, write_inventory
from lab.pop.layout import ALERTMANAGER, PROMETHEUS, TEXTFILES, Layout, addresses, sites
from lab.pop.monitoring import alerting, configuration
from tests.lab.test_pop import family, inside, is_alive, on, reboot
from tests.support.practice import needing
from tests.support.waiting import wait_until

needs_lab = needing(prometheus=True)
NAMES = [host.name for host in addresses(3)]
CHECK = {
    "promtool": ["check", "config", "--syntax-only"],
    "amtool": ["check-config"],
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("lab")
    pop.up(home, hosts=len(NAMES), load=False, prometheus=True)
    yield home
    pop.down(home)


def asked(home: Path, url: str) -> Any:
    """A JSON document, from where the controller is."""
    code = (
        "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=30).read().decode())"
    )
    return json.loads(inside(home, sys.executable, "-c", code, url).stdout)


def rows(home: Path, query: str) -> dict[str, list[dict[str, str]]]:
    """The labels of the series of a query, by host."""
    url = f"http://{PROMETHEUS}/api/v1/query?{urlencode({'query': query})}"
    found: dict[str, list[dict[str, str]]] = {}
    for row in asked(home, url)["data"]["result"]:
        found.setdefault(row["metric"]["host"], []).append(row["metric"])
    return found


def scraped(home: Path) -> list[str]:
    """None while Prometheus begins."""
    try:
        return sorted(rows(home, "up{job='node'} == 1"))
    except ValueError:
        return []


def running(home: Path) -> set[str]:
    state = pop.status(home)
    assert state is not None
    return {name for name, own in state["monitoring"].items() if own["running"]}


def boots(home: Path) -> dict[str, list[str]]:
    """The boots that each host tells now."""
    told = rows(home, "edgetune_boot_info")
    return {host: [row["boot_id"] for row in series] for host, series in told.items()}


def boot_ids(home: Path) -> dict[str, list[str]]:
    question = "cat /proc/sys/kernel/random/boot_id"
    return {host: [on(home, host, question)] for host in NAMES}


class TestLab:
    pytestmark = needs_lab

    def test_it_is_all_there_as_soon_as_the_lab_is_up(self, home: Path) -> None:
        state = pop.status(home)
        assert state is not None
        assert state["monitoring"] == {
            "prometheus": {"address": f"http://{PROMETHEUS}", "running": True},
            "alertmanager": {"address": f"http://{ALERTMANAGER}", "running": True},
        }
        found = rows(home, "up{job='node'} == 1")
        up = {host: [row["instance"] for row in series] for host, series in found.items()}
        assert up == {host.name: [f"{host.ip}:9100"] for host in addresses(len(NAMES))}
        assert boots(home) == boot_ids(home)

    def test_counters_of_the_network_are_of_the_host_alone(self, home: Path) -> None:
        query = "sum by (host) (node_netstat_Icmp_InMsgs)"
        on(home, "e000", "busybox ping -c 3 127.0.0.1")
        wait_until(lambda: bool(rows(home, f"{query} > 5")), "messages")
        assert list(rows(home, f"{query} > 5")) == ["e000"]

    def test_a_reboot_begins_another_boot_and_ends_the_old_one(self, home: Path) -> None:
        before = boots(home)
        reboot(home, "e001")
        now = boot_ids(home)
        assert now["e001"] != before["e001"] and now["e000"] == before["e000"]
        wait_until(lambda: boots(home) == now, "the new boot, and that alone")

    def test_what_is_stopped_is_healed(self, home: Path) -> None:
        for name in ("prometheus", "alertmanager", "prometheus"):
            pop.inject(home, "stop", name)
        assert running(home) == set()
        pop.heal(home)
        assert running(home) == {"prometheus", "alertmanager"}
        wait_until(lambda: scraped(home) == NAMES, "scrapes")

    def test_down_leaves_no_process(self, home: Path) -> None:
        state = pop.status(home)
        assert state is not None
        members = family(state["pid"])
        names = {Path(f"/proc/{pid}/comm").read_text().strip() for pid, _ in members}
        assert {"prometheus", "prometheus-aler", "prometheus-node"} <= names
        assert pop.down(home)
        assert not [member for member in members if is_alive(member)]
        assert list((home / "lab").glob("disks")) == []


@pytest.mark.processes
@needs_lab[1]
@pytest.mark.parametrize("program", CHECK)
def test_the_configurations_are_those_of_the_programs(tmp_path: Path, program: str) -> None:
    document = configuration(addresses(2)) if program == "promtool" else alerting()
    file = tmp_path / "configuration.yml"
    file.write_text(json.dumps(document))
    done = subprocess.run([program, *CHECK[program], str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def written(home: Path, prometheus: bool) -> Context:
    """What the pack knows of a lab."""
    layout = Layout(home)
    layout.lab.mkdir(parents=True)
    write_inventory(layout, sites(addresses(2), 1), prometheus)
    write_configuration(layout, prometheus=prometheus)
    return Context(yaml.safe_load(layout.configuration.read_text()))


def test_prometheus_has_the_counters_hosts_their_health_and_alertmanager_their_silences(
    tmp_path: Path,
) -> None:
    context = written(tmp_path, prometheus=True)
    views, config = context.inventory.pop("lab1").views, context.config
    assert [view.metrics.source for view in views] == ["prometheus", "hosts"]
    fields = dict(views[0].metrics.fields)
    found = {name: fields[name] for name in ("url", "matcher", "devices")}
    wanted = {"url": f"http://{PROMETHEUS}", "matcher": 'host="{name}"', "devices": "eth0"}
    assert found == wanted
    told = config.alertmanager
    assert told.url == (f"http://{ALERTMANAGER}",)
    assert told.matchers_of("lab1", "e000", "10.77.1.1") == {"host": "e000"}
    assert config.owner_timeout < told.bound <= 60
    assert config.textfile_directory == TEXTFILES
    context = written(tmp_path / "without", prometheus=False)
    assert [view.metrics.source for view in context.inventory.pop("lab1").views] == ["hosts"]
    assert (context.config.alertmanager.url, context.config.textfile_directory) == ((), "")
