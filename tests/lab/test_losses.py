# SPDX-License-Identifier: Apache-2.0
"""What the log of the lab's HAProxy says of requests that failed; lines of HAProxy 2.6."""

from __future__ import annotations

from tests.support.lab_losses import by_cause

DOWN = (
    "<1>2026-11-26T11:15:45.827606+00:00 Server edges/e002 is DOWN, reason: Layer4 timeout, check "
    "duration: 518ms. 2 active and 0 backup servers left. 15 sessions active, 0 requeued."
)


def failed(server: str, minute: int, milliseconds: int = 2829) -> str:
    return (
        f"<6>2026-11-26T11:{minute}:45.106676+00:00 10.77.0.4:40798 [26/Nov/2026:11:15:42.109] "
        f"lab1 edges/{server} 0/1/{milliseconds} 164075 SD 19/19/18/0/0 0/0"
    )


def test_a_failure_near_a_change_of_its_server_is_told_from_others() -> None:
    cut, before, other = failed("e002", 15), failed("e002", 12), failed("e001", 15)
    assert by_cause("\n".join([before, cut, other, DOWN])) == ([cut], [before, other])


def test_a_request_that_was_under_way_for_long_is_near_what_came_before_it() -> None:
    assert by_cause(f"{DOWN}\n{failed('e002', 18)}")[0] == []
    late = failed("e002", 18, milliseconds=150_000)
    assert by_cause(f"{DOWN}\n{late}") == ([late], [])


def test_a_request_that_no_server_was_there_for_is_nobody_s_stillness() -> None:
    none = failed("<NOSRV>", 15).replace("0/1/2829", "0/-1/1")
    assert by_cause(none) == ([none], [])


def test_what_is_no_request_is_no_failure() -> None:
    assert by_cause("[NOTICE]   (71) : haproxy version is 2.6.12-1\n" + DOWN) == ([], [])
