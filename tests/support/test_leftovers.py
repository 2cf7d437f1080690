# SPDX-License-Identifier: Apache-2.0
"""A test that leaves a socket, a process or a temporary file fails by its own name."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable

import pytest

from tests.support import ROOT, leftovers
from tests.support.waiting import wait_for_end, wait_until


@contextmanager
def a_socket() -> Iterator[object]:
    with closing(socket.socket()) as own:
        yield own


@contextmanager
def a_file() -> Iterator[object]:
    path = Path(tempfile.mkstemp()[1])
    yield path
    path.unlink()


@contextmanager
def a_process() -> Iterator[object]:
    with subprocess.Popen(["sleep", "60"]) as own:
        yield own
        own.kill()


LEFT = [a_socket, a_file, pytest.param(a_process, marks=pytest.mark.processes)]


@pytest.mark.parametrize("leave", LEFT)
def test_it_is_seen_until_it_is_gone(leave: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "GRACE", 0.0)
    left = leftovers.Leftovers()
    before = left.before()
    with leave():
        assert len(left.after(before)) == 1
    assert left.after(before) == []


@pytest.mark.parametrize("leave", LEFT[:2])
def test_it_may_stay_as_long_as_a_fixture_of_several_tests(
    leave: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "GRACE", 0.0)
    left = leftovers.Leftovers()
    before = left.before()
    own = leave()
    with left.of_wide_fixture():
        own.__enter__()
    assert left.after(before) == []
    own.__exit__(None, None, None)


def test_what_a_peer_asks_of_the_server_of_a_wide_fixture_is_no_leftover(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leftovers, "GRACE", 0.0)
    left = leftovers.Leftovers()
    with socket.create_server(("127.0.0.1", 0)) as server:
        before = left.before()
        with socket.create_connection(server.getsockname()), closing(server.accept()[0]):
            assert len(left.after(before)) == 1  # the peer itself
        assert left.after(before) == []


@pytest.mark.parametrize(
    ("flags", "free", "named", "is_fast"),
    [(0, leftovers.ROOM, {}, True), (os.ST_NOEXEC, leftovers.ROOM, {}, False)]
    + [(0, leftovers.ROOM - 1, {}, False), (0, leftovers.ROOM, {"TMPDIR": "/"}, False)],
)
def test_a_ram_disk_is_used_where_all_tests_have_room_and_nobody_named_a_place(
    flags: int,
    free: int,
    named: dict[str, str],
    is_fast: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = SimpleNamespace(f_flag=flags, f_bavail=free, f_frsize=1)
    monkeypatch.setattr(os, "statvfs", lambda _: told)
    monkeypatch.setattr(os, "environ", named)
    assert (leftovers.temporary_place(tmp_path) == tmp_path) == is_fast
    assert leftovers.temporary_place(tmp_path / "none") == Path(tempfile.gettempdir())


OWNER = """
import subprocess, tempfile
from tests.support import leftovers
leftovers.of_tests.own_folder()
child = subprocess.Popen(["sleep", "600"])
print(tempfile.mkdtemp(), child.pid, flush=True)
child.wait()
"""


@pytest.mark.processes
def test_what_a_killed_process_of_pytest_made_and_started_goes_with_it(tmp_path: Path) -> None:
    own = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": f"{ROOT}:{ROOT / 'lib'}"}
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], env=own, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        folder, child = process.stdout.readline().split()
        process.kill()
    assert Path(folder).parent.parent == tmp_path
    wait_until(lambda: not any(tmp_path.iterdir()), folder)
    wait_for_end([child])
