# SPDX-License-Identifier: Apache-2.0
"""Dataclasses that compile nothing until one is made, beside those of the standard library."""

from __future__ import annotations

import dataclasses
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, field, fields, replace
from threading import Barrier, Thread
from typing import Any

import pytest

from edgetune.base.dataclass import dataclass
from tests.support import ROOT

Decorator = Callable[..., Any]
_OTHER = re.compile(r"^\s*from dataclasses import .*\bdataclass\b|@dataclasses\.", re.MULTILINE)
DECORATORS = [dataclass, dataclasses.dataclass]


def _classes(decorator: Decorator, frozen: bool) -> tuple[type[Any], type[Any]]:
    """One with each kind of field, and a class below it."""

    @decorator(frozen=frozen)
    class Whole:
        """Has each kind of field."""

        name: str
        number: int = 1
        secret: str = field(default="s", repr=False)
        parts: list[int] = field(default_factory=list)

        @property
        def twice(self) -> int:
            return 2 * self.number

    @decorator(frozen=frozen)
    class Below(Whole):
        """Gives one field another default, and has one more."""

        number: int = 7
        last: bool = False

    return Whole, Below


CALLS: list[tuple[list[Any], dict[str, Any]]] = [
    ([], {}),
    (["a"], {}),
    (["a", 2, "t", [1]], {}),
    (["a", 2, "t", [1], True], {}),
    (["a", 2, "t", [1], True, 6], {}),
    ([], {"name": "a"}),
    ([], {"number": 3}),
    (["a"], {"name": "b"}),
    (["a"], {"number": 3, "parts": (1,)}),
    (["a"], {"secret": None, "last": 0}),
    (["a"], {"unknown": 1}),
]


def _made(cls: type[Any], values: list[Any], named: dict[str, Any]) -> Any:
    try:
        one = cls(*values, **named)
    except TypeError:
        return TypeError
    return dict(vars(one)), repr(one).rpartition(".")[2], asdict(one)


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("below", [True, False])
@pytest.mark.parametrize(("values", "named"), CALLS)
def test_they_take_keep_and_show_what_those_of_the_library_do(
    frozen: bool, below: bool, values: list[Any], named: dict[str, Any]
) -> None:
    ours, theirs = (_classes(each, frozen)[below] for each in DECORATORS)
    # The first of a class is made in another way than those after it.
    for _ in range(2):
        assert _made(ours, values, named) == _made(theirs, values, named)


@pytest.mark.parametrize("decorator", DECORATORS)
def test_equal_are_those_of_one_class_with_equal_values(decorator: Decorator) -> None:
    whole, below = _classes(decorator, frozen=True)
    assert whole("a", 7) == whole("a", 7)
    for other in (whole("b", 7), below("a", 7), ("a", 7, "s", [])):
        assert whole("a", 7) != other
    one, other = whole("a"), whole("a")
    one.parts.append(1)
    assert other.parts == []
    assert [each.name for each in fields(whole)] == ["name", "number", "secret", "parts"]


@pytest.mark.parametrize("decorator", DECORATORS)
def test_frozen_ones_are_not_changed_and_others_have_no_hash(decorator: Decorator) -> None:
    frozen, _ = _classes(decorator, frozen=True)
    one = frozen("a", parts=())
    assert hash(one) == hash(frozen("a", parts=()))
    for change in (lambda: setattr(one, "name", "b"), lambda: delattr(one, "name")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    assert one.name == "a"
    open_one = _classes(decorator, frozen=False)[0]("a")
    open_one.name = "b"
    assert replace(open_one, number=3) == type(open_one)("b", 3)
    with pytest.raises(TypeError, match="unhashable"):
        hash(open_one)


@pytest.mark.parametrize("decorator", DECORATORS)
def test_what_a_class_has_of_its_own_stays(decorator: Decorator) -> None:
    @decorator
    class Own:
        value: int

        def __post_init__(self) -> None:
            self.value += 1

        def __repr__(self) -> str:
            return "mine"

    assert (Own(1).value, repr(Own(1))) == (2, "mine")

    @decorator
    class Alone:
        value: int

        def __init__(self) -> None:
            self.value = 5

    assert Alone().value == 5


def test_threads_may_make_the_first_ones_together() -> None:
    for _ in range(50):
        whole, below = _classes(dataclass, frozen=True)
        barrier, made = Barrier(4), []

        def make(cls: type[Any], barrier: Barrier = barrier, made: list[Any] = made) -> None:
            barrier.wait()
            made.append(cls("a", number=4).twice)

        threads = [Thread(target=make, args=(cls,)) for cls in (whole, below) * 2]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert made == [8] * 4


@dataclass(frozen=True)
class Sent:
    """What another process unpickles before it has made one."""

    value: int


@pytest.mark.processes
def test_one_is_whole_that_came_from_another_process() -> None:
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "import pickle; from tests.lib.base.test_dataclass import Sent\n"
        f"one = pickle.loads({pickle.dumps(Sent(3))!r}); print(one == Sent(3), repr(one))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "True Sent(value=3)\n", done.stderr


# Each costs an action up to a tenth of what all else does; an action that needs one imports it.
SELDOM = ["difflib", "http.client", "paramiko", "redis", "ssl", "tempfile", "zoneinfo"]


@pytest.mark.processes
@pytest.mark.parametrize("step", ["claim_pop", "sample_hosts", "verify_hosts"])
def test_an_action_imports_nothing_that_few_need(step: str) -> None:
    code = f"""
import sys
sys.path[:0] = {sys.path!r}
import edgetune.report.action, edgetune.rollout.steps.{step}
from tests.support import ROOT

print([name for name in {SELDOM!r} if sys.modules.get(name)])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("asked", [{"init": False}, {"compare": False}, {"hash": False}])
def test_a_field_that_would_not_be_obeyed_is_refused(asked: dict[str, bool]) -> None:
    with pytest.raises(TypeError, match=r"Odd\.number: a field takes default and repr alone"):

        @dataclass
        class Odd:
            number: int = field(default=1, **asked)


def test_the_library_has_no_other_decorator() -> None:
    files = (ROOT / "lib/edgetune").rglob("*.py")
    using = {file.name for file in files if re.search(_OTHER, file.read_text(encoding="utf-8"))}
    assert using == {"dataclass.py"}
