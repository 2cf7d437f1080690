# SPDX-License-Identifier: Apache-2.0
"""The options of a rollout, each with its unit, bounds and meaning."""

from __future__ import annotations

from edgetune.base.dataclass import dataclass
from edgetune.base.durations import DAY
from edgetune.base.errors import InputError
from edgetune.base.options import check_options, option

MOST_ALPHA = 0.5
"""The largest chance of a wrong decision that may be asked for."""
LEAST_SAMPLES = 3
"""Samples that a look needs at least."""


@dataclass(frozen=True)
class Options:
    """What a person may choose about a rollout; times in seconds, alphas as probabilities.

    The actions ``plan_rollout`` and ``rollout_pop`` and the files of campaigns take each of these.
    """

    only: tuple[str, ...] = option(
        "Hosts of the PoP, by name or by rack, that the rollout keeps to; empty for all. Both "
        "groups come from these hosts. No other host is compared or changed, not even by a "
        "promotion.",
        (),
    )
    exclude: tuple[str, ...] = option("Hosts of the PoP to leave out, by name.", ())
    test_fraction: float = option(
        "Share of the hosts that form the test group.", 0.5, least=0.05, most=0.95
    )
    batch_size: int = option(
        "Most hosts to change at once; 0 takes as many as min_in_service permits.",
        0,
        least=0,
        most=10000,
    )
    pause_after: int = option(
        "Number of batches after which the rollout pauses until a person resumes the PoP; 1 is "
        "after the first host, 0 never. The hosts that are changed serve meanwhile.",
        0,
        least=0,
        most=10000,
    )
    baseline: float = option(
        "How long both groups are watched before anything is changed.",
        DAY,
        is_time=True,
        multiples={"interval": 2},
        most=30 * DAY,
    )
    past_baseline: bool = option(
        "Let the baseline begin before the rollout, as far back as samples tell of every host "
        "without a gap, a boot or a rollout. Then nobody waits for what was measured already.",
        False,
    )
    soak: float = option(
        "How long both groups are watched after the change.",
        DAY,
        is_time=True,
        multiples={"interval": LEAST_SAMPLES, "warmup": 1},
        most=30 * DAY,
    )
    interval: int = option(
        "Time between two samples of the hosts.", 60, is_time=True, least=1, most=3600
    )
    warmup: float = option(
        "Start of the soak that is left out of the comparison.",
        300,
        is_time=True,
        least=0,
        most=DAY,
    )
    looks: int = option(
        "How often the groups are compared during the soak, evenly spread; fewer where that would "
        "be less than three samples each.",
        12,
        least=1,
        most=1000,
    )
    alpha_benefit: float = option(
        "Chance that a useless tuning is promoted, at most.", 0.05, least=0.0001, most=MOST_ALPHA
    )
    alpha_harm: float = option(
        "Chance that a harmless tuning is taken back, at most.", 0.05, least=0.0001, most=MOST_ALPHA
    )
    seed: int = option(
        "Seed of the random split; 0 draws one, which the plan shows.",
        0,
        holds="large",
        least=0,
        most=2**63 - 1,
    )
    drop_sessions: bool = option(
        "Go on with a host whose sessions do not end in time, and lose them; by default it is put "
        "back and skipped.",
        False,
    )
    force_restart: bool = option(
        "Let the BMC force a host to restart when no gentler way of its machine is left: one that "
        "still answers from the same boot, or that hangs in the first boot of a kernel. By default "
        "the rollout stops there.",
        False,
    )
    without_packets: bool = option(
        "Go on, and promote, where hosts do not count the packets they receive; traffic that moves "
        "from one group to the other, which misleads the comparison, is not seen there.",
        False,
    )

    def checked(self) -> Options:
        """Itself; InputError names a value out of its range."""
        check_options(self, lambda name, problem: InputError("parameter", name, problem))
        return self

    @property
    def planned_looks(self) -> int:
        """How often a soak is looked at: as often as asked for, but over three samples at least."""
        return max(1, self.looks_at(self.interval))

    def looks_at(self, interval: float) -> int:
        """The same of a soak that is sampled at another interval; 0 if it is too short for one."""
        room = (self.soak - self.warmup) / (LEAST_SAMPLES * interval)
        return min(self.looks, int(room))
