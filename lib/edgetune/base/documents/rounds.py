# SPDX-License-Identifier: Apache-2.0
"""What is kept of a PoP whose congestion control is tuned, from round to round.

edgetune.congestion.POP     in the store of records: what people and looks decided; small
edgetune:congestion:POP     beside the claims: what the rounds showed, and what hosts have
"""

from __future__ import annotations

import json
from dataclasses import field

from edgetune import CAMPAIGN_SCHEMA, PACK
from edgetune.base import clock
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.congestion import METRICS, ROUND, Configuration, PrefixEffect
from edgetune.base.documents.reading import Number, check_is, decoded, encoded, read_document
from edgetune.base.errors import DamagedError

TUNING = "tuning"
ROLLED_BACK = "rolled_back"
STATES = (TUNING, ROLLED_BACK)
BY_COMPARISON = "the comparison with held-out prefixes"
"""Who took back what did harm."""

CHOSEN, NEIGHBOURS, TOGETHER = "chosen", "neighbours", "together"
"""Of which changes are kept: the chosen prefixes, others of their networks (/16 or /32), and all of
these by the rates that they had. Where prefixes of a network only take from each other, that does
not grow: a mean of logarithms is not above the logarithm of the mean."""

MOST_LOOKS = 14
MOST_ENTRIES = 100
MOST_ROWS = 576
"""Rounds that are shown: two days."""


@dataclass(frozen=True)
class LookTaken:
    """A comparison after a ``round``: of the treatment, and of initial windows apart.

    ``blocks`` has that of blocks of time by group of prefixes, nothing where there were none.
    """

    round: int
    at: float
    effects: list[PrefixEffect]
    windows: list[PrefixEffect]
    blocks: dict[str, list[PrefixEffect]] = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """What happened ``at`` a moment (epoch seconds), and who did it."""

    at: float
    what: str
    by: str = ""


@dataclass(frozen=True)
class Outcome:
    """What the newest round came to, in short: rounds are too large to be read for a status.

    ``at`` is when a step wrote it, ``good`` when a round last led to a configuration that hosts may
    have, ``until`` when hosts take back what they have unless it is renewed, in epoch seconds; 0
    for never. ``number`` is the configuration that hosts have, with so many prefixes ``treated``
    and ``held_out``, and ``missing`` names hosts that do not have it. ``problem`` and ``waits`` are
    those of ``Rounds``. ``new`` prefixes came with the newest round, and ``since`` is when hosts
    got that configuration first, 0 where nothing is treated.
    """

    at: float = 0.0
    good: float = 0.0
    until: float = 0.0
    number: int = 0
    treated: int = 0
    held_out: int = 0
    missing: list[str] = field(default_factory=list)
    problem: str = ""
    waits: str = ""
    new: int = 0
    since: float = 0.0


@dataclass
class Decisions:
    """What may not be lost: of a PoP, written under the ``epoch`` of its claim.

    ``salt`` draws the hold-out, for ever. ``state`` is one of STATES since ``since`` (epoch
    seconds), ``by`` somebody and for a ``reason``. ``number`` is the largest that a host may have
    got. ``pending`` names the hosts that have not confirmed yet that nothing of ours is left
    there. ``windows_off`` says why no prefix gets an initial window, "" while some do. ``newest``
    may be lost: it is of the rounds, for those who ask how the PoP stands.
    """

    pop: str
    salt: str
    epoch: int = 0
    state: str = TUNING
    since: float = 0.0
    by: str = ""
    reason: str = ""
    number: int = 0
    pending: list[str] = field(default_factory=list)
    windows_off: str = ""
    looks: list[LookTaken] = field(default_factory=list)
    history: list[Entry] = field(default_factory=list)
    newest: Outcome = field(default_factory=Outcome)

    def note(self, what: str, by: str = "") -> None:
        """Write down what happened; the oldest entries are forgotten."""
        self.history = [*self.history, Entry(clock.wall(), what, by)][-MOST_ENTRIES:]

    def become(self, state: str, reason: str, by: str) -> None:
        """Change the state, and write down why."""
        self.state, self.since, self.reason, self.by = state, clock.wall(), reason, by
        self.note(f"{state.replace('_', ' ')}: {reason}" if reason else state, by)

    def looked(self, look: LookTaken) -> None:
        """Keep a look; the oldest ones are forgotten."""
        self.looks = [*self.looks, look][-MOST_LOOKS:]

    def document(self) -> str:
        """As it is stored."""
        return json.dumps({"schema": CAMPAIGN_SCHEMA, **encoded(self)})


@dataclass
class HostHas:
    """The configuration that a host confirmed last, ``at`` a moment; ``error`` says why it does
    not have the newest one, "" if it does."""

    number: int = 0
    checksum: str = ""
    at: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class Levels:
    """The 5th and the 10th percentile over the prefixes of each group, None without any."""

    treated: list[Number] | None
    held_out: list[Number] | None


@dataclass(frozen=True)
class RoundRow:
    """A round as it is shown: how many prefixes were measured, are chosen, came and went, and
    levels by metric.

    Where there are blocks of time, ``on`` says whether prefixes were treated in all of the round,
    None if in a part of it, and ``changes`` by group how far METRICS are above those before.
    """

    round: int
    measured: int
    chosen: int
    new: int
    gone: int
    levels: dict[str, Levels] = field(default_factory=dict)
    on: bool | None = None
    changes: dict[str, list[Number | None]] = field(default_factory=dict)


@dataclass
class Rounds:
    """What the rounds of a PoP led to, written under the ``epoch`` of its claim; losing it begins
    anew. ``state`` and ``number`` are those of the decisions, should these be lost.

    ``good`` is when a round last led to a configuration that hosts may have, 0 before;
    ``problem`` says why the newest did not, ``waits`` why nothing is changed now. ``configuration``
    is the last one that a host confirmed, ``since`` when it was sent first, ``confirmed`` when a
    host confirmed it last (epoch seconds).
    ``wanted`` is sent to hosts next. ``skipped`` says by prefix why a host has no route
    for it. ``switched`` is when hosts began or ended to treat prefixes (epoch seconds), ``resting``
    what they are to have again after a block of time without treatment.
    ``held_out`` is how many chosen prefixes are. ``selection`` is one of
    ``congestion.selection`` as text, "" before the first round.
    """

    pop: str
    epoch: int = 0
    state: str = TUNING
    number: int = 0
    good: float = 0.0
    problem: str = ""
    waits: str = ""
    configuration: Configuration | None = None
    since: float = 0.0
    confirmed: float = 0.0
    wanted: Configuration | None = None
    hosts: dict[str, HostHas] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    rows: list[RoundRow] = field(default_factory=list)
    held_out: int = 0
    selection: str = ""
    switched: float = 0.0
    resting: Configuration | None = None

    def hold(self, own: Configuration | None, at: float) -> None:
        """Hosts have this one now, or nothing."""
        before, was = self.configuration, self.is_treating
        if own is None or own.prefixes:
            self.resting = None
        elif was:
            self.resting = before
        self.configuration = own
        self.switched = at if self.is_treating != was else self.switched

    @property
    def treatment(self) -> Configuration | None:
        """What hosts have, or are to have again after a block without treatment."""
        return self.resting or self.configuration

    def treated_in(self, number: int) -> bool | None:
        """Whether hosts treated prefixes in a round; None if they began or ended in it."""
        if number * ROUND < self.switched < (number + 1) * ROUND:
            return None
        return self.is_treating is (self.switched <= number * ROUND)

    @property
    def is_treating(self) -> bool:
        """Whether some host may treat a prefix now."""
        return bool(self.configuration and self.configuration.prefixes)

    def outcome(self, now: float) -> Outcome:
        """In short, as it is ``now``."""
        current = self.configuration
        number, treated = (current.number, len(current.prefixes)) if current is not None else (0, 0)
        missing = [name for name, has in self.hosts.items() if has.error or has.number != number]
        return Outcome(
            now,
            self.good,
            self.confirmed + current.ttl if current is not None and treated else 0.0,
            number,
            treated,
            self.held_out if treated else 0,
            missing if treated else [],
            self.problem,
            self.waits,
            self.rows[-1].new if self.rows else 0,
            self.since if treated else 0.0,
        )

    def add(self, row: RoundRow) -> None:
        """Keep a row; the oldest ones are forgotten."""
        self.rows = [*self.rows, row][-MOST_ROWS:]

    def document(self) -> str:
        """As it is stored."""
        return json.dumps({"schema": CAMPAIGN_SCHEMA, **encoded(self)})


def prefixes_text(number: int) -> str:
    """Such as ``1 prefix`` or ``20 prefixes``."""
    return f"{number} prefix{'' if number == 1 else 'es'}"


def decisions_key(pop: str) -> str:
    """The key of a PoP's decisions; of "" what all of them begin with."""
    return f"{PACK}.congestion.{pop}"


def epoch_of(text: str) -> int:
    """Under which stored decisions were written last, 0 where they do not tell."""
    try:
        epoch = read_document("", text).get("epoch")
    except DamagedError:
        return 0
    return epoch if type(epoch) is int else 0


def read_decisions(pop: str, text: str) -> Decisions:
    """Stored ones; DamagedError unless they are whole, and of this PoP."""
    key = decisions_key(pop)
    made = decoded(key, Decisions, _read(key, text))
    check_is(key, "pop", made.pop == pop, "is another one")
    check_is(key, "state", made.state in STATES, f"is none of {', '.join(STATES)}")
    check_is(key, "salt", bool(made.salt), "is empty")
    check_is(key, "number", made.number >= 0, "is negative")
    return made


def read_rounds(pop: str, text: str) -> Rounds:
    """Stored ones; DamagedError unless they are whole, and of this PoP."""
    key = f"edgetune:congestion:{pop}"
    made = decoded(key, Rounds, _read(key, text))
    check_is(key, "pop", made.pop == pop, "is another one")
    for name in ("configuration", "wanted", "resting"):
        given = getattr(made, name)
        check_is(key, name, given is None or given.checksum == given.sum, "has another checksum")
    alike = all(len(own) == len(METRICS) for row in made.rows for own in row.changes.values())
    check_is(key, "rows", alike, "has changes of other metrics")
    return made


def _read(key: str, text: str) -> dict[str, object]:
    document: dict[str, object] = read_document(key, text)
    check_is(key, "schema", document.pop("schema", None) == CAMPAIGN_SCHEMA, "is none of ours")
    return document
