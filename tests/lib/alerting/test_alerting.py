# SPDX-License-Identifier: Apache-2.0
"""Silences in Alertmanager: bounded, renewed, found again and ended, whatever it answers."""

from __future__ import annotations

import json
import ssl
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from edgetune.base import clock
from edgetune.net import silences
from edgetune.net.silences import Matcher, Silence, SilenceState, Wanted, keep_silences
from edgetune.site.alertmanager import Alertmanager
from lab.bmc.certificates import Certificates, make_certificates
from tests.support import alertmanagers
from tests.support.alertmanagers import (
    EITHER,
    Answer,
    InMemory,
    Silenced,
    in_memory,
    real,
    say,
)
from tests.support.alertmanagers import needs_alertmanager as needs
from tests.support.programs import free_port
from tests.support.prometheus_api import Reply

BOUND = 600.0


@pytest.fixture(params=EITHER)
def either(request: pytest.FixtureRequest) -> Iterator[Silenced]:
    with request.param() as begun:
        yield begun


@pytest.fixture
def alertmanager() -> Iterator[InMemory]:
    with in_memory() as begun:
        yield begun


def keep(where: Silenced, out: Sequence[str], back: Sequence[str] = (), **more: Any) -> str:
    """Have these hosts silenced, and those not."""
    given = {"url": (where.url,), "matchers": {"host": "{name}"}, "bound": BOUND, **more}
    settings = Alertmanager(**given)
    wanted = [_wanted(settings, name, "out") for name in out]
    wanted += [_wanted(settings, name, "") for name in back]
    return keep_silences(settings, "r1", wanted)


def _wanted(settings: Alertmanager, name: str, comment: str) -> Wanted:
    return Wanted(settings.matchers_of("lab1", name, "2001:db8::7"), comment)


def _ends(silence: dict[str, Any]) -> float:
    return _moment(silence["endsAt"])


def _moment(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def test_a_host_is_silenced_for_the_bound_renewed_and_heard_again_once_it_is_back(
    either: Silenced,
) -> None:
    assert keep(either, ["e000", "e001"]) == ""
    before = either.active()
    assert before.keys() == {"e000", "e001"}
    assert (before["e000"]["createdBy"], before["e000"]["comment"]) == ("edgetune", "out")
    assert all(BOUND - 5 < _ends(each) - clock.wall() <= BOUND for each in before.values())
    # A renewed one is the same one and lasts longer.
    assert keep(either, ["e000"], bound=2 * BOUND) == ""
    after = either.active()
    assert len(either.silences()) == 2
    assert after["e000"]["id"] == before["e000"]["id"]
    assert _ends(after["e000"]) - _ends(before["e000"]) > BOUND - 5
    assert after["e001"] == before["e001"]
    assert keep(either, ["e001"], back=["e000", "e003"]) == ""
    assert either.active().keys() == {"e001"}
    assert keep(either, [], back=["e000", "e001", "e002"]) == ""
    assert either.active() == {}


def _end(url: str, silence: str) -> None:
    request = urllib.request.Request(f"{url}/api/v2/silence/{silence}", method="DELETE")
    urllib.request.urlopen(request, timeout=20).close()


def _post(url: str, silence: object) -> None:
    data, headers = json.dumps(silence).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/api/v2/silences", data, headers)
    urllib.request.urlopen(request, timeout=20).close()


def test_silences_of_others_are_left_alone(either: Silenced) -> None:
    """Of another rollout, of other matchers, and of people, be it that they changed ours."""
    settings = Alertmanager(
        url=(either.url,), matchers={"host": "{name}", "pop": "{pop}"}, bound=BOUND
    )
    mine = Wanted({"host": "e009", "pop": "lab1"}, "")
    assert keep_silences(settings, "r2", [replace(mine, comment="another rollout")]) == ""
    assert keep_silences(settings, "r1", [Wanted({"host": "e009"}, "another matcher")]) == ""
    assert keep_silences(settings, "r1", [mine]) == ""
    told = {each["comment"] for each in either.silences() if each["status"]["state"] == "active"}
    assert told == {"another rollout", "another matcher"}
    keep(either, ["e000", "e001"])
    for host, known in (("e000", ()), ("e001", ("id",))):
        own = either.active()[host]
        person = {name: own[name] for name in (*known, "matchers", "startsAt", "endsAt")}
        _post(either.url, {**person, "createdBy": "ana", "comment": "longer"})
    assert keep(either, ["e000", "e001"]) == ""
    assert keep(either, [], back=["e000", "e001"]) == ""
    found = either.active()
    assert found["e000"]["createdBy"] == found["e001"]["createdBy"] == "ana"


def test_one_that_a_person_ended_is_put_anew_and_one_made_longer_bounded_again(
    either: Silenced,
) -> None:
    keep(either, ["e000", "e001"], bound=90000.0)
    own = either.active()["e000"]
    _end(either.url, own["id"])
    assert either.active().keys() == {"e001"}
    assert keep(either, ["e000", "e001"]) == ""
    found = either.active()
    assert found["e000"]["id"] != own["id"] and len(found) == 2
    assert all(_ends(each) - clock.wall() <= BOUND for each in found.values())


@pytest.fixture
def stale(monkeypatch: pytest.MonkeyPatch) -> Callable[[Silenced, str], None]:
    """Between list and request a silence of a host is over and forgotten; or behind one address
    another member answers, which has not heard of it yet."""

    def put(where: Silenced, host: str) -> None:
        list_, forgotten = silences._list, str(uuid4())

        def listed(member: Any, rollout: str) -> Any:
            found, now = list_(member, rollout)
            matchers = [Matcher("host", host), Matcher("edgetune_rollout", rollout, isEqual=False)]
            at = "2026-11-25T21:00:00.000Z", "2099-11-25T21:00:00.000Z"
            monkeypatch.setattr(silences, "_list", list_)
            return [
                Silence(forgotten, matchers, SilenceState("active"), *at, "edgetune"),
                *found,
            ], now

        monkeypatch.setattr(silences, "_list", listed)

    return put


def test_one_that_is_forgotten_meanwhile_is_put_anew_or_over_and_hinders_no_other(
    either: Silenced, stale: Callable[[Silenced, str], None]
) -> None:
    stale(either, "e000")
    assert keep(either, ["e000", "e001"]) == ""
    found = either.active()["e000"]
    assert BOUND - 5 < _ends(found) - clock.wall() <= BOUND
    assert abs(_moment(found["startsAt"]) - clock.wall()) < 30
    stale(either, "e003")
    assert keep(either, ["e002"], back=["e003", "e000", "e001"]) == ""
    assert either.active().keys() == {"e002"}


def test_one_that_cannot_be_ended_is_told_and_hinders_no_other(alertmanager: InMemory) -> None:
    keep(alertmanager, ["e000", "e001"])
    stuck = alertmanager.active()["e000"]["id"]

    def declines(method: str, path: str) -> Reply:
        if method == "DELETE" and path.endswith(stuck):
            return say(500, "disk is full")
        if method == "POST":
            alertmanager.kept["new"] = {**alertmanager.kept[stuck], "id": "new"}
            return say(200, {"silenceID": "new"})
        return alertmanager.own(method, path, {})

    alertmanager.says = declines
    told = keep(alertmanager, ["e002"], back=["e000", "e001"])
    assert told.endswith('500 Internal Server Error to DELETE: "disk is full"')
    assert "new" in alertmanager.kept
    assert [each["status"]["state"] for each in alertmanager.silences()] == [
        "active",
        "expired",
        "active",
    ]


def test_a_value_is_a_text_and_no_expression(either: Silenced) -> None:
    templates = {"instance": "{address}:9100", "job": 'a "b"\\c|.*'}
    assert keep(either, ["e000"], matchers={"host": "{name}", **templates}) == ""
    (found,) = either.silences()
    values = {each["name"]: each["value"] for each in found["matchers"] if each["isEqual"]}
    assert values == {"host": "e000", "instance": "[2001:db8::7]:9100", "job": 'a "b"\\c|.*'}
    assert not any(each["isRegex"] for each in found["matchers"])
    assert keep(either, [], back=["e000"], matchers={"host": "{name}", **templates}) == ""
    assert either.active() == {}


@pytest.mark.parametrize("begin", [pytest.param(real, marks=needs)])
def test_people_hear_of_a_silenced_host_once_it_is_back_or_its_controller_died(begin: Any) -> None:
    with begin() as alertmanager:
        for host in ("e000", "e001"):
            alertmanager.fire(alertname="HostDown", host=host, pop="lab1")
        both = ["e000", "e001"]
        for out, back, bound, heard in (
            ([], [], BOUND, both),
            (["e000"], [], BOUND, ["e001"]),
            ([], ["e000"], BOUND, both),
            (["e000"], [], 2.0, ["e001"]),
            ([], [], BOUND, both),
        ):
            keep(alertmanager, out, back, bound=bound)
            assert _seen(lambda heard=heard: bool(alertmanager.heard() == heard))  # type: ignore[misc]
        assert {each["status"]["state"] for each in alertmanager.silences()} == {"expired"}


def _seen(is_so: Callable[[], bool]) -> bool:
    end = time.monotonic() + 60
    while not is_so() and time.monotonic() < end:
        time.sleep(0.1)
    return is_so()


@pytest.mark.parametrize("ahead", [-7200.0, 7200.0])
def test_a_silence_is_bounded_by_the_clock_of_alertmanager_and_asked_for_with_all_of_a_batch(
    alertmanager: InMemory, ahead: float
) -> None:
    alertmanager.ahead = ahead
    names = [f"e{number:03d}" for number in range(24)]
    assert keep(alertmanager, names) == keep(alertmanager, names) == ""
    left = _ends(alertmanager.active()["e000"]) - (clock.wall() + ahead)
    assert BOUND - 5 < left <= BOUND
    asked = [each for each in alertmanager.lines if each.startswith("GET")]
    assert asked == ["GET /api/v2/silences?filter=edgetune_rollout%21%3D%22r1%22"] * 2


def test_two_of_one_host_are_ended_both_and_none_of_another_rollout_whatever_is_listed(
    alertmanager: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members of a cluster that were cut off from each other may each have one. A proxy may drop
    what stands behind the question mark, and an API know no filter."""
    keep(alertmanager, ["e000"])
    (own,) = alertmanager.kept.values()
    alertmanager.kept["twin"] = {**own, "id": "twin"}
    settings = Alertmanager(url=(alertmanager.url,), matchers={"host": "{name}"}, bound=BOUND)
    keep_silences(settings, "r2", [_wanted(settings, "e000", "another rollout")])
    monkeypatch.setattr(alertmanagers, "_passes", lambda silence, query: True)
    assert keep(alertmanager, [], back=["e000"]) == ""
    stand = [each for each in alertmanager.silences() if each["status"]["state"] == "active"]
    assert [each["comment"] for each in stand] == ["another rollout"]


@pytest.mark.slow
def test_members_that_are_away_or_broken_or_slow_share_the_time_with_the_others(
    alertmanager: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silences, "PATIENCE", 3.0)
    with in_memory() as broken, in_memory() as slow:
        broken.says, slow.slow = _refuses(503), 4.0
        dead = f"http://127.0.0.1:{free_port()}"
        assert keep(alertmanager, ["e000"], url=(dead, broken.url, alertmanager.url)) == ""
        assert keep(alertmanager, ["e001"], url=(slow.url, alertmanager.url)) == ""
        assert alertmanager.active().keys() == {"e000", "e001"}
        told = keep(alertmanager, ["e000"], url=(dead, broken.url))
        assert f"{dead}: " in told and f"; {broken.url}: 503 " in told
    # Hosts for which the time was not enough are the first of the next attempt.
    alertmanager.slow, attempts = 0.5, 0
    hosts = [f"e{number:03d}" for number in range(9)]
    while alertmanager.active().keys() != {*hosts} and attempts < 20:
        attempts += 1
        keep(alertmanager, hosts)
    assert 1 < attempts < 20


def _refuses(status: int) -> Answer:
    return lambda *_: say(status, {"message": "no\nmore"})


def _says(body: bytes) -> Answer:
    return lambda *_: Reply(body)


SILENCE = {"id": "i", "matchers": [], "startsAt": "x", "endsAt": "x", "createdBy": "edgetune"}
ODD = [{"matchers": None}, {"status": "active"}, {"id": 7}, {"id": ""}, {"endsAt": None}]
LISTS = [[{**SILENCE, "status": {"state": "active"}, **own}] for own in ODD]
NO_LIST = [b"{}", b"[7]", b'[{"createdBy": "edgetune"}]', b""]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (_refuses(500), "500 Internal Server Error to GET: {"),
        (_refuses(401), "401 Unauthorized to GET: {"),
        (_refuses(302), "302 Found to GET: {"),
        (_says(b"<html>"), "its answer is no JSON"),
        (_says(b"[" * 100_000), "its answer is no JSON"),
        *(
            (_says(body), "its list of silences is none")
            for body in (*NO_LIST, *(json.dumps(own).encode() for own in LISTS))
        ),
    ],
)
def test_what_is_no_answer_is_told_in_one_line(
    alertmanager: InMemory, answer: Answer, why: str
) -> None:
    alertmanager.says = answer
    told = keep(alertmanager, ["e000"], back=["e001"])
    assert told.startswith(f"{alertmanager.url}: {why}")
    assert "\n" not in told
    assert alertmanager.kept == {}
    refusal = say(400, "at least one matcher")
    alertmanager.says = lambda method, _: refusal if method == "POST" else say(200, [])
    assert '400 Bad Request to POST: "at least one matcher"' in keep(alertmanager, ["e000"])
    alertmanager.says = lambda *_: say(200, [])
    assert "its answer to a silence names none" in keep(alertmanager, ["e000"])


def test_credentials_come_from_files_are_sent_and_struck_out_where_they_are_repeated(
    alertmanager: InMemory, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    secret.chmod(0o600)
    for given, header in (
        ({"bearer_token_file": str(secret)}, "Bearer s3cret"),
        ({"username": "ana", "password_file": str(secret)}, "Basic YW5hOnMzY3JldA=="),
    ):
        alertmanager.says = None
        assert keep(alertmanager, ["e000"], **given) == ""
        assert alertmanager.headers[-1]["Authorization"] == header
        said = say(401, f"s3cret: {header} is wrong")
        alertmanager.says = lambda *_, said=said: said  # type: ignore[misc]
        told = keep(alertmanager, ["e000"], **given)
        assert "***" in told and "is wrong" in told
        assert "s3cret" not in told and header.split()[1] not in told
    secret.write_text("s3cret\ntwo")
    for file, says in (
        (secret, "holds no secret in one line"),
        (tmp_path / "none", "cannot be read"),
    ):
        told = keep(alertmanager, ["e000"], bearer_token_file=str(file))
        assert f"bearer_token_file: {says}" in told and "s3cret" not in told


def _mutual(own: Certificates) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(own.authority))
    context.load_cert_chain(own.certificate, own.key)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def test_both_sides_prove_themselves_by_certificates(
    alertmanager: InMemory, tmp_path: Path
) -> None:
    own = make_certificates(tmp_path, ["127.0.0.1"])
    alertmanager.secure(_mutual(own))
    files = {"certificate_file": str(own.certificate), "key_file": str(own.key)}
    assert keep(alertmanager, ["e000"], ca_file=str(own.authority), **files) == ""
    assert alertmanager.active().keys() == {"e000"}
    assert "CERTIFICATE_VERIFY_FAILED" in keep(alertmanager, ["e000"], **files)
    assert keep(alertmanager, ["e000"], ca_file=str(own.authority)) != ""
