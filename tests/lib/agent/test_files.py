# SPDX-License-Identifier: Apache-2.0
"""The kinds ``file`` and ``unit``: whole files, and units of systemd."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgetune.agent.host import Host
from edgetune.agent.kinds.file import File
from edgetune.agent.protocol import Unsupported
from edgetune.base.documents.plan import Profile
from edgetune.base.documents.reading import taken
from edgetune.base.documents.settings import SettingRow
from edgetune.intent.rendering import render
from edgetune.intent.tuning import load_tuning
from edgetune.report.text import plan_text
from tests.support.agent_root import (
    AgentRoot,
    file,
    nginx,
    setting,
    sysctl,
    unit,
)
from tests.support.builders import plan, write_tuning

INIT = "systemd"

HERE = Path(__file__).parent
CONF = "/etc/app/app.conf"
TEXT = "# größer\nworkers 4\n\n\tcache off\n"


def row_of(host: AgentRoot, own: dict[str, Any]) -> dict[str, Any]:
    return host.plan(own)[0]


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


def test_a_plan_shows_a_file_in_one_short_line(host: AgentRoot, tmp_path: Path) -> None:
    row = taken(SettingRow, row_of(host, file(CONF, TEXT)))
    shown = replace(plan(tmp_path), profiles=[Profile(settings=[], before=[row], hosts=["e000"])])
    (line,) = (line for line in plan_text(shown).splitlines() if "file:" in line)
    assert "empty -> sha256:" in line and ", 33 bytes, 4 lines" in line and len(line) < 130


def test_a_file_in_the_catalogue_keeps_its_newlines(tmp_path: Path) -> None:
    own = {"kind": "file", "path": CONF, "value": "cpus {{ cpus.count }}\n\n", "restart": "app"}
    tuning = load_tuning(write_tuning(tmp_path / "app.yaml", own))
    assert tuning.disruption == "restart"
    assert render(tuning, {"cpus": {"count": 4}, "nics": {}})[0].value == "cpus 4\n\n"


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
