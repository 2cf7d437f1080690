# SPDX-License-Identifier: Apache-2.0
"""Afterwards a host is as it was before edgetune ever came: every file, directory, mode, owner."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from edgetune.agent.host import Host
from edgetune.agent.verbs import own as uninstall
from edgetune.agent.vocabulary import places

pytestmark = pytest.mark.processes


def test_two_never_change_a_host_at_once_over_the_end_of_the_lock(tmp_path: Path) -> None:
    """One waits for the lock while that file is removed, and a third one comes in between."""
    (tmp_path / "run").mkdir()
    root, inside, most = Host(str(tmp_path)), list[int](), list[int]()

    def change() -> None:
        with Host(str(tmp_path)).lock():
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
