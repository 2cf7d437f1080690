# SPDX-License-Identifier: Apache-2.0
"""From a selection to what hosts are told, and whether they may be told it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Network, IPv6Network, ip_network

from edgetune.agent.vocabulary.prefixes import number_of
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.congestion import LONGEST_TTL, SHORTEST_TTL, Configuration, Treated
from edgetune.base.errors import RefusedError
from edgetune.base.sanitize import shortened
from edgetune.wings.congestion.entry import APPLIERS
from edgetune.wings.congestion.selection import Selection

NEVER = (
    "0.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "224.0.0.0/3",
    "::/8",
    "fe80::/9",
    "ff00::/8",
)
"""Networks in which no client is: unspecified, loopback, link-local and multicast addresses."""

_SHOWN = 60
_LARGEST_WINDOW = 100


@dataclass(frozen=True)
class Limits:
    """What a configuration may not exceed: its ``prefixes``, ``new`` ones beside those before, and
    the share of those before that may ``leave`` it at once; and the networks that are ``internal``.
    """

    prefixes: int
    new: int
    leave: float
    internal: Sequence[str] = ()


def untold(selection: Selection, before: Configuration | None) -> list[str]:
    """Chosen prefixes that are to be treated, and that hosts were not told of yet."""
    active = {own.prefix for own in before.prefixes} if before else set()
    return [own.prefix for own in selection.chosen if not own.held_out and own.prefix not in active]


def told_next(selection: Selection, before: Configuration | None, new: int) -> Selection:
    """Without what hosts are told later: at most ``new`` prefixes are new to them at once."""
    late = {*untold(selection, before)[new:]}
    return replace(selection, chosen=[own for own in selection.chosen if own.prefix not in late])


def make_configuration(
    selection: Selection,
    before: Configuration | None,
    algorithm: str,
    ttl: int,
    applier: str = "routes",
) -> Configuration:
    """That of the chosen prefixes without those that are held out, in the order of their numbers.

    ``ttl`` is in seconds, ``applier`` one of APPLIERS. The number grows when anything but the
    number is another than ``before``.
    """
    windows = APPLIERS[applier].has_windows
    treated = [own for own in selection.chosen if not own.held_out]
    made = Configuration(
        pop=selection.pop,
        number=before.number if before else 1,
        algorithm=algorithm,
        ttl=ttl,
        prefixes=[
            Treated(own.prefix, own.initcwnd if own.has_window and windows else 0)
            for own in sorted(treated, key=lambda own: number_of(own.prefix))
        ],
        applier=applier,
    ).sealed()
    if before is None or made == before:
        return made
    return replace(made, number=before.number + 1).sealed()


def refuse_configuration(made: Configuration, before: Configuration | None, limits: Limits) -> None:
    """RefusedError names what hosts may not be told, whatever made it.

    The prefixes have to be canonical, in order, of the lengths that we choose, and outside of
    NEVER and of the internal networks. ``before`` is the one that hosts have.
    """
    if made.checksum != made.sum:
        raise _refused(made, "its checksum is not that of its content")
    if not SHORTEST_TTL <= made.ttl <= LONGEST_TTL:
        raise _refused(made, f"ttl {made.ttl} is not from {SHORTEST_TTL} to {LONGEST_TTL} s")
    _refuse_prefixes(made, limits)
    _refuse_churn(made, before, limits)


def _refuse_prefixes(made: Configuration, limits: Limits) -> None:
    if len(made.prefixes) > limits.prefixes:
        raise _refused(made, f"{len(made.prefixes)} prefixes are more than {limits.prefixes}")
    internal = [ip_network(text) for text in (*NEVER, *limits.internal)]
    last = -1
    for own in made.prefixes:
        network = _network(made, own.prefix)
        same = (each for each in internal if each.version == network.version)
        inside = next((each for each in same if each.overlaps(network)), None)
        if inside is not None:
            raise _refused(made, f"{own.prefix} overlaps {inside}, where no client is")
        number = number_of(own.prefix)
        if number <= last:
            raise _refused(made, f"{own.prefix} comes twice, or is out of order")
        if not 0 <= own.initcwnd <= _LARGEST_WINDOW:
            text = f"initcwnd {own.initcwnd} of {own.prefix} is not from 0 to {_LARGEST_WINDOW}"
            raise _refused(made, text)
        last = number


def _network(made: Configuration, text: str) -> IPv4Network | IPv6Network:
    shown = shortened(text, _SHOWN)
    try:
        network = ip_network(text)
    except ValueError:
        raise _refused(made, f"{shown!r} is no network") from None
    if network.prefixlen == 0:
        raise _refused(made, f"{shown} is the default route")
    try:
        number_of(text)
    except ValueError as error:
        raise _refused(made, f"{shown}: {error}") from None
    return network


def _refuse_churn(made: Configuration, before: Configuration | None, limits: Limits) -> None:
    if before is None:
        if len(made.prefixes) > limits.new:
            raise _refused(made, f"{len(made.prefixes)} new prefixes are more than {limits.new}")
        return
    if before.pop != made.pop:
        raise _refused(made, f"the one before is of {before.pop}")
    if made.number < before.number or (made.number == before.number and made != before):
        raise _refused(made, f"its number does not follow {before.number}")
    ours, theirs = ({own.prefix for own in each.prefixes} for each in (made, before))
    new, gone = len(ours - theirs), len(theirs - ours)
    if new > limits.new:
        raise _refused(made, f"{new} new prefixes are more than {limits.new}")
    if gone > max(limits.new, limits.leave * len(theirs)):
        raise _refused(made, f"{gone} of {len(theirs)} prefixes would leave at once")


def _refused(made: Configuration, problem: str) -> RefusedError:
    return RefusedError(f"configuration {made.number} of {made.pop}: {problem}")
