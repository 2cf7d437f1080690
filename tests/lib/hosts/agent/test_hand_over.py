# SPDX-License-Identifier: Apache-2.0
"""A tuning handed over: its effect stays over boots, and no file tells of edgetune."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgetune.hosts.agent.dispatch import answer as answer_below
from edgetune.hosts.agent.host import Host
from tests.lib.hosts.agent.test_power import MOST_STEPS, STRIDE, cut
from tests.lib.hosts.agent.test_uninstall import whole
from tests.support.agent_root import (
    AgentRoot,
    file,
    near_root,
    nginx,
    request,
    setting,
    sysctl,
    thp,
    unit,
)
from tests.support.freebsd import freebsd_host
from tests.support.kernels import GRACE, cmdline, kernel_host

pytestmark = pytest.mark.processes

SETTINGS = [
    sysctl("4096"),
    nginx("LimitNOFILE", "65536"),
    file("/etc/security/limits.d/web.conf", "www - nofile 65536\n"),
]
SYSCTL_FILE = "etc/sysctl.d/90-edgetune-0001-t.conf"
DROP_IN = "etc/systemd/system/nginx.service.d/90-edgetune-0001-t.conf"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[AgentRoot]:
    with near_root(tmp_path / "host", "systemd") as root:
        for name in ("run", "var/lib", "etc/security/limits.d"):
            (root.path / name).mkdir(parents=True, exist_ok=True)
        yield root


def ask_for(*settings: dict[str, Any], **changes: Any) -> dict[str, Any]:
    fields = {"epoch": 1, "dry_run": False, "tuning": "t", "digest": "sha256:1", "rollout": "r1"}
    return {**fields, "settings": list(settings or SETTINGS), **changes}


def hand_over(host: AgentRoot, *settings: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return host.ask("hand_over", **ask_for(*settings, **changes))


def refused(host: AgentRoot, *settings: dict[str, Any], **changes: Any) -> str:
    """Why a hand-over is refused, in a dry run and else, with nothing changed."""

    def there() -> dict[str, Any]:
        left_out = ("/run/", "/var/lib/edgetune/epoch")
        return {
            name: was
            for name, was in whole(host).items()
            if not any(own in name for own in left_out)
        }

    before = there()
    for dry_run in (True, False):
        error = host.fail("hand_over", **ask_for(*settings, dry_run=dry_run, **changes))
        assert error["reason"] == "refused" and there() == before
    return str(error["message"])


def marks(host: AgentRoot) -> list[str]:
    """What tells of edgetune below the root: names of files, and files by their content."""
    found = []
    for name, was in whole(host).items():
        own = name[len(str(host.path)) :]
        content = was[3] if isinstance(was[3], bytes) else b""
        # The stubs are of the test.
        if ("edgetune" in own or b"edgetune" in content) and "/sbin/" not in own:
            found.append(own)
    return found


def stands(host: AgentRoot, *settings: dict[str, Any]) -> bool:
    """Whether all is as wanted, now and after a boot."""
    return all(row["status"] == "noop" for row in host.plan(*(settings or SETTINGS)))


def test_the_effect_stays_over_two_boots_and_nothing_tells_of_us(host: AgentRoot) -> None:
    host.apply(*SETTINGS)
    shown = hand_over(host, dry_run=True)
    assert host.exists(SYSCTL_FILE) and host.state() == "confirmed"
    told = hand_over(host)
    assert told == shown
    assert told["files"] == {
        f"/{SYSCTL_FILE}": "/etc/sysctl.d/89-t.conf",
        f"/{DROP_IN}": "/etc/systemd/system/nginx.service.d/89-t.conf",
    }
    assert (told["found"], told["wrong"]) == (True, [])
    assert host.read("etc/sysctl.d/89-t.conf") == "net.core.somaxconn = 4096\n"
    assert "systemctl daemon-reload" in host.commands
    assert host.state() == "none"
    host.ask("uninstall", epoch=3, dry_run=False)
    assert marks(host) == []
    for _ in range(2):
        host.boot()
        assert host.read("proc/sys/net/core/somaxconn") == "4096\n"
        assert stands(host) and marks(host) == ["/run/edgetune.lock"] * host.exists(
            "run/edgetune.lock"
        )


def test_what_was_handed_over_is_not_taken_back_nor_handed_over_again(host: AgentRoot) -> None:
    host.apply(*SETTINGS)
    hand_over(host)
    again = hand_over(host)
    assert (again["files"], again["found"], again["wrong"]) == ({}, False, [])
    assert host.restore()["nothing_to_restore"] and stands(host)
    host.write("proc/sys/net/core/somaxconn", "128\n")
    assert hand_over(host)["wrong"] == ["sysctl:net.core.somaxconn differs now"]


def test_what_a_person_changed_in_a_file_stays(host: AgentRoot) -> None:
    host.apply(*SETTINGS)
    (host.path / SYSCTL_FILE).write_text(host.read(SYSCTL_FILE) + "# mine\nvm.swappiness = 60\n")
    hand_over(host)
    assert host.read("etc/sysctl.d/89-t.conf").endswith("4096\n# mine\nvm.swappiness = 60\n")


def test_what_would_not_hold_is_refused_by_name(host: AgentRoot) -> None:
    own = [*SETTINGS, thp("never")]
    host.apply(*own, epoch=5)
    error = host.fail("hand_over", **ask_for(*own, epoch=4))
    assert error["message"] == "epoch 4 is older than 5, which this host has seen"

    def why(**changes: Any) -> str:
        return refused(host, *own, **{"epoch": 5, **changes})

    assert why() == "memory.thp:enabled is kept by edgetune's boot hook, and by no file alone"
    assert why(rollout="r2").endswith("and not by r2, digest sha256:1")
    assert why(digest="sha256:2").endswith("and not by r1, digest sha256:2")
    host.restore(epoch=5)
    host.apply(*SETTINGS, epoch=5)
    own.pop()
    host.write("etc/sysctl.d/89-t.conf", "vm.swappiness = 10\n")
    assert why() == "/etc/sysctl.d/89-t.conf is there already: move it away"
    (host.path / "etc/sysctl.d/89-t.conf").unlink()
    # It is read before ours, and after what ours becomes.
    host.write("etc/sysctl.d/90-custom.conf", "net.core.somaxconn = 512\n")
    assert why() == "sysctl:net.core.somaxconn of t: a boot would make it 512, not 4096"
    (host.path / "etc/sysctl.d/90-custom.conf").unlink()
    host.write("proc/sys/net/core/somaxconn", "128\n")
    assert why() == "sysctl:net.core.somaxconn differs now"
    host.write("proc/sys/net/core/somaxconn", "4096\n")
    (host.path / SYSCTL_FILE).unlink()
    assert why() == "sysctl:net.core.somaxconn would be lost at the next boot"
    assert host.state() == "confirmed"


def test_a_host_that_a_rollout_holds_and_a_change_on_trial_are_refused(host: AgentRoot) -> None:
    host.apply(*SETTINGS, confirm_within=600)
    assert refused(host) == "t is provisional"
    host.ask("confirm", epoch=1, tuning="t", digest="sha256:1", settings=SETTINGS)
    host.ask("ready", epoch=1, rollout="r9", ready=False, ports=[])
    assert refused(host).startswith("r9 has drained this host")


def test_the_oldest_of_several_goes_first_and_the_order_stays(host: AgentRoot) -> None:
    host.apply(sysctl("4096"))
    host.apply(sysctl("8192"), tuning="a", rollout="r2")
    above = {"tuning": "a", "rollout": "r2"}
    assert refused(host, sysctl("8192"), **above) == "a stands on t: hand that over first"
    hand_over(host, sysctl("4096"))
    host.boot()
    assert host.read("proc/sys/net/core/somaxconn") == "8192\n"
    # The way back of the later one leads to what was handed over.
    host.restore("a")
    assert host.read("proc/sys/net/core/somaxconn") == "4096\n"
    host.boot()
    assert host.read("proc/sys/net/core/somaxconn") == "4096\n"


def test_the_same_tuning_can_be_applied_over_what_it_left(host: AgentRoot) -> None:
    host.make_unit("irqbalance.service")
    own = [sysctl("4096"), unit("irqbalance.service", active="off", enabled="off")]
    host.apply(*own)
    assert list(hand_over(host, *own)["files"]) == [f"/{SYSCTL_FILE}"]
    assert host.unit("irqbalance.service") == ("inactive", "disabled")
    host.apply(sysctl("8192"), digest="sha256:2", rollout="r2")
    host.boot()
    assert host.read("proc/sys/net/core/somaxconn") == "8192\n"
    host.restore(epoch=4)
    assert host.read("etc/sysctl.d/89-t.conf") == "net.core.somaxconn = 4096\n"
    assert host.read("proc/sys/net/core/somaxconn") == "4096\n"


def test_files_are_as_before_where_it_does_not_hold(
    host: AgentRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.apply(*SETTINGS)
    before = host.tree()
    remove = Host.remove

    def loses(self: Host, name: str, only_draft: bool = False) -> None:
        remove(self, name, only_draft)
        if name == f"/{SYSCTL_FILE}":
            host.write("proc/sys/net/core/somaxconn", "128\n")

    monkeypatch.setattr(Host, "remove", loses)
    error = host.fail("hand_over", **ask_for())
    monkeypatch.undo()
    assert "without edgetune's files it does not hold: sysctl:net" in error["message"]
    host.write("proc/sys/net/core/somaxconn", "4096\n")
    assert host.tree() == before and host.state() == "confirmed"


@pytest.mark.slow
@pytest.mark.parametrize("entries", [False, True])
@pytest.mark.parametrize("then", ["hand_over", "restore"])
def test_a_power_cut_leaves_a_tuning_that_stands_or_is_handed_over(
    host: AgentRoot, then: str, entries: bool
) -> None:
    """Its effect is there after any boot. What was begun is finished, or taken back wholly."""
    before = {name: was for name, was in host.tree().items() if "boot_id" not in name}
    ends = set()
    for step in range(2 * entries, MOST_STEPS, STRIDE):
        host.apply(*SETTINGS)
        died = cut(host, request("hand_over", **ask_for()), step, entries)
        assert host.boot().stderr == ""
        assert host.read("proc/sys/net/core/somaxconn") == "4096\n" and stands(host), step
        ends.add(host.state())
        if then == "hand_over":
            hand_over(host)
            host.ask("uninstall", epoch=3, dry_run=False)
            assert marks(host) == [] and stands(host), step
            for name in ("etc/sysctl.d/89-t.conf", DROP_IN.replace("90-edgetune-0001", "89")):
                (host.path / name).unlink()
            (host.path / "etc/security/limits.d/web.conf").unlink()
            host.write("proc/sys/net/core/somaxconn", "128\n")
            host.boot()
        elif host.state() == "confirmed":
            assert answer_below(str(host.path), request("restore", epoch=1, tuning="t"))["ok"]
            now = {name: was for name, was in host.tree().items() if "boot_id" not in name}
            assert now == before, step
        if not died:
            assert ends == {"confirmed", "none"} and step > 15
            return
        if then == "restore" and "none" in ends:
            return
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("loader", ["grub", "grub_bls", "systemd_boot"])
def test_a_kernel_and_its_words_stay_without_our_marks(tmp_path: Path, loader: str) -> None:
    with kernel_host(tmp_path / "host", loader) as host:
        own = [host.kernel(), cmdline("mitigations=off")]
        host.apply(*own, **GRACE)
        assert host.boot_anew() == [] and host.confirm(*own)["confirmed"]
        kept = host.stable()
        if loader == "grub":
            cloud = host.write("etc/default/grub.d/90-cloud.cfg", 'GRUB_CMDLINE_LINUX="quiet"\n')
            error = host.fail("hand_over", **ask_for(*own))
            assert error["message"].startswith("/etc/default/grub.d/90-cloud.cfg is read between")
            cloud.unlink()
        told = hand_over(host, *own)
        grub = "/etc/default/grub.d/89-mitigations.cfg"
        assert list(told["files"].values()) == ([grub] if loader == "grub" else [])
        host.ask("uninstall", epoch=3, dry_run=False)
        assert marks(host) == []
        assert host.stable() == kept and stands(host, *own)
        if loader == "grub":
            host.loader.has_shell = True
            Host(str(host.path)).run("update-grub")
        for _ in range(2):
            assert host.boot_anew() == [] and stands(host, *own)


def test_on_freebsd_a_tunable_is_handed_over_and_a_sysctl_is_refused(tmp_path: Path) -> None:
    with freebsd_host(tmp_path / "host") as host:
        own = setting("loader.tunable", {"tunable": "hw.ix.rxd"}, "4096")
        host.apply(own, **GRACE)
        host.boot_anew()
        host.ask("confirm", epoch=1, tuning="t", digest="sha256:1", settings=[own])
        told = hand_over(host, own)
        assert list(told["files"].values()) == ["/boot/loader.conf.d/89-t.conf"]
        host.boot_anew()
        assert host.parameter("hw.ix.rxd") == "4096" and stands(host, own)
        queue = sysctl("1024", "kern.ipc.soacceptqueue")
        host.apply(queue, tuning="q", rollout="r2")
        error = host.fail("hand_over", **ask_for(queue, tuning="q", rollout="r2"))
        assert "kern.ipc.soacceptqueue is kept by edgetune's boot hook" in error["message"]
