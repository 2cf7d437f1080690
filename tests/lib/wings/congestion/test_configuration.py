# SPDX-License-Identifier: Apache-2.0
"""What hosts are told, and what they are never told."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from ipaddress import ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.agent.vocabulary.prefixes import (
    number_of,
    number_of_address,
    number_of_bytes,
    text_of,
)
from edgetune.base.documents.congestion import Chosen, Configuration, Treated
from edgetune.base.errors import RefusedError
from edgetune.wings.congestion.configuration import Limits, make_configuration, refuse_configuration
from edgetune.wings.congestion.history import History
from edgetune.wings.congestion.selection import Selection
from tests.support.examples import examples

LIMITS = Limits(prefixes=10, new=5, leave=0.5, internal=["10.0.0.0/8", "2001:db8:f000::/36"])
GOOD = ["192.0.2.0/24", "203.0.113.0/24", "2001:db8:0:100::/56"]


def configuration(prefixes: Sequence[str], number: int = 1, **more: Any) -> Configuration:
    told = [Treated(prefix) for prefix in prefixes]
    own = {"pop": "lab1", "number": number, "algorithm": "bbr", "ttl": 3600, **more}
    return Configuration(prefixes=told, **own).sealed()


def chosen(prefix: str, held_out: bool = False, **more: Any) -> Chosen:
    own = {"since": 1, "duty": 1.0, "flaps": 0.0, "initcwnd": 0, "has_window": False}
    return Chosen(prefix=prefix, held_out=held_out, before=[None, None], **{**own, **more})


def selection(*own: Chosen) -> Selection:
    return Selection("lab1", "s", History(6), own)


def test_the_chosen_ones_without_the_hold_out_in_their_order() -> None:
    made = make_configuration(
        selection(
            chosen(GOOD[2], initcwnd=20, has_window=True),
            chosen(GOOD[1], held_out=True),
            chosen(GOOD[0], initcwnd=20),
        ),
        None,
        "bbr",
        3600,
    )
    assert made.prefixes == [Treated(GOOD[0], 0), Treated(GOOD[2], 20)]
    assert made.number == 1 and made.checksum == made.sum
    refuse_configuration(made, None, LIMITS)


def test_an_applier_that_sets_no_initial_window_is_told_none() -> None:
    own = selection(chosen(GOOD[0], initcwnd=20, has_window=True))
    made = make_configuration(own, None, "bbr", 3600, "file")
    assert (made.applier, made.prefixes) == ("file", [Treated(GOOD[0], 0)])
    other = make_configuration(own, made, "bbr", 3600, "routes")
    assert (other.number, other.applier, other.prefixes) == (2, "routes", [Treated(GOOD[0], 20)])


def test_the_number_grows_when_anything_changes_and_only_then() -> None:
    first = make_configuration(selection(chosen(GOOD[0])), None, "bbr", 3600)
    assert make_configuration(selection(chosen(GOOD[0])), first, "bbr", 3600) == first
    second = make_configuration(selection(chosen(GOOD[1])), first, "bbr", 3600)
    assert second.number == 2 and second.checksum != first.checksum
    assert make_configuration(selection(chosen(GOOD[0])), first, "bbr", 7200).number == 2
    assert make_configuration(selection(chosen(GOOD[0])), first, "cubic", 3600).number == 2


HOSTILE = [
    *((prefix, "is the default route") for prefix in ("0.0.0.0/0", "::/0")),
    *((prefix, "it is no /24") for prefix in ("203.0.113.0/25", "203.0.112.0/23", "203.0.113.0")),
    *((prefix, "it is no /56") for prefix in ("2001:db8::/64", "2001:db8::/48")),
    *((text, "is no network") for text in ("203.0.113.1/24", "203.0.113.0/24 dev lo", "-6", "")),
    *(
        (text, "is no network")
        for text in ("203.0.113.0/24\n", "default", "$(reboot)", "x" * 10_000)
    ),
    ("203.0.113.0/٢٤", "is no network"),
    ("203.0.113.0/255.255.255.0", "it is written 203.0.113.0/24"),
    ("2001:DB8:0:100::/56", "it is written 2001:db8:0:100::/56"),
    ("2001:0db8:0:100::/56", "it is written 2001:db8:0:100::/56"),
    ("10.1.2.0/24", "overlaps 10.0.0.0/8"),
    ("2001:db8:ff00::/56", "overlaps 2001:db8:f000::/36"),
    ("127.0.0.0/24", "overlaps 127.0.0.0/8"),
    ("0.0.0.0/24", "overlaps 0.0.0.0/8"),
    ("224.0.0.0/24", "overlaps 224.0.0.0/3"),
    ("255.255.255.0/24", "overlaps 224.0.0.0/3"),
    ("169.254.1.0/24", "overlaps 169.254.0.0/16"),
    ("::/56", "overlaps ::/8"),
    ("fe80::/56", "overlaps fe80::/9"),
    ("ff02::/56", "overlaps ff00::/8"),
]


@pytest.mark.parametrize(("prefix", "says"), HOSTILE)
def test_a_prefix_that_is_none_of_a_client_is_refused(prefix: str, says: str) -> None:
    with pytest.raises(RefusedError, match="configuration 1 of lab1") as error:
        refuse_configuration(configuration([prefix]), None, LIMITS)
    assert says in str(error.value) and "\n" not in str(error.value)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    ("made", "before", "says"),
    [
        (configuration([GOOD[0], GOOD[0]]), None, "comes twice"),
        (configuration([GOOD[1], GOOD[0]]), None, "out of order"),
        (configuration([f"203.0.{i}.0/24" for i in range(11)]), None, "11 prefixes are more"),
        (configuration([f"203.0.{i}.0/24" for i in range(6)]), None, "6 new prefixes are more"),
        (configuration(GOOD, ttl=10), None, "ttl 10 is not from"),
        (configuration(GOOD, ttl=10**9), None, "ttl 1000000000 is not from"),
        (replace(configuration(GOOD), number=3), None, "its checksum is not that"),
        (replace(configuration(GOOD), prefixes=[]), None, "its checksum is not that"),
        (configuration(GOOD, 1), configuration(GOOD, 2), "does not follow 2"),
        (configuration(GOOD, 2), configuration(GOOD[:2], 2), "does not follow 2"),
        (configuration(GOOD, 2), configuration(GOOD, 1, pop="lab2"), "is of lab2"),
        (configuration(GOOD), configuration(GOOD), ""),  # the same one may be sent again
        (
            configuration([f"203.0.{i}.0/24" for i in range(6)], 2),
            configuration([], 1),
            "6 new prefixes are more than 5",
        ),
        (
            configuration([], 2),
            configuration([f"203.0.{i}.0/24" for i in range(6)], 1),
            "6 of 6 prefixes would leave at once",
        ),
    ],
)
def test_a_configuration_that_may_not_be_is_refused(
    made: Configuration, before: Configuration | None, says: str
) -> None:
    with pytest.raises(RefusedError, match=says) if says else nullcontext():
        refuse_configuration(made, before, LIMITS)


def test_a_window_that_no_path_has_is_refused() -> None:
    for window in (-1, 101):
        made = replace(configuration([]), prefixes=[Treated(GOOD[0], window)]).sealed()
        with pytest.raises(RefusedError, match=f"initcwnd {window}"):
            refuse_configuration(made, None, LIMITS)


NETWORKS = st.builds(
    lambda address: str(ip_network(f"{address}/24", strict=False)), st.ip_addresses(v=4)
) | st.builds(lambda address: str(ip_network(f"{address}/56", strict=False)), st.ip_addresses(v=6))


@given(st.lists(NETWORKS | st.text(max_size=30), max_size=6))
@examples(300)
def test_what_is_not_refused_is_safe(prefixes: list[str]) -> None:
    try:
        refuse_configuration(configuration(prefixes), None, LIMITS)
    except RefusedError:
        return
    own = [ip_network(prefix) for prefix in prefixes]
    assert [str(network) for network in own] == prefixes
    assert all(network.prefixlen in (24, 56) and not network.is_loopback for network in own)
    assert not any(network.is_multicast or network.is_link_local for network in own)
    assert not any(
        one.version == other.version and one.overlaps(other)
        for index, one in enumerate(own)
        for other in own[:index]
    )


@given(st.ip_addresses())
@examples(300)
def test_a_prefix_is_that_of_its_addresses(address: Any) -> None:
    number = number_of_address(str(address))
    assert number == number_of_bytes(address.packed)
    text = text_of(number)
    assert number_of(text) == number
    mapped = getattr(address, "ipv4_mapped", None)
    assert (mapped or address) in ip_network(text)


@pytest.mark.parametrize("number", [-1, 1 << 24, (1 << 56) - 1, 1 << 57])
def test_no_other_number_is_a_prefix(number: int) -> None:
    with pytest.raises(ValueError):
        text_of(number)


@pytest.mark.parametrize("text", ["", "1.2.3", "1.2.3.4.5", "a.b", ":::", "1.2.3.4 ", "0x7f.1"])
def test_no_other_text_is_an_address(text: str) -> None:
    with pytest.raises(ValueError):
        number_of_address(text)
