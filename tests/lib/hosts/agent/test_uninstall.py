# SPDX-License-Identifier: Apache-2.0
"""Afterwards a host is as it was before edgetune ever came: every file, directory, mode, owner."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.verbs import uninstall
from edgetune.vocabulary import places
from tests.support.agent_root import AgentRoot, below, content, near_root, sysctl, thp

pytestmark = pytest.mark.processes

TEXTFILES = "/var/lib/prometheus/node-exporter"
FLAG = "/etc/app/drained"

Tree = dict[str, tuple[Any, ...]]


@pytest.fixture(params=["sysv", "systemd"])
def host(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[AgentRoot]:
    with near_root(tmp_path / "host", request.param, monkeypatch) as root:
        for name in ("run", "var/lib", TEXTFILES[1:], "etc/app"):
            (root.path / name).mkdir(parents=True, exist_ok=True)
        yield root


def whole(host: AgentRoot) -> Tree:
    """Everything below the root but the traces of the stubs; also what a restore leaves."""
    found: Tree = {}
    for entry in below(str(host.path), ["stub"]):
        status = entry.stat(follow_symlinks=False)
        found[entry.path] = (status.st_mode, status.st_uid, status.st_gid, content(entry))
    return found


def leave(host: AgentRoot, epoch: int = 9, dry_run: bool = False) -> dict[str, Any]:
    return host.ask("uninstall", epoch=epoch, dry_run=dry_run)


def flag(host: AgentRoot, do: str) -> None:
    fields = {"file": FLAG, "settle": 0}
    host.ask("drain", epoch=1, by="flag", fields=fields, do=do, withdrawn="", ports=[])


def use(host: AgentRoot) -> None:
    """A whole life: the text file, tunings that came and went over boots, drains, a reboot."""
    host.ask("textfile", directory=TEXTFILES)
    flag(host, "withdraw")
    flag(host, "restore")
    host.ask("ready", epoch=1, rollout="r1", ready=False, ports=[])
    host.apply(sysctl("4096"), thp("never"), tuning="queue")
    host.apply(sysctl("8192"), tuning="longer")
    host.run_hook()
    host.ask("ready", epoch=2, rollout="r1", ready=True, ports=[])
    host.restore("queue", epoch=3)
    host.restore("longer", epoch=3)


def test_a_host_is_as_it_was_before(host: AgentRoot) -> None:
    before = whole(host)
    assert leave(host)["files"] == [] and whole(host) == before, "it was never used"
    use(host)
    used = whole(host)
    assert used != before
    shown = leave(host, dry_run=True)
    assert whole(host) == used
    told = leave(host)
    assert (shown["files"], shown["left"]) == (told["files"], told["left"])
    assert whole(host) == before
    assert "/var/lib/edgetune/epoch" in told["files"] and told["left"] == []
    assert f"{TEXTFILES}/edgetune.prom" in told["files"]
    again = leave(host)
    assert (again["files"], again["left"]) == ([], [])
    assert whole(host) == before


def test_systemd_forgets_the_unit(tmp_path: Path) -> None:
    with near_root(tmp_path / "host", "systemd") as host:
        (host.path / TEXTFILES[1:]).mkdir(parents=True)
        host.ask("textfile", directory=TEXTFILES)
        leave(host)
        assert host.commands[-1] == "systemctl daemon-reload"


@pytest.mark.parametrize("died", [1, 2, 4, 7, 10, 13])
def test_one_that_died_half_way_is_finished_by_the_next(host: AgentRoot, died: int) -> None:
    before = whole(host)
    use(host)
    remove, seen = Host.remove, []

    def dies(self: Host, name: str, only_draft: bool = False) -> None:
        seen.append(name)
        if len(seen) == died:
            raise KeyboardInterrupt
        remove(self, name, only_draft)

    host.patch.setattr(Host, "remove", dies)
    with pytest.raises(KeyboardInterrupt):
        leave(host)
    host.patch.undo()
    leave(host)
    assert whole(host) == before


def test_what_others_put_there_stays_and_is_told(host: AgentRoot) -> None:
    use(host)
    host.write("var/lib/edgetune/notes", "of a person")
    host.write("etc/edgetune/prefix_file.json", "{}")
    told = leave(host)
    assert told["left"] == ["/var/lib/edgetune/notes", "/etc/edgetune"]
    assert host.leftovers() == {"notes"}


def refused(host: AgentRoot, epoch: int = 9, dry_runs: Sequence[bool] = (False,)) -> str:
    before = whole(host)
    for dry_run in dry_runs:
        error = host.fail("uninstall", epoch=epoch, dry_run=dry_run)
        assert error["reason"] == "refused"
        seen = whole(host)
        seen.pop(f"{host.path}/run/edgetune.lock", None)
        before.pop(f"{host.path}/run/edgetune.lock", None)
        assert seen == before
    return str(error["message"])


def test_a_tuning_that_stands_is_named(host: AgentRoot) -> None:
    host.apply(sysctl("4096"), tuning="queue")
    host.apply(thp("never"), tuning="pages")
    host.write("var/lib/edgetune/tunings/pages.json", "{").chmod(0o600)
    assert leave(host, dry_run=True)["tunings"] == ["pages", "queue"]
    assert refused(host) == "tunings stand here: pages, queue"


def test_a_host_that_is_in_use_stays(host: AgentRoot) -> None:
    host.ask("ready", epoch=1, rollout="r1", ready=False, ports=[])
    assert refused(host, dry_runs=(True, False)).startswith("r1 has drained this host")
    host.ask("ready", epoch=1, rollout="r1", ready=True, ports=[])
    host.write("var/lib/edgetune/congestion.json", "{}").chmod(0o600)
    assert "congestion control" in refused(host, dry_runs=(True, False))


def test_who_was_at_work_before_is_refused(host: AgentRoot) -> None:
    use(host)
    assert refused(host, epoch=2) == "epoch 2 is older than 3, which this host has seen"


def test_two_never_change_a_host_at_once_over_the_end_of_the_lock(host: AgentRoot) -> None:
    """One waits for the lock while that file is removed, and a third one comes in between."""
    root, inside, most = Host(str(host.path)), list[int](), list[int]()

    def change() -> None:
        with Host(str(host.path)).lock():
            inside.append(1)
            most.append(len(inside))
            until.wait(0.2)
            inside.pop()

    until = threading.Event()
    threads = [threading.Thread(target=change) for _ in range(3)]
    with root.lock():
        threads[0].start()
        until.wait(0.2)
        root.remove("/run/edgetune.lock")
        threads[1].start()
        until.wait(0.2)
    threads[2].start()
    for thread in threads:
        thread.join()
    assert most == [1, 1, 1]


def test_every_place_of_ours_is_removed() -> None:
    """What the agent names as its own, wherever it does."""
    known = {*uninstall.OURS, *uninstall.LAST, places.STATE, places.CONGESTION, places.NOT_READY}
    own = {name: text for name, text in vars(places).items() if name.isupper()}
    others = {"HOOKS", "SYSTEMD", "SETUP", "PREFIX_FILE_SETUP", "OURS", "HANDED_OVER"}
    assert {text for name, text in own.items() if name not in others} <= known
