# SPDX-License-Identifier: Apache-2.0
"""The door: every answer of an agent is checked whole, and what passes is what steps may read."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any, Callable

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from edgetune.agent.dispatch import VERBS
from edgetune.base.errors import HostError
from edgetune.base.sanitize import LONGEST_LINE
from edgetune.net.hosts.answers import longest, read_answer
from edgetune.net.result import HostResult
from tests.support.agent_answers import REQUESTS, RESULTS
from tests.support.examples import examples

Path = tuple[Any, ...]


def reply(verb: str, result: Any) -> dict[str, Any]:
    """What an agent sends."""
    return {"edgetune": 1, "verb": verb, "ok": True, "result": result}


def read(verb: str, document: Any) -> HostResult:
    raw = document if isinstance(document, bytes) else json.dumps(document).encode()
    return read_answer("e000", verb, REQUESTS[verb], raw)


def refusal(verb: str, document: Any) -> str:
    with pytest.raises(HostError) as refused:
        read(verb, document)
    return str(refused.value)


def paths(value: Any, at: Path = ()) -> Iterator[Path]:
    """Where each part of a document is."""
    yield at
    below = value.items() if isinstance(value, dict) else ()
    below = enumerate(value) if isinstance(value, list) else below
    for name, part in below:
        yield from paths(part, (*at, name))


def changed(document: Any, at: Path, change: Callable[[Any, Any], None]) -> Any:
    """A copy in which the parent of a place was changed."""
    own = copy.deepcopy(document)
    parent = own
    for name in at[:-1]:
        parent = parent[name]
    change(parent, at[-1])
    return own


def _put(value: Any) -> Callable[[Any, Any], None]:
    return lambda parent, name: parent.__setitem__(name, value)


@pytest.mark.parametrize("verb", VERBS)
def test_a_true_answer_passes_as_it_is_with_what_is_told_beside(verb: str) -> None:
    for beside in ({}, {"new": [{"a": None}], "more": 1.5}):
        told = {**RESULTS[verb], **beside}
        answer = read(verb, reply(verb, told))
        assert (answer.failed, answer.data) == (False, told)


OPEN = {
    "numbers",
    "counters",
    "gauges",
    "way_back",
    "services",
    "nodes",
    "thp",
    "runtime",
    "wanted",
}
OPEN |= {"max", "current", "ring_max", "persistent"}
REQUIRED = [
    (verb, at)
    for verb in VERBS
    for at in paths(RESULTS[verb])
    if at
    and not OPEN & {*at[:-1]}
    and at[:-1] not in [("nics",), ("tunings",), ("agent_state", "tunings")]
    and (verb, at[:-1]) != ("hand_over", ("files",))
    and not any(isinstance(value, int) for value in at[-1:])
    and at != ("seconds",)
]


@pytest.mark.parametrize(("verb", "at"), REQUIRED)
def test_a_field_that_is_missing_is_named(verb: str, at: Path) -> None:
    result = changed(RESULTS[verb], at, lambda parent, name: parent.pop(name))
    assert refusal(verb, reply(verb, result)).endswith(f".{at[-1]}: is missing")


@pytest.mark.parametrize("verb", VERBS)
def test_no_field_takes_a_value_of_another_type(verb: str) -> None:
    """A list stands nowhere for anything else, nor does a mapping of unknown names."""
    for at in paths(RESULTS[verb]):
        old = RESULTS[verb]
        for name in at:
            old = old[name]
        for wrong in ([[0]], {"a": [0]}, True, 10**30, -1e30):
            if at != ("seconds",) and not (type(wrong) is type(old) is bool):
                result = changed(RESULTS[verb], at, _put(wrong)) if at else wrong
                assert refusal(verb, reply(verb, result)), (at, wrong)


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


ERROR = {"reason": "failed", "field": None, "message": "Read-only file system"}


def with_error(error: Any) -> dict[str, Any]:
    return {"edgetune": 1, "verb": "facts", "ok": False, "error": error}


def with_field(verb: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    """A true answer but for these fields."""
    return verb, reply(verb, {**RESULTS[verb], **fields})


NOT_OURS = "it is not the agent's"
NEITHER = "ok: it has neither a result nor an"
LARGE = {f"{i}": 0 for i in range(6_000)}
MANY = {f"c{i}": 1 for i in range(3_000)}
REFUSED: list[tuple[tuple[str, Any], str]] = [
    # What an agent tells beside is bounded.
    (with_field("reboot", new=nested(900)), "is nested deeper than"),
    (with_field("reboot", new="x" * 70_000), "has 70000 characters"),
    (with_field("reboot", new=[0] * 6_000), "has 6000 entries"),
    (with_field("reboot", new=LARGE), "has 6000 entries"),
    (with_field("reboot", new={"x" * 6_000: 0}), "has 6000 characters"),
    (with_field("reboot", new="a\ud800b"), "holds half a character"),
    (with_field("reboot", new=float("nan")), NOT_OURS),
    (with_field("reboot", new=float("-inf")), NOT_OURS),
    (with_field("reboot", new=10**40), NOT_OURS),
    # What is no answer.
    (("facts", b"Welcome to Linux!\n"), f"{NOT_OURS}: b'Welcome"),
    (("facts", b"[" * 200_000), NOT_OURS),
    (("facts", b"\xff\xfe"), NOT_OURS),
    (("facts", {"edgetune": 2, "ok": True}), "edgetune: it does not speak protocol 1"),
    (("facts", {"edgetune": True}), "edgetune: it does not speak protocol 1"),
    (("facts", ["edgetune"]), "edgetune: it does not speak protocol 1"),
    (("facts", {"edgetune": 1, "verb": "apply"}), "verb: it is not the answer to 'facts'"),
    (("facts", {"edgetune": 1, "verb": "facts", "ok": True}), NEITHER),
    (("facts", {"edgetune": 1, "verb": "facts", "ok": False}), NEITHER),
    (("facts", {"edgetune": 1, "verb": "facts", "ok": 1, "result": {}}), NEITHER),
    (("facts", reply("facts", None)), "result: must be a mapping, not None"),
    (("facts", with_error([])), "error: must be a mapping"),
    # These two would have a host asked again, or be taken for one that goes down.
    (("facts", with_error({**ERROR, "reason": "unreachable"})), "error.reason: must be one of"),
    (("facts", with_error({**ERROR, "reason": ["failed"]})), "error.reason: must be one of"),
    (("facts", with_error({**ERROR, "field": 5})), "error.field: must be a text"),
    (("facts", with_error({"reason": "failed", "field": None})), "error.message: is missing"),
    # A host that is ready when it should not be, and a boot that is not told.
    (with_field("ready", ready=True), "result.ready: is not what was asked for"),
    *(
        (with_field("facts", boot_id=boot_id), "result.boot_id: must be")
        for boot_id in ("", " ", "a b", "x" * 101, None)
    ),
    # A sample has so many readings.
    *(
        (with_field("sample", **{kind: wrong}), f"result.{kind}")
        for kind in ("counters", "gauges")
        for wrong in (MANY, {"x" * 41: 1}, {"a b": 1}, {"": 1}, {"a": -1}, {"a": True})
    ),
]


@pytest.mark.parametrize(("told", "says"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_no_answer_is_named(told: tuple[str, Any], says: str) -> None:
    assert says in refusal(*told)


def test_a_long_error_is_cut_to_a_line() -> None:
    error = {**ERROR, "field": "a\nb", "message": "m" * 60_000}
    answer = read("facts", with_error(error))
    told = str(answer.error)
    assert (answer.reason, len(told), told.isprintable()) == ("failed", LONGEST_LINE, True)
    assert told.startswith("a b: mmm")
    assert told.endswith("(60005 characters)")


@pytest.mark.parametrize("verb", ["plan", "verify", "confirm"])
def test_a_setting_of_which_nothing_is_told_is_not_as_wanted(verb: str) -> None:
    own = RESULTS[verb]["settings"]
    for rows, says in (
        ([], "sysctl:net.core.somaxconn is missing"),
        (own[:1], "nic.ring:eth0 is missing"),
        ([*own, own[0]], "sysctl:net.core.somaxconn was not asked for, or is told twice"),
        ([*own, {**own[0], "id": "file:/etc/x"}], "file:/etc/x was not asked for"),
    ):
        assert says in refusal(*with_field(verb, settings=rows))


def test_a_sample_has_so_many_bytes() -> None:
    full = {f"c{i:039d}": 10**23 for i in range(64)}
    kept = read(*with_field("sample", counters=full, gauges=full))
    assert len(json.dumps({own: kept.data[own] for own in ("counters", "gauges")})) < 10_000
    assert longest("sample") == 1 << 20


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["", "x" * 1200, 10**30, 10**400, "a\x00b", "\u202e"]),
    lambda below: (
        st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def lies(draw: Any, verb: str) -> Any:
    """A true answer with up to three changes, anywhere."""
    document: Any = reply(verb, RESULTS[verb])
    for _ in range(draw(st.integers(1, 3))):
        places = [at for at in paths(document) if at]
        if not places:
            break
        document = changed(document, draw(st.sampled_from(places)), draw(CHANGES))
    return document


def _take_away(parent: Any, name: Any) -> None:
    del parent[name]


def _twice(parent: Any, name: Any) -> None:
    if isinstance(parent, list):
        parent.append(copy.deepcopy(parent[name]))


CHANGES = st.builds(_put, JSON) | st.just(_take_away) | st.just(_twice)


@pytest.mark.parametrize("verb", VERBS)
@examples(50, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_document_is_an_answer_or_is_refused_in_one_line(verb: str, data: Any) -> None:
    document = data.draw(lies(verb) | JSON)
    try:
        answer = read(verb, document)
    except HostError as error:
        assert str(error)
        return
    # What passed can be kept, shown and compared.
    assert json.loads(json.dumps(answer.data)) == answer.data
    assert answer.failed or answer.data["boot_id"].isprintable()
