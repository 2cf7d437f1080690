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

from edgetune.errors import HostError
from edgetune.hosts.agent.dispatch import VERBS
from edgetune.hosts.answers import longest, read_answer
from edgetune.hosts.result import HostResult
from edgetune.sanitize import LONGEST_LINE
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


@pytest.mark.parametrize("verb", VERBS)
def test_a_true_answer_passes_as_it_is(verb: str) -> None:
    answer = read(verb, reply(verb, RESULTS[verb]))
    assert (answer.failed, answer.data) == (False, RESULTS[verb])


REQUIRED = [
    (verb, at)
    for verb in VERBS
    for at in paths(RESULTS[verb])
    if at
    and not {"numbers", "counters", "gauges", "way_back", "services", "nodes", "thp"} & {*at[:-1]}
    and not {"max", "current", "ring_max"} & {*at[:-1]}
    and at[:-1] not in [("nics",), ("tunings",), ("agent_state", "tunings")]
    and (verb, at[:-1]) != ("hand_over", ("files",))
    and not any(isinstance(value, int) for value in at[-1:])
    and at[-2:-1] not in [("runtime",), ("wanted",), ("persistent",)]
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
        if at == ("seconds",):
            continue
        old = RESULTS[verb]
        for name in at:
            old = old[name]
        for wrong in ([[0]], {"a": [0]}, True, 10**30, -1e30):
            if type(wrong) is type(old) and isinstance(wrong, bool):
                continue
            put = reply(verb, wrong if not at else None)
            if at:
                put["result"] = changed(
                    RESULTS[verb],
                    at,
                    lambda own, name, wrong=wrong: (
                        own.update({name: wrong})
                        if isinstance(own, dict)
                        else own.__setitem__(name, wrong)
                    ),
                )
            assert refusal(verb, put), (at, wrong)


@pytest.mark.parametrize("verb", VERBS)
def test_what_an_agent_tells_beside_is_kept(verb: str) -> None:
    beside = {"new": [{"a": None}], "more": 1.5}
    assert read(verb, reply(verb, {**RESULTS[verb], **beside})).data == {**RESULTS[verb], **beside}


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("beside", "says"),
    [
        (nested(900), "is nested deeper than"),
        ("x" * 70_000, "has 70000 characters"),
        ([0] * 6_000, "has 6000 entries"),
        ({f"{i}": 0 for i in range(6_000)}, "has 6000 entries"),
        ({"x" * 6_000: 0}, "has 6000 characters"),
        ("a\ud800b", "holds half a character"),
        (float("nan"), "it is not the agent's"),
        (float("-inf"), "it is not the agent's"),
        (10**40, "it is not the agent's"),
    ],
)
def test_what_an_agent_tells_beside_is_bounded(beside: Any, says: str) -> None:
    assert says in refusal("reboot", reply("reboot", {**RESULTS["reboot"], "new": beside}))


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (b"Welcome to Linux!\n", "it is not the agent's: b'Welcome"),
        (b"[" * 200_000, "it is not the agent's"),
        (b"\xff\xfe", "it is not the agent's"),
        ({"edgetune": 2, "ok": True}, "edgetune: it does not speak protocol 1"),
        ({"edgetune": True}, "edgetune: it does not speak protocol 1"),
        (["edgetune"], "edgetune: it does not speak protocol 1"),
        ({"edgetune": 1, "verb": "apply", "ok": True}, "verb: it is not the answer to 'facts'"),
        ({"edgetune": 1, "verb": "facts", "ok": True}, "ok: it has neither a result nor an"),
        ({"edgetune": 1, "verb": "facts", "ok": False}, "ok: it has neither a result nor an"),
        ({"edgetune": 1, "verb": "facts", "ok": 1, "result": {}}, "ok: it has neither a result"),
        (reply("facts", None), "result: must be a mapping, not None"),
    ],
)
def test_what_is_no_answer_is_named(document: Any, says: str) -> None:
    assert says in refusal("facts", document)


ERROR = {"reason": "failed", "field": None, "message": "Read-only file system"}


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ([], "error: must be a mapping"),
        # These two would have a host asked again, or be taken for one that goes down.
        ({**ERROR, "reason": "unreachable"}, "error.reason: must be one of"),
        ({**ERROR, "reason": ["failed"]}, "error.reason: must be one of"),
        ({**ERROR, "field": 5}, "error.field: must be a text"),
        ({"reason": "failed", "field": None}, "error.message: is missing"),
    ],
)
def test_an_error_is_an_answer_as_well(error: Any, says: str) -> None:
    document = {"edgetune": 1, "verb": "facts", "ok": False, "error": error}
    assert says in refusal("facts", document)


def test_a_long_error_is_cut_to_a_line() -> None:
    error = {**ERROR, "field": "a\nb", "message": "m" * 60_000}
    answer = read("apply", {"edgetune": 1, "verb": "apply", "ok": False, "error": error})
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
        assert says in refusal(verb, reply(verb, {**RESULTS[verb], "settings": rows}))


def test_a_host_that_is_ready_when_it_should_not_be_is_no_answer() -> None:
    ready = {**RESULTS["ready"], "ready": True}
    assert "result.ready: is not what was asked for" in refusal("ready", reply("ready", ready))


@pytest.mark.parametrize("boot_id", ["", " ", "a b", "x" * 101, None])
def test_a_boot_that_is_not_told_is_no_other_boot(boot_id: Any) -> None:
    told = {**RESULTS["facts"], "boot_id": boot_id}
    assert "result.boot_id: must be" in refusal("facts", reply("facts", told))


def test_a_sample_has_so_many_readings_and_bytes() -> None:
    many = {f"c{i}": 1 for i in range(65)}
    for kind in ("counters", "gauges"):
        for wrong in (many, {"x" * 41: 1}, {"a b": 1}, {"": 1}, {"a": -1}, {"a": True}):
            told = reply("sample", {**RESULTS["sample"], kind: wrong})
            assert f"result.{kind}" in refusal("sample", told)
    full = {f"c{i:039d}": 10**23 for i in range(64)}
    kept = read("sample", reply("sample", {**RESULTS["sample"], "counters": full, "gauges": full}))
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


def _put(value: Any) -> Callable[[Any, Any], None]:
    return lambda parent, name: parent.__setitem__(name, value)


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
