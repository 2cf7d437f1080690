# SPDX-License-Identifier: Apache-2.0
"""One module tells the time, and a test that needs another time hands in a clock."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgetune.base import clock as module
from tests.support import ROOT
from tests.support.virtual_clock import VirtualClock

LIB, AGENT = ROOT / "lib/edgetune", ROOT / "lib/edgetune/agent"
ASK = {
    *(f"time.{name}" for name in ("time", "monotonic", "perf_counter", "sleep", "clock_gettime")),
    *(f"time.{name}_ns" for name in ("time", "monotonic", "perf_counter", "clock_gettime")),
    *(f"datetime.datetime.{name}" for name in ("now", "utcnow", "today")),
    "datetime.date.today",
}
# They ask where they are not given so many arguments, and write a moment where they are.
WRITE = {"time.localtime": 1, "time.gmtime": 1, "time.ctime": 1, "time.asctime": 1} | {
    "time.strftime": 2
}
SOURCES = {name.partition(".")[2] for name in ASK} | {"time", "datetime"}
# It has no module of the controller: on hosts it runs alone.
OF_THE_AGENT = (
    ROOT / "tests/lib/agent",
    *(
        ROOT / f"tests/support/{name}.py"
        for name in ("sick_host", "machine_moves", "machine_freebsd")
    ),
)


def asks(text: str) -> Iterator[int]:
    """Lines of a module in which it asks the machine for the time, or sleeps."""
    if not re.search(r"\bimport\b.*\b(time|datetime)\b|\bfrom (time|datetime)\b", text):
        return
    tree = ast.parse(text)
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        for own in node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else ():
            above = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            names[own.asname or own.name] = above + own.name
    for node in ast.walk(tree):
        called = _meant(node.func, names) if isinstance(node, ast.Call) else ""
        if _meant(node, names) in ASK or (called in WRITE and len(node.args) < WRITE[called]):
            yield node.lineno


def _meant(node: ast.AST, names: dict[str, str]) -> str:
    """The full name of a function, by the imports of its module."""
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    return f"{_meant(node.value, names)}.{node.attr}" if isinstance(node, ast.Attribute) else ""


def patches(text: str) -> Iterator[int]:
    """Lines of a test that put something else in the place of a module's time."""
    if not re.search(rf"""["'][\w.]*\b({"|".join(SOURCES)})["']""", text):
        return
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        how = ast.unparse(node.func).rpartition(".")[2]
        if how not in ("setattr", "patch", "object"):
            continue
        words = [str(own.value) for own in node.args[:2] if isinstance(own, ast.Constant)]
        if words and words[0].rpartition(".")[2] in SOURCES:
            yield node.lineno


def places(find: object, *folders: Path, without: tuple[Path, ...]) -> list[str]:
    return [
        f"{file.relative_to(ROOT)}:{line}"
        for folder in folders
        for file in sorted(folder.rglob("*.py"))
        if not any(file.is_relative_to(other) for other in without)
        for line in find(file.read_text())  # type: ignore[operator]
    ]


def test_nothing_else_of_the_controller_asks_for_the_time() -> None:
    """Ask edgetune.base.clock: then a test, or a lab, can hand in another one."""
    own = (LIB / "base/clock.py", AGENT, ROOT / "actions/lib", ROOT / "sensors/lib")
    assert places(asks, LIB, ROOT / "actions", ROOT / "sensors", without=own) == []


def test_no_test_patches_the_time_of_a_module() -> None:
    """Take the fixture ``clock``, or clock.use(VirtualClock(...)): all modules ask that."""
    folders = (ROOT / "tests", ROOT / "bench")
    assert places(patches, *folders, without=(*OF_THE_AGENT, Path(__file__))) == []


def test_what_is_in_use_tells_all_times_until_its_end() -> None:
    with pytest.raises(KeyError), module.use(VirtualClock(1000.0, look=0.0)) as own:
        module.sleep(5)
        told = (module.wall(), module.now(), module.reading().wall)
        assert told == pytest.approx((1005.0, 1005.0, 1005.0))
        assert module.monotonic() == own.monotonic()
        raise KeyError
    assert abs(module.wall() - time.time()) < 60
    assert abs(module.monotonic() - time.monotonic()) < 60
    assert abs(module.now() - time.time()) < 60
