# SPDX-License-Identifier: Apache-2.0
"""Simulated BMCs: what is pending, checked, applied and refused, per vendor.

`tests/lib/net/bmc/test_bios.py` drives them by edgetune's client, `bench.bmc` by others.
"""

from __future__ import annotations

import json
import re
import ssl
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from lab.bmc import FAULTS, Machine, Service
from lab.bmc.certificates import Certificates
from lab.bmc.personality import PERSONALITIES, load
from lab.bmc.server import IDLE_SECONDS
from tests.support import ROOT
from tests.support.cases import cases
from tests.support.lab_bmc import HOME, PASSWORD, SESSIONS, USER, running
from tests.support.lab_bmc import certificates as make
from tests.support.virtual_clock import VirtualClock

CASES = Path(__file__).parent / "cases/bmc.yaml"
LINKS = ("@odata.id", "href", "Uri", "extref", "@Redfish.ActionInfo")
AT_RESET = {"@Redfish.SettingsApplyTime": {"ApplyTime": "OnReset"}}
PATIENCE = 0.3  # s, of a client in these tests
each_vendor = pytest.mark.parametrize("personality", PERSONALITIES)


class Asked:
    """A machine whose BMC somebody is logged in at, without a server."""

    def __init__(self, personality: str) -> None:
        self.clock = VirtualClock(look=0.0)
        self.machine = Machine("e000", personality, post_seconds=300.0, clock=self.clock.monotonic)
        self.service, self.headers = Service(USER, PASSWORD), dict[str, str]()
        self.log("in")

    def handle(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        """The status, and the body as text."""
        own = self.machine.personality
        path = own.paths.get(path, path)
        if own.slashes and method == "GET" and path != "/redfish/v1":
            path = f"{path.rstrip('/')}/"
        data = b"" if body is None else json.dumps(body).encode()
        status, headers, answer = self.service.handle(
            self.machine, method, path, self.headers, data
        )
        self.location = headers.get("Location", "")
        self.token = headers.get("X-Auth-Token", "")
        return status, answer.decode()

    def log(self, how: str) -> None:
        self.headers.clear()
        if how != "out":
            login = {"UserName": USER, "Password": PASSWORD if how == "in" else "guess"}
            assert self.handle("POST", SESSIONS, login)[0] == (201 if how == "in" else 401)
            self.headers["X-Auth-Token"] = self.token

    def wait(self, seconds: float) -> None:
        self.clock.wait(seconds)

    def fault(self, name: str) -> None:
        self.machine.faults.add(name)

    def do(self, verb: str, *given: Any) -> None:
        getattr(self.machine, verb)(*given)

    def check(self, name: str, value: Any) -> None:
        assert getattr(self.machine, name) == self.meant(value)

    def meant(self, value: Any) -> Any:
        """A value of a case, with HOME in it."""
        if isinstance(value, dict):
            return {name: self.meant(own) for name, own in value.items()}
        return HOME[self.machine.personality.name] if value == "HOME" else value

    def ask(self, method: str, path: str, body: Any, expected: Any, etag: str = "*") -> None:
        own, wanted = self.machine.personality, self.meant(body)
        self.headers.pop("If-Match", None)
        if path == "job":
            path = f"{own.paths['jobs']}/{self.location.rpartition('/')[2]}"
        if path == "reset":
            wanted = {"ResetType": body}
        if method == "PATCH":
            wanted = dict(wanted) if own.flat else {"Attributes": wanted}
            wanted |= AT_RESET if own.apply_times else {}
            self.headers["If-Match"] = etag
        place = self.location
        status, text = self.handle(
            "PATCH" if method == "raw" else method, path, None if method == "GET" else wanted
        )
        self.location = self.location or place
        code, _, identity = str(expected).partition(" ")
        assert (status, identity in text) == (int(code), True), text
        assert method != "GET" or not body or body in text, text


@pytest.mark.parametrize("case", cases(CASES))
def test_a_vendor_answers_as_it_does(case: dict[str, list[list[Any]]]) -> None:
    ((personality, steps),) = case.items()
    asked = Asked(personality)
    for verb, *given in steps:
        if verb.isupper() or verb == "raw":
            asked.ask(verb, *given)
        else:
            getattr(asked, "check" if verb == "machine" else verb)(*given)


def links(value: Any) -> Iterator[str]:
    """Whatever a client may follow."""
    if isinstance(value, list):
        for one in value:
            yield from links(one)
    elif isinstance(value, dict):
        for key, one in value.items():
            if isinstance(one, str) and key in LINKS:
                yield one
            else:
                yield from links(one)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make(tmp_path_factory.mktemp("bmc"))


@each_vendor
def test_links_lead_to_resources_and_the_registry_describes_every_attribute(
    files: Certificates, personality: str
) -> None:
    seen: dict[str, Any] = {}
    with running(files, personality) as bmc:
        bmc.patch(bmc.home)
        bmc.machine.end_post()
        ways = ["/redfish/v1"]
        while ways:
            way = ways.pop()
            if way not in seen:
                seen[way] = bmc.get(way)
                ways += links(seen[way])
    known = {path.rstrip("/") for path in seen}
    to_read = set(load(personality).paths) - {"reset", "clear"}
    assert {load(personality).paths[name] for name in to_read} <= known
    (registry,) = (own for own in seen.values() if "RegistryEntries" in own)
    entries = registry["RegistryEntries"]["Attributes"]
    key = "Name" if personality == "hpe" else "AttributeName"
    assert [entry[key] for entry in entries] == list(bmc.machine.current)
    for entry in entries:
        allowed = [value["ValueName"] for value in entry.get("Value", [])]
        value = bmc.machine.current[entry[key]]
        assert value in allowed or entry["Type"] != "Enumeration"


def test_the_certificate_is_of_these_addresses_and_its_key_is_secret(
    files: Certificates, tmp_path: Path
) -> None:
    assert stat.S_IMODE(files.key.stat().st_mode) == 0o600
    with running(files) as bmc, requests.Session() as other:
        other.trust_env = False
        for authority, name in (
            (make(tmp_path).authority, "127.0.0.1"),
            (files.authority, "localhost"),
        ):
            other.verify = str(authority)
            with pytest.raises(requests.exceptions.SSLError):
                other.get(bmc.url.replace("127.0.0.1", name) + "/redfish/v1", timeout=60)
    ssl.create_default_context().load_cert_chain(files.certificate, files.key)


def test_secrets_are_shown_nowhere() -> None:
    asked = Asked("dell")
    session = asked.machine.sessions.get("1")
    shown = f"{asked.service!r} {asked.machine.log} {session!r} {asked.handle('GET', 'system')}"
    assert PASSWORD not in shown
    assert asked.headers["X-Auth-Token"] not in shown


def test_late_answers_come_and_a_deaf_one_hears_when_it_is_healed(files: Certificates) -> None:
    with running(files) as bmc:
        bmc.machine.faults.add("late")
        bmc.machine.late_seconds = PATIENCE
        began = time.monotonic()
        assert bmc.reset().ok
        assert time.monotonic() - began >= PATIENCE
        bmc.machine.faults.add("deaf")
        with pytest.raises(requests.exceptions.Timeout):  # on the connection that is open
            bmc.ask("GET", "system", timeout=PATIENCE)
        bmc.machine.faults.clear()
        # Sooner than the server gives those up that are idle.
        assert bmc.ask("GET", "system", timeout=IDLE_SECONDS - 5).ok


def test_every_fault_is_tested_and_told_of() -> None:
    page = (ROOT / "docs" / "lab-bmc.md").read_text()
    bmc = ROOT / "tests/lib/net/bmc"
    places = (CASES, Path(__file__), bmc / "bios.yaml", bmc / "test_bios.py")
    tests = "".join(file.read_text() for file in (*places, bmc / "test_bmcs.py"))
    for name in FAULTS:
        assert re.search(rf'"{name}"|fault[:,] {name}\b', tests), name
    assert [name for name in FAULTS if f"| `{name}` |" not in page] == []
