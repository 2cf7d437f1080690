# SPDX-License-Identifier: Apache-2.0
"""The kinds ``file`` and ``unit``: whole files, and units of systemd."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgetune.documents.plan import Profile
from edgetune.documents.reading import taken
from edgetune.documents.settings import SettingRow
from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.kinds.file import File
from edgetune.hosts.agent.protocol import Unsupported
from edgetune.rendering import render
from edgetune.report.text import plan_text
from edgetune.tuning import load_tuning
from tests.support.agent_root import (
    AgentRoot,
    agent_root,
    file,
    near_root,
    nginx,
    setting,
    sysctl,
    unit,
    without_boot_id,
)
from tests.support.builders import plan, write_yaml
from tests.support.cases import cases

HERE = Path(__file__).parent
CONF = "/etc/app/app.conf"
TEXT = "# größer\nworkers 4\n\n\tcache off\n"
BALANCE = "irqbalance.service"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[AgentRoot]:
    with near_root(tmp_path / "host", init="systemd") as root:
        yield root


def row_of(host: AgentRoot, own: dict[str, Any]) -> dict[str, Any]:
    return host.plan(own)[0]


@pytest.mark.processes
def test_a_file_comes_with_its_directories_and_goes_with_them(host: AgentRoot) -> None:
    before = host.tree()
    own = file("/srv/app/conf.d/a.conf", TEXT, restart="nginx")
    row = row_of(host, own)
    assert (row["status"], row["runtime"], row["persistent"]) == ("change", "", None)
    result = host.apply(own)
    assert result["changed"] and result["restarted"] == ["nginx"]
    made = host.path / "srv/app/conf.d/a.conf"
    assert made.read_bytes() == TEXT.encode() and made.stat().st_mode & 0o7777 == 0o644
    assert host.ask("verify", tuning="t", settings=[own])["verified"]
    assert row_of(host, own)["status"] == "noop"
    host.restore()
    assert host.tree() == before and host.leftovers() == {"epoch"}


@pytest.mark.processes
def test_a_file_that_is_there_keeps_its_mode_and_owner(host: AgentRoot) -> None:
    there = host.write("etc/app/app.conf", "old, without a newline")
    there.chmod(0o2640)
    owner = (1, 1) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    os.chown(there, *owner)
    there.chmod(0o2640)
    before = host.tree()
    own = file(CONF, TEXT)
    told = row_of(host, own)["persistent"]
    assert told.startswith("sha256:") and ", 22 bytes, 1 lines, mode 2640, owner " in told
    host.apply(own)
    now = there.stat()
    assert (there.read_text(), now.st_mode & 0o7777) == (TEXT, 0o2640)
    assert (now.st_uid, now.st_gid) == owner
    host.restore()
    assert host.tree() == before and there.stat().st_uid == owner[0]


@pytest.mark.processes
def test_a_file_of_the_largest_size_can_be_taken_back(host: AgentRoot) -> None:
    host.write("etc/app/app.conf", "\u00e9" * 32767 + "\n")
    before = host.tree()
    host.apply(file(CONF, "\u00e9" * 32767 + "1\n"))
    journal = (host.path / "var/lib/edgetune/tunings/t.json").stat().st_size
    assert (host.path / "var/lib/edgetune/reserve").stat().st_size > journal > 256 * 1024
    host.restore()
    assert host.tree() == before


FORBIDDEN = yaml.safe_load((HERE / "file_paths.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("says", FORBIDDEN)
def test_some_files_are_nobodys_to_write(host: AgentRoot, says: str) -> None:
    for path in FORBIDDEN[says]:
        error = host.fail("plan", tuning="t", digest="d", settings=[file(path, "x\n")])
        assert (error["reason"], error["field"]) == ("bad_request", "settings[0].target.path"), path
        assert says in error["message"], path


def test_files_of_other_units_can_be_written(host: AgentRoot) -> None:
    systemd = "/etc/systemd/system/nginx.service"
    for path in (systemd, f"{systemd}.d/x.conf", "/etc/init.d/nginx", "/etc/sysctl.d/ssh.conf"):
        assert row_of(host, file(path, "x\n"))["status"] == "change", path


def test_a_text_is_whole_lines_of_utf_8(host: AgentRoot) -> None:
    odd: list[tuple[dict[str, Any], str]] = [
        (file(CONF, "x"), "does not end with a newline"),
        (file(CONF, ""), "does not end with a newline"),
        (file(CONF, "x" * 64 * 1024 + "\n"), "is longer than 65536 bytes"),
        (file(CONF, "\ud800\n"), "is not UTF-8"),
        (setting("file", {"path": CONF}, 4), "must be a string"),
        (sysctl("1\n2"), "does not match"),
        (nginx("LimitNOFILE", "1\n2"), "does not match"),
    ]
    for own, says in odd:
        error = host.fail("plan", tuning="t", digest="d", settings=[own])
        assert error["field"] == "settings[0].value" and says in error["message"], own


def test_links_and_what_is_no_plain_file_are_left_alone(host: AgentRoot) -> None:
    host.write("etc/real", "x\n")
    (host.path / "etc/link").symlink_to("real")
    (host.path / "etc/away").symlink_to("/etc/hostname")
    (host.path / "etc/behind").symlink_to("../usr")
    (host.path / "etc/directory").mkdir()
    os.mkfifo(host.path / "etc/fifo")
    host.write("etc/large", "x" * (64 * 1024 + 1))
    before = host.tree()
    says = {
        "/etc/link": "is behind a link",
        "/etc/away": "is behind a link",
        "/etc/behind/x.conf": "is behind a link",
        "/etc/directory": "is not a plain file",
        "/etc/fifo": "is not a plain file",
        "/etc/large": "is longer than 65536 bytes",
    }
    for path, why in says.items():
        row = row_of(host, file(path, "y\n"))
        assert row["status"] == "unsupported" and why in row["reason"], row
    assert host.tree() == before
    with pytest.raises(Unsupported, match="is behind a link"):
        File(Host("/")).runtime({"path": str(host.path / "etc/link")})


def test_a_file_that_masks_ours_is_named(host: AgentRoot) -> None:
    own = file("/usr/lib/udev/rules.d/60-x.rules", "x\n")
    assert row_of(host, own)["status"] == "change"
    host.write("etc/udev/rules.d/60-x.rules", "")
    row = row_of(host, own)
    assert row["status"] == "unsupported"
    assert row["reason"] == "/etc/udev/rules.d/60-x.rules masks /usr/lib/udev/rules.d/60-x.rules"
    assert row_of(host, file("/etc/udev/rules.d/60-x.rules", "x\n"))["status"] == "change"


def test_errors_name_a_file_by_its_size_and_sum(host: AgentRoot) -> None:
    request = host.change(file(CONF, TEXT))
    host.write("etc/app/app.conf", "somebody's\n" * 1000)
    message = host.fail("apply", **request)["message"]
    assert message.startswith(f"file:{CONF}: runtime is sha256:")
    assert ", 11000 bytes, 1000 lines, mode 0644, owner " in message
    assert "somebody" not in message and len(message) < 200


def test_a_plan_shows_a_file_in_one_short_line(host: AgentRoot, tmp_path: Path) -> None:
    row = taken(SettingRow, row_of(host, file(CONF, TEXT)))
    shown = replace(plan(tmp_path), profiles=[Profile(settings=[], before=[row], hosts=["e000"])])
    (line,) = (line for line in plan_text(shown).splitlines() if "file:" in line)
    assert "empty -> sha256:" in line and ", 33 bytes, 4 lines" in line and len(line) < 130


def test_a_file_in_the_catalogue_keeps_its_newlines(tmp_path: Path) -> None:
    own = {"kind": "file", "path": CONF, "value": "cpus {{ cpus.count }}\n\n", "why": "w"}
    document = {
        "name": "app",
        "version": "1.0.0",
        "summary": "s",
        "intent": {"improve": "cpu"},
        "guards": [],
        "settings": [{**own, "source": "s", "restart": "app"}],
    }
    tuning = load_tuning(write_yaml(tmp_path / "app.yaml", document))
    assert tuning.disruption == "restart"
    assert render(tuning, {"cpus": {"count": 4}, "nics": {}})[0].value == "cpus 4\n\n"


@pytest.mark.processes
def test_a_unit_is_stopped_and_disabled_and_comes_back(host: AgentRoot) -> None:
    host.make_unit(BALANCE)
    before = host.tree()
    own = unit(BALANCE, active="off", enabled="off")
    row = row_of(host, own)
    assert row["runtime"] == row["persistent"] == {"active": "on", "enabled": "on"}
    host.apply(own)
    assert host.unit(BALANCE) == ("inactive", "disabled")
    assert row_of(host, own)["status"] == "noop"
    host.boot()
    assert host.ask("verify", tuning="t", settings=[own])["verified"]
    host.restore()
    assert host.unit(BALANCE) == ("active", "enabled")
    assert without_boot_id(host.tree()) == without_boot_id(before)
    host.apply(own, sysctl("4096"))
    host.write(f"stub/units/{BALANCE}/enabled", "not-found\n")
    host.restore()
    assert host.unit(BALANCE) == ("inactive", "not-found"), "it is gone by now"


@pytest.mark.processes
def test_only_what_differs_is_changed(host: AgentRoot) -> None:
    host.make_unit("fstrim.timer", "inactive", "enabled")
    host.apply(unit("fstrim.timer", active="on"))
    changes = [line for line in host.commands if line.split()[1] in ("start", "enable")]
    assert changes == ["systemctl start fstrim.timer"]
    host.restore()
    assert host.unit("fstrim.timer") == ("inactive", "enabled")


@pytest.mark.processes
def test_a_unit_that_does_not_start_is_as_it_was(host: AgentRoot) -> None:
    host.make_unit(BALANCE, "failed", "disabled")
    host.write(f"stub/units/{BALANCE}/start-fails", "")
    own = unit(BALANCE, active="on", enabled="on")
    error = host.fail("apply", **host.change(own))
    assert "Job for irqbalance.service failed." in error["message"]
    assert error["message"].endswith("undone")
    assert host.unit(BALANCE) == ("failed", "disabled")


@pytest.mark.processes
@pytest.mark.parametrize("case", cases(HERE / "units.yaml"))
def test_what_a_unit_can_be(host: AgentRoot, case: dict[str, Any]) -> None:
    host.make_unit(BALANCE, *case["is"])
    own = unit(BALANCE, **case["wants"])
    row = row_of(host, own)
    assert row["status"] == case["status"] and case.get("reason", "") in row["reason"], row
    if case["status"] == "change":
        host.apply(own)
        host.restore()
        assert list(host.unit(BALANCE)) == case["is"]


PROTECTED = """
    ssh.service sshd.socket sshd@1.service dropbear.service dbus.service messagebus.service
    dbus-org.freedesktop.network1.service systemd-networkd.service NetworkManager.service
    networking.service wpa_supplicant@wlan0.service openvswitch-switch.service nftables.service
    frr.service bird6.service exabgp@a.service edgetune.service edgetune-revert-t.timer
"""


@pytest.mark.parametrize("name", PROTECTED.split())
def test_what_reaches_the_host_is_protected(host: AgentRoot, name: str) -> None:
    host.make_unit(name)
    error = host.fail("plan", tuning="t", digest="d", settings=[unit(name, active="off")])
    assert error["field"] == "settings[0].target.unit"
    assert error["message"] == f"{name} is needed to reach the host"


@pytest.mark.processes
def test_another_name_of_what_is_protected_is_no_way_around(host: AgentRoot) -> None:
    host.make_unit("door.service")
    host.write("stub/units/door.service/Names", "door.service ssh.service\n")
    row = row_of(host, unit("door.service", active="off"))
    says = "door.service is ssh.service, which is needed to reach the host"
    assert (row["status"], row["reason"]) == ("unsupported", says)


@pytest.mark.processes
def test_without_systemd_there_are_no_units(tmp_path: Path) -> None:
    with agent_root(tmp_path / "host") as host:
        host.make_unit(BALANCE)
        row = row_of(host, unit(BALANCE, active="off"))
        assert (row["status"], row["reason"]) == ("unsupported", "there is no systemd here")
