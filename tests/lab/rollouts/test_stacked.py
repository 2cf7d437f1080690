# SPDX-License-Identifier: Apache-2.0
"""Tunings on each other on a lab PoP: the lower one is retired first, and another handed over."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from edgetune.base.files import load_yaml
from lab import pop as lab
from tests.support import ROOT
from tests.support.builders import write_yaml
from tests.support.practice import FOUR, Practice, needs_lab, practising

pytestmark = [*needs_lab, pytest.mark.long]

PATIENCE = 60.0
SOURCE = "https://docs.kernel.org/admin-guide/sysctl/"
LOOK = (
    "cd /proc/sys; echo $(cat net/core/somaxconn vm/swappiness /etc/stacked.conf;"
    " ip route show 10.77.0.0/16 | sed 's/.*initcwnd //';"
    " ls /sys/class/net/eth0/queues | grep -c rx)"
)
# Two queues instead of four: a change that may cut the host off, so it is provisional at first.
CARD = load_yaml(ROOT / "tunings/rps_spread.yaml")["settings"]


def _tuning(name: str, settings: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": name,
        "version": "1.0.0",
        "summary": "Stand above or below another tuning.",
        "intent": {"no_harm": "packet_drops", "margin": 5},
        # On a busy machine four hosts share the packets less evenly than in a margin of 5 %.
        "guards": [{"metric": "health_failed", "margin": 5}, {"metric": "packets", "margin": 3}],
        "settings": [{"why": "It is a test.", "source": SOURCE, **each} for each in settings],
    }


def _sysctl(key: str, value: int) -> dict[str, Any]:
    return {"kind": "sysctl", "key": key, "value": value}


def _route(initcwnd: int) -> dict[str, Any]:
    value = {"initcwnd": initcwnd}
    return {"kind": "route.metric", "family": "inet", "route": "10.77.0.0/16", "value": value}


def _file(text: str, **more: Any) -> dict[str, Any]:
    return {"kind": "file", "path": "/etc/stacked.conf", "value": text, **more}


LOWER = [
    *CARD,
    _sysctl("net.core.somaxconn", 64),
    _sysctl("vm.swappiness", 10),
    _route(20),
    _file("lower\n", disruption="drain"),
]
UPPER = [_sysctl("net.core.somaxconn", 128), _route(30), _file("upper\n")]
KEPT = [_sysctl("net.core.somaxconn", 64), _sysctl("vm.swappiness", 10)]
SOMAXCONN = "/proc/sys/net/core/somaxconn"
BOTH = f"echo $(cat {SOMAXCONN} /proc/sys/vm/swappiness)"
FILE = "/etc/sysctl.d/89-kept.conf"
# Names of files, and files by their content, where a tuning leaves any. The epoch stays, and so do
# counters of the access log.
MARKS = (
    "find /etc /var/lib/edgetune /var/lib/systemd /lib/systemd -name '*edgetune*' ! -type d;"
    " find /var/lib/edgetune -type f ! -name '*epoch' ! -name access_log.json;"
    " grep -rIl edgetune /etc; true"
)


@pytest.fixture(scope="module")
def practice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Practice]:
    """A lab of four hosts whose catalogue has the tunings."""
    home = tmp_path_factory.mktemp("home")
    with practising(home, hosts=4) as made:
        write_yaml(home / "edgetune.yaml", {**made.config, "tunings": [str(home / "tunings")]})
        (home / "tunings").mkdir()
        for name, settings in (("lower", LOWER), ("upper", UPPER), ("kept", KEPT)):
            write_yaml(home / f"tunings/{name}.yaml", _tuning(name, settings))
        yield made


def reboot(practice: Practice, host: str) -> None:
    """Reboot a host from its console, and wait until its boot is over and it serves.

    The load balancer alone does not tell: a boot may begin before its checks miss the host.
    """
    before = lab.boots(practice.home)[host]
    with suppress(lab.LabError):  # the console may end before it answers
        practice.on(host, "reboot")
    ends = time.monotonic() + PATIENCE
    while lab.boots(practice.home)[host] == before or not has_web_server(practice, host):
        assert time.monotonic() < ends
        time.sleep(0.2)
    practice.wait_until_all_serve()


def has_web_server(practice: Practice, host: str) -> bool:
    """Whether the host's init is past the scripts of the boot."""
    try:
        return bool(practice.on(host, "pgrep -x nginx"))
    except lab.LabError:
        return False


def test_a_tuning_is_retired_under_another_one(practice: Practice) -> None:
    before, lost = practice.fingerprints(), practice.lost()
    for name in ("lower", "upper"):
        done = practice.roll_out(f"tuning={name}", *FOUR)
        assert done["outcome"] == "promoted", done["message"]
    assert set(practice.on_all(LOOK).values()) == {"128 10 upper 30 2\n"}
    journals = practice.on_all("cat /var/lib/edgetune/tunings/lower.json")
    assert {json.loads(text)["state"] for text in journals.values()} == {"confirmed"}
    for name, why in (
        ("upper", "upper stands on lower: hand that over first"),
        ("lower", "is kept by edgetune's boot hook, and by no file alone"),
    ):
        kept = practice.run("retire_tuning", "pop=lab1", f"tuning={name}", "hand_over=true")
        assert kept["exit"] and why in kept["message"], kept
        assert "nothing was touched" in kept["message"]
    retired = practice.run("retire_tuning", "pop=lab1", "tuning=lower", "reason=too old")
    assert retired["message"] == "lower is taken back from lab1"
    assert set(practice.on_all(LOOK).values()) == {"128 60 upper 30 4\n"}
    status = practice.edgetune("status", f"rollout={retired['rollouts'][0]}")[1]
    assert "rolling_back retired: too old" in status
    assert "every host is as it was" in status and "quarantined" not in status
    back = practice.run("roll_back_pop", f"rollout={done['rollout']}")
    assert (back["outcome"], back["quarantined"]) == ("rolled_back", {})
    assert practice.fingerprints() == before
    assert (practice.serving(), practice.lost()) == (set(practice.hosts), lost)


def test_what_is_handed_over_stays_without_us_and_can_be_tuned_again(practice: Practice) -> None:
    before, none = practice.fingerprints(), practice.on_all(MARKS)
    done = practice.roll_out("tuning=kept", *FOUR)
    assert done["outcome"] == "promoted", done["message"]
    assert "90-edgetune" in practice.on("e000", MARKS), "the marks are looked for where they are"
    with practice.losing_nothing():
        told = practice.run("retire_tuning", "pop=lab1", "tuning=kept", "hand_over=true")
        assert (told["exit"], told["rollouts"]) == (0, [done["rollout"]]), told
    assert {*told["files"]} == {*practice.hosts}
    assert [[*own.values()] for own in told["files"].values()] == [[FILE]] * 4
    for name, own in practice.fingerprints().items():
        assert {*own} - {*before[name]} == {FILE[1:]}
        assert {key for key in before[name] if own[key] != before[name][key]} == {SOMAXCONN[1:]}
    reboot(practice, "e001")
    assert set(practice.on_all(BOTH).values()) == {"64 10\n"}
    assert practice.on_all(MARKS) == none
    refused = practice.run("roll_back_pop", f"rollout={done['rollout']}")
    assert refused["exit"] and "was handed over at" in refused["message"], refused
