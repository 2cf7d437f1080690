# SPDX-License-Identifier: Apache-2.0
"""The file through which a host tells Prometheus its boot and its tunings."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.textfile import Textfile, text
from tests.support.agent_root import AgentRoot, FullDisk, near_root, sysctl, thp

DIRECTORY = "/var/lib/prometheus/node-exporter"
FILE = DIRECTORY[1:] + "/edgetune.prom"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentRoot]:
    with near_root(tmp_path / "host", patch=monkeypatch) as root:
        (root.path / DIRECTORY[1:]).mkdir(parents=True)
        yield root


def keep(host: AgentRoot, directory: str = DIRECTORY) -> str:
    """Why the file is not there."""
    return str(host.ask("textfile", directory=directory)["missing"])


def told(host: AgentRoot) -> list[str]:
    return [line for line in host.read(FILE).splitlines() if not line.startswith("#")]


def boot_of(host: AgentRoot) -> str:
    return f'edgetune_boot_info{{boot_id="{host.boot_id}"}} 1'


def test_a_host_tells_its_boot_in_the_form_of_prometheus(host: AgentRoot) -> None:
    assert keep(host) == ""
    assert host.read(FILE) == (
        "# HELP edgetune_boot_info The boot that this host runs, by the boot_id of its kernel.\n"
        "# TYPE edgetune_boot_info gauge\n"
        f"{boot_of(host)}\n"
    )
    path = host.path / FILE
    assert path.stat().st_mode & 0o7777 == 0o644
    assert [entry.name for entry in path.parent.iterdir()] == ["edgetune.prom"]


def test_a_boot_writes_the_file_anew_without_a_controller(host: AgentRoot) -> None:
    keep(host)
    before = told(host)
    assert host.run_copy("boot").returncode == 0 and told(host) == before, "the same boot"
    host.new_boot_id()
    host.write("var/lib/edgetune/tunings/bad.json", json.dumps({"journal": 1}))
    assert host.run_copy("boot").returncode == 1
    damaged = 'edgetune_applied_info{tuning="bad"} 1'
    assert told(host) == [boot_of(host), damaged] != before, "a damaged journal may stand"


def test_tunings_are_told_while_they_stand(host: AgentRoot) -> None:
    keep(host)
    host.apply(sysctl("4096"), tuning="queue")
    host.apply(thp("never"), tuning="pages")
    applied = [f'edgetune_applied_info{{tuning="{name}"}} 1' for name in ("queue", "pages")]
    assert told(host) == [boot_of(host), *applied]
    host.restore("queue")
    assert told(host) == [boot_of(host), applied[1]]
    host.restore("pages")
    assert told(host) == [boot_of(host)]
    assert host.exists("etc/init.d/S99edgetune") and host.exists("var/lib/edgetune/agent.py")


@pytest.mark.parametrize(
    ("init", "hook"),
    [("sysv", "etc/init.d/S99edgetune"), ("systemd", "etc/systemd/system/edgetune.service")],
)
def test_nothing_is_left_of_it_when_it_is_not_wanted_any_more(
    tmp_path: Path, init: str, hook: str
) -> None:
    with near_root(tmp_path / "host", init=init) as host:
        (host.path / DIRECTORY[1:]).mkdir(parents=True)
        before = host.tree()
        assert keep(host) == "" and host.exists(hook)
        assert keep(host, "") == ""
        assert host.tree() == before and host.leftovers() == set()
        assert not host.exists(FILE)


def test_the_file_is_where_a_directory_is(host: AgentRoot) -> None:
    before = host.tree()
    assert keep(host, "/srv/text") == "this host has no directory /srv/text"
    assert host.tree() == before and host.leftovers() == set()
    keep(host)
    (host.path / "srv/text").mkdir(parents=True)
    assert keep(host, "/srv/text") == ""
    assert not host.exists(FILE) and host.exists("srv/text/edgetune.prom")
    shutil.rmtree(host.path / "srv")
    assert keep(host, "/srv/text") == "this host has no directory /srv/text"
    assert host.tree() == before and host.leftovers() == set()


def test_nothing_is_written_where_no_boot_would_write_it_anew(tmp_path: Path) -> None:
    with near_root(tmp_path / "host", init="other") as host:
        (host.path / DIRECTORY[1:]).mkdir(parents=True)
        (host.path / "etc/init.d/rcS").unlink(missing_ok=True)
        assert keep(host).startswith("nothing can keep it over a boot: no systemd")
        assert not host.exists(FILE) and host.leftovers() == set()


def test_a_full_disk_fails_no_verb_and_leaves_no_old_boot(host: AgentRoot) -> None:
    keep(host)
    host.apply(sysctl("4096"), tuning="queue")
    FullDisk(host.patch)
    assert host.restore("queue")["changed"]
    assert not host.exists(FILE)
    assert "No space left on device" in keep(host)


def test_a_full_disk_leaves_nothing_that_no_boot_would_write_anew(host: AgentRoot) -> None:
    (host.path / "run").mkdir()
    FullDisk(host.patch)
    assert "No space left on device" in keep(host)
    assert not host.exists(FILE) and Textfile(Host(str(host.path))).directory == ""


def test_the_directory_may_belong_to_the_exporter_whose_links_lead_nowhere(
    host: AgentRoot,
) -> None:
    give_away(host.path / "var/lib/prometheus")
    assert keep(host) == "" and told(host) == [boot_of(host)]
    (host.path / FILE).unlink()
    (host.path / DIRECTORY[1:]).rmdir()
    (host.path / DIRECTORY[1:]).symlink_to(host.path / "etc")
    assert "others than root can change" in keep(host)
    assert not host.exists("etc/edgetune.prom")


def test_a_link_in_the_place_of_the_file_is_replaced(host: AgentRoot) -> None:
    victim = host.path / "etc/passwd"
    victim.parent.mkdir(exist_ok=True)
    victim.write_text("root")
    (host.path / FILE).symlink_to(victim)
    assert keep(host) == ""
    assert victim.read_text() == "root" and not (host.path / FILE).is_symlink()


def test_names_that_prometheus_could_not_read_are_left_out() -> None:
    assert text("", []) == ""
    assert text('a"b', ['x"} 1', "a\nb", "größe"]) == ""
    assert 'tuning="good"' in text("1-2", ["good", "b\\d"])


def give_away(path: Path) -> None:
    """To somebody else than root, or as near to that as this user can."""
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
    else:
        path.chmod(0o777)
