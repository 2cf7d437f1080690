# SPDX-License-Identifier: Apache-2.0
"""The HAProxy driver against a real HAProxy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edgetune.errors import DrainError
from edgetune.traffic import Server
from tests.real_haproxy import RealHaproxy, needs_haproxy, running

pytestmark = needs_haproxy

DENIED = r"edges/e000: Permission denied \(the socket's level has to be admin\)"


@pytest.fixture(scope="module")
def haproxy() -> Iterator[RealHaproxy]:
    with running() as started:
        yield started


def test_a_server_is_set_and_seen_in_every_state(haproxy: RealHaproxy) -> None:
    driver = haproxy.driver()
    changes = {"drain": driver.withdraw, "maint": driver.isolate, "": driver.restore}
    for state, change in changes.items():
        change("e003")
        found = driver.servers()
        shown = {name: each.withdrawn for name, each in found.items() if each.withdrawn}
        assert shown == ({"e003": state} if state else {})
        assert found["e000"] == Server("e000", "", True, 0, "192.0.2.1", 80, checked=False)


def test_a_socket_with_a_lower_level_refuses_changes(haproxy: RealHaproxy) -> None:
    driver = haproxy.driver(level="operator")
    assert driver.servers()["e000"].is_serving
    with pytest.raises(DrainError, match=DENIED):
        driver.isolate("e000")
    assert haproxy.driver().servers()["e000"].is_serving


def test_whether_changes_are_refused_is_told_without_one(haproxy: RealHaproxy) -> None:
    haproxy.driver().withdraw("e000")
    haproxy.driver().isolate("e001")
    before = haproxy.ask("show servers state edges")
    assert haproxy.driver().refuses_changes() == ""
    refusal = haproxy.driver(level="operator").refuses_changes()
    assert "operator: edges/e000: Permission denied" in refusal
    after = haproxy.ask("show servers state edges")
    # Column 9 counts the seconds since the last change.
    assert _without_ages(before) == _without_ages(after)
    for name in ("e000", "e001"):
        haproxy.driver().restore(name)


def _without_ages(text: str) -> list[list[str]]:
    rows = [line.split(" ") for line in text.splitlines()]
    return [row[:9] + row[10:] for row in rows]


def test_what_does_not_exist_is_named(haproxy: RealHaproxy) -> None:
    with pytest.raises(DrainError, match=r"edges/e999: No such server"):
        haproxy.driver().withdraw("e999")
    with pytest.raises(DrainError, match=r"other/e000: No such backend"):
        haproxy.driver("other").isolate("e000")
    for call in (haproxy.driver("other").servers, haproxy.driver("other").refuses_changes):
        with pytest.raises(DrainError, match=r"no backend 'other': Can't find backend"):
            call()


def test_servers_tell_whether_they_are_checked_and_where_they_are() -> None:
    """In any state: a server in maintenance is not checked now, and still has its check."""
    checked = ["checked 127.0.0.1:9 check inter 60s", "followed 127.0.0.1:9 track other/checked"]
    servers = [*checked, "trusted [::1]:9", "local unix@/nowhere", "paused 127.0.0.1:9 check"]
    backends = [("other", [f"server {text}" for text in servers])]
    with running(backends) as haproxy:
        driver = haproxy.driver("other")
        driver.isolate("paused")
        driver.withdraw("trusted")
        found = driver.servers()
    assert [name for name, each in found.items() if each.checked] == [
        "checked",
        "followed",
        "paused",
    ]
    assert (found["trusted"].address, found["local"].address) == ("::1", "")


def test_a_server_that_leaves_maintenance_is_up_and_has_passed_no_check() -> None:
    """Nothing listens there, and the first check comes after minutes."""
    servers = ["option httpchk", "server e000 127.0.0.1:1 check inter 300s fastinter 300s"]
    with running([("edges", servers)]) as started:
        driver = started.driver()
        driver.isolate("e000")
        driver.restore("e000")
        server = driver.servers()["e000"]
        assert (server.is_serving, server.passing) == (True, False)
