# SPDX-License-Identifier: Apache-2.0
"""How the congestion control of PoPs stands, from what was decided alone.

What the rounds showed is megabytes of each PoP. A status, the guard and an export read none of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from edgetune.base import clock
from edgetune.base.dataclass import dataclass
from edgetune.base.documents import rounds
from edgetune.base.documents.rounds import Decisions
from edgetune.base.durations import roughly
from edgetune.base.errors import DamagedError, EdgetuneError
from edgetune.base.names import NAME
from edgetune.base.sanitize import command, one_line
from edgetune.rollout.context import Context

STALE = 3600.0
"""Seconds without a round that led to a configuration, before a person is to look."""
LATE = 300.0
"""Seconds that taking back may last before people are told: two answers of a host, and a round."""

RULES = {"tune_congestion": "no round is taken, and hosts take back what is not renewed"}


@dataclass(frozen=True)
class SeenRounds:
    """A PoP whose clients' congestion control is tuned or was, ``now`` (epoch seconds).

    ``decisions`` is None where ``damaged`` says why they cannot be read. ``entry`` says whether the
    inventory has the PoP's entry still; it does where that is not known.
    """

    pop: str
    decisions: Decisions | None
    damaged: str
    entry: bool
    now: float

    @property
    def is_tuning(self) -> bool:
        """Whether rounds are to go on here."""
        return self.entry and bool(self.decisions and self.decisions.state == rounds.TUNING)

    @property
    def pending(self) -> list[str]:
        """Hosts that have not confirmed that nothing of ours is left."""
        decisions = self.decisions
        return decisions.pending if decisions and decisions.state == rounds.ROLLED_BACK else []

    @property
    def treated(self) -> int:
        """Prefixes that hosts may treat: none once their time is up."""
        decisions = self.decisions
        return decisions.newest.treated if decisions and self.now <= decisions.newest.until else 0

    @property
    def missing(self) -> list[str]:
        """Hosts that do not have what the others have."""
        return self.decisions.newest.missing if self.decisions and self.treated else []

    @property
    def taken_back(self) -> str:
        """Why the comparison took it back, if nobody decided since; else nothing."""
        decisions = self.decisions
        if not decisions or decisions.state != rounds.ROLLED_BACK:
            return ""
        return decisions.reason if decisions.by == rounds.BY_COMPARISON else ""

    @property
    def silent_for(self) -> float:
        """Seconds since a round last led to a configuration, or since there are any; 0 where no
        round is to be taken, or while the PoP waits for a person or a rollout."""
        decisions = self.decisions
        if not self.is_tuning or decisions is None:
            return 0.0
        waits = decisions.newest.waits and self.now - decisions.newest.at <= STALE
        return 0.0 if waits else max(0.0, self.now - max(decisions.newest.good, decisions.since))

    @property
    def line(self) -> str:
        """How it stands, in a few words."""
        decisions = self.decisions
        if decisions is None:
            return f"not known: {self.damaged}"
        if decisions.state == rounds.ROLLED_BACK:
            by = f" by {decisions.by}" if decisions.by else ""
            return f"rolled back {self._ago(decisions.since)} ago{by}: {decisions.reason}"
        if not self.entry:
            return "not in the inventory any more"
        newest = decisions.newest
        what = f"{rounds.prefixes_text(self.treated)} treated, {newest.held_out} held out"
        parts = [what if self.treated else "nothing is treated"]
        parts += [f"last round {self._ago(newest.good)} ago"] if newest.good else []
        parts += [f"waits: {newest.waits}"] if newest.waits else []
        return "; ".join([*parts, *([newest.problem] if newest.problem else [])])

    def _ago(self, at: float) -> str:
        return roughly(max(0, round(self.now - at)))


def claim_of(pop: str) -> str:
    """The name of the claim of who is at work on it; no PoP has a slash in its name."""
    return f"congestion/{pop}"


def seen_rounds(context: Context, pop: str = "") -> list[SeenRounds]:
    """Those of a PoP, or of all, by name; StoreError if the store is away."""
    key = rounds.decisions_key(pop)
    texts = context.store.list(rounds.decisions_key(""))
    names = {each.removeprefix(rounds.decisions_key("")): text for each, text in texts.items()}
    now = clock.wall()
    return [
        _seen(context, name, text, now)
        for name, text in sorted(names.items())
        # A key that anybody may have set tells no PoP.
        if re.fullmatch(NAME, name) and (not pop or rounds.decisions_key(name) == key)
    ]


def _seen(context: Context, name: str, text: str, now: float) -> SeenRounds:
    try:
        entry = name in context.known_inventory.pop_names()
        entry = entry and context.known_inventory.pop(name).congestion is not None
    except EdgetuneError:
        entry = True
    try:
        return SeenRounds(name, rounds.read_decisions(name, text), "", entry, now)
    except DamagedError as error:
        return SeenRounds(name, None, str(error), entry, now)


def what_is_wrong(seen: SeenRounds) -> Iterator[str]:
    """In a sentence each: what a person is needed for now."""
    back = command("roll_back_congestion", pop=seen.pop)
    shows = command("congestion_report", pop=seen.pop)
    if seen.damaged:
        yield f"no round goes on: {one_line(seen.damaged)}; {back} begins anew"
    if seen.pending and seen.decisions:
        hosts = ", ".join(seen.pending[:5]) + (" ..." if len(seen.pending) > 5 else "")
        yield f"not taken back on {len(seen.pending)} hosts ({hosts}); {back} tries again"
    if seen.silent_for > STALE and seen.decisions:
        why = f": {seen.decisions.newest.problem}" if seen.decisions.newest.problem else ""
        yield f"no good round for {roughly(round(seen.silent_for))}{one_line(why)}; {shows}"
