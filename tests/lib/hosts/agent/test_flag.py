# SPDX-License-Identifier: Apache-2.0
"""The flag by which a host says that it wants no requests, seen from the host."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_root import AgentRoot, near_root
from tests.support.steered import Steered

FILE = "/etc/edgetune/drained"
SETTLE = 20
MOUNTS = """\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
25 22 0:23 / /run rw,nosuid - tmpfs tmpfs rw
26 22 0:24 / /etc/with\\040space rw - tmpfs tmpfs rw
"""


@pytest.fixture
def flagged(tmp_path: Path) -> Iterator[Steered]:
    with near_root(tmp_path / "host") as root:
        (root.path / "etc/edgetune").mkdir(parents=True)
        yield Steered(root, "flag", file=FILE, settle=SETTLE)


def pass_time(root: AgentRoot, seconds: float) -> None:
    uptime = float(root.read("proc/uptime").split()[0])
    root.write("proc/uptime", f"{uptime + seconds:.2f} 0.00\n")


@pytest.mark.processes
def test_a_flag_goes_up_and_down_through_the_door_of_the_controller(flagged: Steered) -> None:
    fields = {"file": FILE, "settle": SETTLE}
    asked = {"by": "flag", "fields": fields, "withdrawn": "", "ports": [], "epoch": 1}
    seen = flagged.root.ask("drain", do="withdraw", **asked)
    assert (seen["withdrawn"], seen["sessions"]) == ("flag", None), "no port is not zero sessions"
    assert flagged.root.read(FILE[1:]) == "1\n"
    assert stat.S_IMODE((flagged.root.path / FILE[1:]).stat().st_mode) == 0o644
    assert flagged.root.ask("drain", do="restore", **asked)["withdrawn"] == ""
    assert not flagged.root.exists(FILE[1:])


def test_an_older_epoch_changes_nothing_and_may_look(flagged: Steered) -> None:
    flagged.told("withdraw", epoch=5)
    error = flagged.refused("restore", epoch=4)
    assert error == "epoch 4 is older than 5, which this host has seen"
    assert flagged.told(epoch=0)["withdrawn"] == "flag"
    assert flagged.told("restore", epoch=5)["withdrawn"] == ""


def test_a_host_leaves_and_comes_back_for_as_long_as_readers_need(flagged: Steered) -> None:
    assert flagged.told()["up"]
    assert flagged.told("withdraw")["leaving"]
    pass_time(flagged.root, SETTLE - 1)
    assert flagged.told()["leaving"]
    pass_time(flagged.root, 1)
    assert not flagged.told()["leaving"]
    # A second call begins no second wait.
    assert not flagged.told("isolate")["leaving"]
    # A boot changes no flag, and readers have to follow anew.
    flagged.root.new_boot_id()
    flagged.root.write("proc/uptime", "3.00 0.00\n")
    seen = flagged.told()
    assert (seen["withdrawn"], seen["leaving"]) == ("flag", True)
    pass_time(flagged.root, SETTLE)
    assert not flagged.told()["leaving"]
    assert not flagged.told("restore")["up"]
    other = flagged.told(file="/etc/edgetune/other")
    assert (other["withdrawn"], other["up"]) == ("", True), "it says nothing of another path"
    pass_time(flagged.root, SETTLE)
    assert flagged.told()["up"]


def test_a_flag_of_somebody_else_is_kept_to_the_byte(flagged: Steered) -> None:
    flag = flagged.root.write(FILE[1:], "bob: the disk\n")
    for do in ("withdraw", "isolate"):
        assert flagged.told(do)["withdrawn"] == "flag"
    assert flagged.told("restore", word="flag")["withdrawn"] == "flag"
    assert flag.read_text() == "bob: the disk\n"


def test_what_a_flag_cannot_be_is_told_before_and_changes_nothing(flagged: Steered) -> None:
    flagged.root.write("proc/self/mountinfo", MOUNTS)
    for place in ("run", "etc/with space", "etc/edgetune/taken"):
        (flagged.root.path / place).mkdir(parents=True, exist_ok=True)
    said = {
        "/nowhere/drained": "this host has no directory /nowhere",
        "/run/drained": "/run is a tmpfs, which a boot empties",
        "/etc/edgetune/taken": "/etc/edgetune/taken is not a plain file",
        "/var/lib/edgetune-not-ready": "edgetune's own mark",
    }
    for file, why in said.items():
        assert why in flagged.told(file=file)["refuses"]
    for file in ("/nowhere/drained", "/run/drained", "/var/lib/edgetune-not-ready"):
        assert said[file] in flagged.refused("withdraw", file=file)
        assert not flagged.root.exists(file[1:])
    assert flagged.told()["refuses"] == "", "a disk is none of these"


def test_a_host_on_which_a_flag_would_mean_little_is_not_withdrawn(flagged: Steered) -> None:
    (flagged.root.path / "etc/edgetune").chmod(0o777)
    assert "etc/edgetune" in flagged.refused("look"), "others could remove it"
    (flagged.root.path / "etc/edgetune").chmod(0o755)
    uptime = flagged.root.read("proc/uptime")
    (flagged.root.path / "proc/uptime").unlink()
    assert "does not tell its uptime" in flagged.refused("withdraw")
    assert not flagged.root.exists(FILE[1:])
    flagged.root.write("proc/uptime", uptime)
    flagged.told("withdraw")
    flagged.root.write("var/lib/edgetune/drain-flag.json", "[1]")
    assert "drain-flag.json is damaged" in flagged.refused("look"), "which is no old one"


@pytest.mark.parametrize(
    ("field", "value"),
    [("by", "haproxy"), ("do", "reset"), ("withdrawn", "No"), ("fields", {"file": "etc"})],
)
def test_a_request_that_is_none_names_the_field(flagged: Steered, field: str, value: Any) -> None:
    error = flagged.ask(**{field: value})["error"]
    assert error["reason"] == "bad_request" and error["field"].startswith(field), error
