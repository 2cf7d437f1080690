# SPDX-License-Identifier: Apache-2.0
"""Every kind of setting that needs no boot on a real machine, and how it survives one.

EDGETUNE_MACHINE is what runs a command there as root, such as ``ssh root@192.0.2.7``. It is changed
and rebooted, so let it be one that nobody needs. A virtual machine with systemd, nginx, network
cards with several queues and two NUMA nodes shows most of Linux; FreeBSD is tried as well.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import shlex
import subprocess
import time
from typing import Any

import pytest

from edgetune import AGENT_PROTOCOL
from edgetune.agent import bundle
from edgetune.agent.vocabulary.kinds import KINDS
from edgetune.net.hosts.conversation import BOOTSTRAP
from edgetune.net.hosts.fleet import packed
from tests.machine.throwaway import SYSTEMS, System

MACHINE = shlex.split(os.environ.get("EDGETUNE_MACHINE", ""))
SERVICE = os.environ.get("EDGETUNE_MACHINE_SERVICE", "nginx")
BOOT_SECONDS = 300
LONGEST = 300

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        not MACHINE, reason="EDGETUNE_MACHINE names no machine that may be changed and rebooted"
    ),
]
# What ssh(1) ends with where the connection itself fails.
NOT_CONNECTED = 255


class Lost(Exception):
    """The connection to the machine could not be made, or broke; ssh says why."""


def on_machine(command: str, given: bytes = b"") -> bytes:
    """What a command says; Lost where it was not seen to end."""
    try:
        done = subprocess.run(
            [*MACHINE, command], input=given, capture_output=True, timeout=LONGEST, check=False
        )
    except subprocess.TimeoutExpired:
        raise Lost(f"no end within {LONGEST} s: {command[:60]}") from None
    if done.returncode == NOT_CONNECTED:
        raise Lost(done.stderr.decode("utf-8", "replace").strip() or "ssh says nothing")
    return done.stdout


def reply_to(verb: str, **fields: Any) -> dict[str, Any]:
    """One round trip, as the controller has it; Lost where there is no answer."""
    source = packed(bundle.make())
    request = json.dumps({"protocol": AGENT_PROTOCOL, "verb": verb, **fields}).encode()
    told = on_machine(BOOTSTRAP, source + request)
    if not told.endswith(b"}\n"):
        raise Lost(f"{verb} was answered in part: {told[-60:]!r}")
    reply: dict[str, Any] = json.loads(told)
    return reply


def ask(verb: str, **fields: Any) -> dict[str, Any]:
    """The result of what is expected to go well."""
    reply = reply_to(verb, **fields)
    assert reply["ok"], reply
    result: dict[str, Any] = reply["result"]
    return result


def boot_id() -> str:
    """Which boot it is in, as the agent proves it; "" where it does not say so now."""
    reply = reply_to("facts")
    return str(reply["result"]["boot_id"]) if reply["ok"] else ""


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    return ask("facts")


@pytest.fixture(scope="module")
def system(facts: dict[str, Any]) -> System:
    return SYSTEMS[facts["system"]]


def look(system: System) -> list[str]:
    """The machine as it is. The script goes to sh(1): root's own shell may be csh(1)."""
    script = system.look.replace("SERVICE", SERVICE)
    return on_machine("sh -s", script.encode()).decode().splitlines()


def plan(settings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ask("plan", tuning="t", digest="sha256:1", settings=settings)[
        "settings"
    ]
    return rows


def apply(settings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Apply as many of them as drivers really take; those that were applied come back."""
    seen = {row["id"]: {k: row[k] for k in ("runtime", "persistent")} for row in plan(settings)}
    head = {"epoch": 1, "rollout": "r1", "tuning": "t", "digest": "sha256:1"}
    within = {"confirm_within": 600, "grace_boots": 1}
    reply = reply_to("apply", settings=settings, expect=seen, **head, **within)
    if reply["ok"]:
        assert reply["result"]["state"] == "provisional"
        return settings
    why = reply["error"]["message"]
    refused = [own for own in settings if why.startswith(f"{own['id']}: cannot be set to")]
    assert refused and why.endswith("Operation not supported; undone"), why
    print(why)
    return apply([own for own in settings if own not in refused])


def reboot(system: System) -> None:
    before = ask("facts")["boot_id"]
    assert ask("reboot", epoch=1, boot_id=before)["rebooting"]
    end = time.monotonic() + BOOT_SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(Lost):
            if boot_id() not in ("", before) and on_machine(system.is_up).strip() == b"up":
                return
        time.sleep(2)
    raise AssertionError("the machine did not come back")


def wrong(settings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is not as wanted."""
    rows = ask("verify", tuning="t", settings=settings)["settings"]
    return [row for row in rows if not row["ok"]]


@pytest.fixture(scope="module")
def chosen(facts: dict[str, Any], system: System) -> list[dict[str, Any]]:
    """What the machine supports, as far as a plan can tell."""
    wanted = [own for own in system.wishes(facts, SERVICE) if KINDS.on_hosts(own["kind"])]
    reasons = {row["id"]: row["reason"] for row in plan(wanted) if row["status"] == "unsupported"}
    print(*(f"{id}: {why}" for id, why in reasons.items()), sep="\n")
    return [own for own in wanted if own["id"] not in reasons]


def changes(before: list[str], after: list[str]) -> list[str]:
    return list(difflib.unified_diff(before, after, n=0, lineterm=""))


def test_all_that_it_supports_is_set_and_goes_without_a_trace(
    system: System, chosen: list[dict[str, Any]]
) -> None:
    before = look(system)
    try:
        applied = apply(chosen)
        print("applied: " + ", ".join(own["id"] for own in applied))
        assert not wrong(applied)
        assert changes(before, look(system))
    finally:
        ask("restore", epoch=1, tuning="t")
    left = changes(before, look(system))
    assert not left, "\n".join(left)


def test_it_survives_a_boot(system: System, chosen: list[dict[str, Any]]) -> None:
    def but_random() -> list[str]:
        """Without the keys of RSS, and what follows from the memory that is free at a boot."""
        other = r".*([0-9a-f]{2}:){10,}[0-9a-f]{2}|vm\.(user_reserve|min_free)_kbytes.*"
        return [line for line in look(system) if not re.fullmatch(other, line)]

    before = but_random()
    try:
        applied = apply(chosen)
        reboot(system)
        assert not wrong(applied)
        assert ask("confirm", epoch=1, tuning="t", settings=applied)["confirmed"]
    finally:
        ask("restore", epoch=1, tuning="t")
    left = changes(before, but_random())
    assert not left, "\n".join(left)
