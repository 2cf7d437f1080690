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
        own = self.decisions
        return own.pending if own and own.state == rounds.ROLLED_BACK else []

    @property
    def treated(self) -> int:
        """Prefixes that hosts may treat: none once their time is up."""
        own = self.decisions
        return own.newest.treated if own and self.now <= own.newest.until else 0

    @property
    def missing(self) -> list[str]:
        """Hosts that do not have what the others have."""
        return self.decisions.newest.missing if self.decisions and self.treated else []

    @property
    def taken_back(self) -> str:
        """Why the comparison took it back, if nobody decided since; else nothing."""
        own = self.decisions
        if not own or own.state != rounds.ROLLED_BACK or own.by != rounds.BY_COMPARISON:
            return ""
        return own.reason

    @property
    def silent_for(self) -> float:
        """Seconds since a round last led to a configuration, or since there are any; 0 where no
        round is to be taken, or while the PoP waits for a person or a rollout."""
        own = self.decisions
        if not self.is_tuning or own is None:
            return 0.0
        waits = own.newest.waits and self.now - own.newest.at <= STALE
        return 0.0 if waits else max(0.0, self.now - max(own.newest.good, own.since))

    @property
    def line(self) -> str:
        """How it stands, in a few words."""
        own = self.decisions
        if own is None:
            return f"not known: {self.damaged}"
        if own.state == rounds.ROLLED_BACK:
            by = f" by {own.by}" if own.by else ""
            return f"rolled back {self._ago(own.since)} ago{by}: {own.reason}"
        if not self.entry:
            return "not in the inventory any more"
        newest = own.newest
        what = f"{rounds.prefixes_text(self.treated)} treated, {newest.held_out} held out"
        told = [what if self.treated else "nothing is treated"]
        told += [f"last round {self._ago(newest.good)} ago"] if newest.good else []
        told += [f"waits: {newest.waits}"] if newest.waits else []
        return "; ".join([*told, *([newest.problem] if newest.problem else [])])

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


def what_is_wrong(own: SeenRounds) -> Iterator[str]:
    """In a sentence each: what a person is needed for now."""
    back = command("roll_back_congestion", pop=own.pop)
    shows = command("congestion_report", pop=own.pop)
    if own.damaged:
        yield f"no round goes on: {one_line(own.damaged)}; {back} begins anew"
    if own.pending and own.decisions:
        hosts = ", ".join(own.pending[:5]) + (" ..." if len(own.pending) > 5 else "")
        yield f"not taken back on {len(own.pending)} hosts ({hosts}); {back} tries again"
    if own.silent_for > STALE and own.decisions:
        why = f": {own.decisions.newest.problem}" if own.decisions.newest.problem else ""
        yield f"no good round for {roughly(round(own.silent_for))}{one_line(why)}; {shows}"
