# SPDX-License-Identifier: Apache-2.0
"""The judges of today that ours is compared with; each file has one, with its options."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from bench.judge.peers._groups import drops_per_million, drops_per_packet, relative_to_baseline
from bench.judge.peers.anytime import AsymptoticSequence, LindonMalek
from bench.judge.peers.counters import Counter
from bench.judge.peers.growthbook import GrowthBook
from bench.judge.peers.host_t import HostT
from bench.judge.peers.kayenta import Kayenta
from bench.judge.peers.lan_demets import LanDeMets, obrien_fleming, power_family
from bench.judge.peers.mann_whitney import MannWhitney
from bench.judge.scenarios import Replicate


class Peer(Protocol):
    """A judge of the primary metric."""

    @property
    def name(self) -> str: ...

    def decide(self, replicate: Replicate, looks: Sequence[int]) -> int | None:
        """The first of the `looks` (minutes of the soak) at which it says that drops got worse."""
        ...


PEERS: Sequence[Peer] = (
    Kayenta("Kayenta"),
    Kayenta("Kayenta, from 50 points on", least_points=50),
    Kayenta("Kayenta, allowedIncrease 1.25", allowed_increase=1.25),
    Kayenta("Kayenta, lookback 60", lookback=60),
    Kayenta("Kayenta, drops per packet", series=drops_per_packet),
    Kayenta("Kayenta, drops per million packets", series=drops_per_million),
    Kayenta("Kayenta, relative to the baseline", series=relative_to_baseline),
    MannWhitney("Mann-Whitney, one look", corrected=False),
    MannWhitney("Mann-Whitney, Bonferroni", corrected=True),
    Counter("Argo, failureLimit 0", failures=1),
    Counter("Argo, failureLimit 3", failures=4),
    Counter("Flagger, threshold 5", failures=5, absent="failed"),
    AsymptoticSequence("AsympCS"),
    AsymptoticSequence("AsympCS, baseline estimated", estimated=True),
    LindonMalek("Lindon-Malek"),
    GrowthBook("GrowthBook, tuned to 5,000 units"),
    GrowthBook("GrowthBook, tuned to the hosts", tuning=None),
    HostT("t-test over hosts, uncorrected"),
    LanDeMets("t-test over hosts, Lan-DeMets, O'Brien-Fleming", obrien_fleming),
    LanDeMets("t-test over hosts, Lan-DeMets, power 2", power_family(2)),
    LanDeMets("t-test over hosts, Lan-DeMets, linear", power_family(1)),
    LanDeMets("t-test over hosts, Lan-DeMets, linear, CUPED", power_family(1), covariate=True),
)
NEED_SCIPY = (MannWhitney,)
SLOW = (Kayenta, MannWhitney)
"""Those that take some 10 ms for a rollout; the others take about one."""


KEEP_ALPHA = (HostT, LanDeMets, GrowthBook, AsymptoticSequence)
"""Those that may claim an improvement, too; the others know harm alone."""


def installed() -> tuple[list[Peer], dict[str, str]]:
    """The peers that can run here; and the others, with why not."""
    if importlib.util.find_spec("scipy"):
        return list(PEERS), {}
    found = [peer for peer in PEERS if not isinstance(peer, NEED_SCIPY)]
    return found, {peer.name: "needs scipy" for peer in PEERS if isinstance(peer, NEED_SCIPY)}


def improved(peer: Peer, replicate: Replicate, minute: int) -> bool:
    """Whether one look at this minute claims that drops got fewer: with the groups exchanged, they
    got more."""
    return peer.decide(replace(replicate, test=~replicate.test), [minute]) is not None
