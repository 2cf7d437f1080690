# SPDX-License-Identifier: Apache-2.0
"""Puts the pack on the path as StackStorm does, and stand-ins for StackStorm behind all else."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Callable

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parents[1]

for place in (ROOT, ROOT / "actions", ROOT / "sensors", ROOT / "lib"):
    sys.path.insert(0, str(place))
sys.path.append(str(ROOT / "lab" / "standins"))

from edgetune.base.clock import use  # noqa: E402 - from the path of above
from edgetune.rollout.hosts import drain  # noqa: E402
from edgetune.rollout.store import nodes  # noqa: E402
from tests.support import examples, kept_connections, leftovers, processes  # noqa: E402
from tests.support.virtual_clock import RunningClock, VirtualClock  # noqa: E402

# A busy machine takes as long as it likes for an example.
hypothesis.settings.register_profile("usual", deadline=None)
hypothesis.settings.load_profile("usual")
hypothesis.settings.register_profile("quick", max_examples=examples.FEW, deadline=None)

# Before a step imports it. A load balancer in this process need not be asked twice a second only.
drain.POLL = 0.05
# The pack stays as it is while tests run; to read all of it takes a doctor longer than all else.
nodes._of_pack = cache(nodes._of_pack)

# StackStorm's test classes patch sockets and threads for eventlet as they are imported; actions
# are never patched, and tests that start threads and processes would hang.
with contextlib.suppress(ImportError):
    from st2common.util import monkey_patch

    monkey_patch.monkey_patch = lambda patch_thread=None: None

# A program that a shell started in the background ignores it, and so would all that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
# So does one under nohup with SIGHUP. A program that we start gets the default of what we handle.
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

# The last numpy for Python 3.9 starts lscpu when a test first compares arrays.
if sys.version_info < (3, 10):
    import numpy.testing  # noqa: F401

left = leftovers.of_tests
left.own_folder()
guard = processes.Guard()
guard.watch()

sqlite3.connect = kept_connections.connect
# No disk is asked to outlive a power cut, either by SQLite or by an agent in this process.
os.fsync = lambda descriptor: None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that use a lab first, then those that start processes: they take longest, and one
    begun last would run alone."""
    items.sort(key=_begins)


def pytest_collection_finish() -> None:
    """What was collected stays: no search for garbage goes through it again."""
    gc.collect()
    gc.freeze()


def _begins(item: pytest.Item) -> int:
    marks = {mark.name for mark in item.iter_markers()}
    if "lab" in marks or {"processes", "slow"} <= marks:
        return 0
    return 1 if marks & {"processes", "slow"} else 2


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let no test start a process without a mark, nor a fixture or a thread for it."""
    with guard.over(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Fail with the refusal also where the code under test took it for one of its own."""
    try:
        return (yield)
    finally:
        if guard.refused:
            pytest.fail(guard.refused, pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    """A fixture of several tests may leave something open for them."""
    if fixturedef.scope == "function":
        return (yield)
    with left.of_wide_fixture():
        return (yield)


_before = pytest.StashKey[set[str]]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Note what is open before a test."""
    item.stash[_before] = left.before()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Fail the test that leaves sockets, processes or temporary files, not the next one."""
    done = yield
    kept_connections.close_all()
    if leaves := left.after(item.stash[_before]):
        pytest.fail(f"{item.nodeid} leaves {', '.join(leaves)}", pytrace=False)
    return done


@pytest.fixture
def zone() -> Iterator[Callable[[str], None]]:
    """What sets the time zone of this process until the test ends."""
    with pytest.MonkeyPatch.context() as patch:

        def change(name: str) -> None:
            patch.setenv("TZ", name)
            time.tzset()

        yield change
    time.tzset()


@pytest.fixture
def clock() -> Iterator[VirtualClock]:
    """Time passes by sleeps alone from here on, and these take none."""
    with use(VirtualClock()) as own:
        yield own


@pytest.fixture
def running_clock() -> Iterator[RunningClock]:
    """Sleeps take no time, and what is waited for otherwise takes its own."""
    with use(RunningClock()) as own:
        yield own
