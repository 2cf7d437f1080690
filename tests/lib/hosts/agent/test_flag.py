# SPDX-License-Identifier: Apache-2.0
"""The flag by which a host says that it wants no requests, seen from the host."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgetune.hosts.agent.dispatch import answer
from tests.support.agent_root import AgentRoot, near_root, request

FILE = "/etc/edgetune/drained"
SETTLE = 20
MOUNTS = """\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
25 22 0:23 / /run rw,nosuid - tmpfs tmpfs rw
26 22 0:24 / /etc/with\\040space rw - tmpfs tmpfs rw
"""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[AgentRoot]:
    with near_root(tmp_path / "host") as root:
        (root.path / "etc/edgetune").mkdir(parents=True)
        yield root


def ask(host: AgentRoot, do: str = "look", **more: Any) -> dict[str, Any]:
    """The whole reply, in this process."""
    fields = {"file": more.pop("file", FILE), "settle": SETTLE}
    asked = {"by": "flag", "fields": fields, "do": do, "withdrawn": "", "ports": [80], "epoch": 1}
    return answer(str(host.path), request("drain", **{**asked, **more}))


def told(host: AgentRoot, do: str = "look", **more: Any) -> dict[str, Any]:
    reply = ask(host, do, **more)
    assert reply["ok"], reply
    result: dict[str, Any] = reply["result"]
    return result


def refused(host: AgentRoot, do: str, **more: Any) -> str:
    reply = ask(host, do, **more)
    assert not reply["ok"], reply
    return str(reply["error"]["message"])


def pass_time(host: AgentRoot, seconds: float) -> None:
    uptime = float(host.read("proc/uptime").split()[0])
    host.write("proc/uptime", f"{uptime + seconds:.2f} 0.00\n")


@pytest.mark.processes
def test_a_flag_goes_up_and_down_through_the_door_of_the_controller(host: AgentRoot) -> None:
    fields = {"file": FILE, "settle": SETTLE}
    asked = {"by": "flag", "fields": fields, "withdrawn": "", "ports": [], "epoch": 1}
    seen = host.ask("drain", do="withdraw", **asked)
    assert (seen["withdrawn"], seen["sessions"]) == ("flag", None), "no port is not zero sessions"
    assert host.read(FILE[1:]) == "1\n"
    assert stat.S_IMODE((host.path / FILE[1:]).stat().st_mode) == 0o644
    assert host.ask("drain", do="restore", **asked)["withdrawn"] == ""
    assert not host.exists(FILE[1:])


def test_an_older_epoch_changes_nothing_and_may_look(host: AgentRoot) -> None:
    told(host, "withdraw", epoch=5)
    error = refused(host, "restore", epoch=4)
    assert error == "epoch 4 is older than 5, which this host has seen"
    assert told(host, epoch=0)["withdrawn"] == "flag"
    assert told(host, "restore", epoch=5)["withdrawn"] == ""


def test_a_host_leaves_and_comes_back_for_as_long_as_readers_need(host: AgentRoot) -> None:
    assert told(host)["up"]
    assert told(host, "withdraw")["leaving"]
    pass_time(host, SETTLE - 1)
    assert told(host)["leaving"]
    pass_time(host, 1)
    assert not told(host)["leaving"]
    # A second call begins no second wait.
    assert not told(host, "isolate")["leaving"]
    # A boot changes no flag, and readers have to follow anew.
    host.new_boot_id()
    host.write("proc/uptime", "3.00 0.00\n")
    seen = told(host)
    assert (seen["withdrawn"], seen["leaving"]) == ("flag", True)
    pass_time(host, SETTLE)
    assert not told(host)["leaving"]
    assert not told(host, "restore")["up"]
    pass_time(host, SETTLE)
    assert told(host)["up"]


def test_a_flag_of_somebody_else_is_kept_to_the_byte(host: AgentRoot) -> None:
    flag = host.write(FILE[1:], "bob: the disk\n")
    for do in ("withdraw", "isolate"):
        assert told(host, do)["withdrawn"] == "flag"
    assert told(host, "restore", withdrawn="flag")["withdrawn"] == "flag"
    assert flag.read_text() == "bob: the disk\n"
    other = told(host, file="/etc/edgetune/other")
    assert (other["withdrawn"], other["up"]) == ("", True), "it says nothing of another path"


def test_what_a_flag_cannot_be_is_told_before_and_changes_nothing(host: AgentRoot) -> None:
    host.write("proc/self/mountinfo", MOUNTS)
    for place in ("run", "etc/with space", "etc/edgetune/taken"):
        (host.path / place).mkdir(parents=True, exist_ok=True)
    said = {
        "/nowhere/drained": "this host has no directory /nowhere",
        "/run/drained": "/run is a tmpfs, which a boot empties",
        "/etc/edgetune/taken": "/etc/edgetune/taken is not a plain file",
        "/var/lib/edgetune-not-ready": "edgetune's own mark",
    }
    for file, why in said.items():
        assert why in told(host, file=file)["refuses"]
    for file in ("/nowhere/drained", "/run/drained", "/var/lib/edgetune-not-ready"):
        assert said[file] in refused(host, "withdraw", file=file)
        assert not host.exists(file[1:])
    assert told(host)["refuses"] == "", "a disk is none of these"


def test_a_host_on_which_a_flag_would_mean_little_is_not_withdrawn(host: AgentRoot) -> None:
    (host.path / "etc/edgetune").chmod(0o777)
    assert "etc/edgetune" in refused(host, "look"), "others could remove it"
    (host.path / "etc/edgetune").chmod(0o755)
    uptime = host.read("proc/uptime")
    (host.path / "proc/uptime").unlink()
    assert "does not tell its uptime" in refused(host, "withdraw")
    assert not host.exists(FILE[1:])
    host.write("proc/uptime", uptime)
    told(host, "withdraw")
    host.write("var/lib/edgetune/drain-flag.json", "[1]")
    assert "drain-flag.json is damaged" in refused(host, "look"), "which is no old one"


@pytest.mark.parametrize(
    ("field", "value"),
    [("by", "haproxy"), ("do", "reset"), ("withdrawn", "No"), ("fields", {"file": "etc"})],
)
def test_a_request_that_is_none_names_the_field(host: AgentRoot, field: str, value: Any) -> None:
    error = ask(host, **{field: value})["error"]
    assert error["reason"] == "bad_request" and error["field"].startswith(field), error
