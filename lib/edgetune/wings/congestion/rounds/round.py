# SPDX-License-Identifier: Apache-2.0
"""One round of a PoP: what was read leads to what hosts are to be told next.

Nothing here talks to a host but the source. Whatever fails, what hosts have is renewed for a while,
and never changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from edgetune.agent.vocabulary.prefixes import number_of_address, text_of
from edgetune.base import clock
from edgetune.base.documents.congestion import ROUND, Configuration, PrefixEffect, Thresholds
from edgetune.base.documents.rounds import (
    BY_COMPARISON,
    CHOSEN,
    NEIGHBOURS,
    ROLLED_BACK,
    LookTaken,
    RoundRow,
    prefixes_text,
)
from edgetune.base.durations import DAY, duration
from edgetune.base.errors import FencedError, InputError, RefusedError, SourceError
from edgetune.base.sanitize import shortened
from edgetune.site.inventory import Pop
from edgetune.wings.congestion.blocks import changes_of, compare_blocks, counts, is_on
from edgetune.wings.congestion.configuration import (
    Limits,
    make_configuration,
    refuse_configuration,
    told_next,
    untold,
)
from edgetune.wings.congestion.effect import compare, compare_windows, harm
from edgetune.wings.congestion.entry import APPLIERS
from edgetune.wings.congestion.rounds.work import Permission, Work, entry_of
from edgetune.wings.congestion.rows import PrefixRows, levels_of
from edgetune.wings.congestion.selection import Excluded, Selection, advance, counted, put_off
from edgetune.wings.congestion.sources import open_source

_WEEK = 7 * DAY / ROUND
_MOST_PROBLEM = 600


class Round:
    """A round at work; ``told`` is what it says in the end, ``is_news`` whether chat is told."""

    def __init__(self, work: Work, pop: Pop, permission: Permission) -> None:
        self.work, self.pop, self.entry = work, pop, entry_of(pop)
        self.waits = permission.waits
        self.told: list[str] = []
        self.is_news = False
        self._exclude = [*self.entry.terms.exclude, *_own_networks(pop)]

    def take(self) -> None:
        """Read, select, compare, and write down what hosts are to be told."""
        work, rounds = self.work, self.work.rounds
        self._begin_anew_where_expired()
        rounds.problem, rounds.waits, rounds.wanted = "", self.waits, None
        known = {host.name for host in self.pop.hosts}
        rounds.hosts = {name: has for name, has in rounds.hosts.items() if name in known}
        selection = self._selected(work.selection(self.entry.thresholds))
        rounds.selection = selection.text()
        rounds.held_out = sum(own.held_out for own in selection.chosen)
        self._look(selection)
        if work.decisions.state != ROLLED_BACK:
            rounds.wanted = self._wanted(selection)
        self.told += [f"waits: {self.waits}"] if self.waits else []
        work.save()

    def _begin_anew_where_expired(self) -> None:
        """What nobody renewed in time is gone from the hosts; it does not come back at once."""
        rounds = self.work.rounds
        own = rounds.configuration
        if own is None or clock.wall() - rounds.confirmed <= own.ttl:
            return
        selection = self.work.selection(self.entry.thresholds)
        # A clock was ahead where the history ends in the future: then no round would count.
        ahead = selection.history.newest > clock.wall() // ROUND
        rounds.selection = "" if ahead else replace(selection, chosen=()).text()
        rounds.hold(None, clock.wall())
        rounds.wanted, rounds.good = None, 0.0
        what = f"configuration {own.number} was not renewed in time: hosts took it back themselves"
        self.work.decisions.note(what)
        self.told.append(what)

    def _selected(self, before: Selection) -> Selection:
        """The selection after the newest round; the same one where that cannot be had."""
        entry, rounds = self.entry, self.work.rounds
        try:
            source = open_source(entry.source, entry.source_fields, self.work.context)
            number = source.newest(clock.wall())
            if number == before.history.newest:
                self.told.append(f"round {number} was read before")
                return before
            if number < before.history.newest:
                raise RefusedError(
                    f"round {number} is before {before.history.newest}, which was read: a clock is "
                    "wrong, or was"
                )
            rows = source.read(self.pop, number, entry.thresholds.sockets)
            in_block = self._in_block(before, rows)
            after = self._advanced(before, rows)
        except FencedError:
            raise
        except (SourceError, RefusedError, InputError) as error:
            self._could_not(str(error))
            return before
        measured = int(after.history.measured_now.sum())
        self.told.append(
            f"round {number}: {prefixes_text(measured)} measured, "
            f"{prefixes_text(len(after.chosen))} chosen, {len(after.new)} new, "
            f"{len(after.gone)} let go"
        )
        followed = [own for own in after.chosen if own.prefix not in rounds.skipped]
        levels = levels_of(followed, rows, entry.thresholds)
        row = (number, measured, len(after.chosen), len(after.new), len(after.gone))
        rounds.add(RoundRow(*row, levels, *in_block))
        return after

    def _in_block(
        self, before: Selection, rows: PrefixRows
    ) -> tuple[bool | None, dict[str, list[float | None]]]:
        """Whether the round was treated, and its changes; nothing without blocks."""
        thresholds, rounds = self.entry.thresholds, self.work.rounds
        if not thresholds.block:
            return None, {}
        shown = [own for own in before.chosen if own.prefix not in rounds.skipped]
        rows = rows.only(counted(rows, thresholds, Excluded(self._exclude)))
        return rounds.treated_in(rows.round), changes_of(shown, before.history, rows)

    def _advanced(self, before: Selection, rows: PrefixRows) -> Selection:
        """Nothing is chosen while nothing may be changed, or hosts lack some of what was chosen.

        More and more would wait for them, and in the end be too much to be told at once. What
        hosts lack is not treated, and does not count.
        """
        most, rounds = self.entry.thresholds, self.work.rounds
        missing = untold(before, rounds.treatment)
        if self.waits or missing:
            most = replace(most, new=0)
        before = put_off(before, missing, rows.round)
        windows = APPLIERS[self.entry.applier].has_windows
        skipped = {*rounds.skipped}
        if most.block and not (rounds.treated_in(rows.round) and counts(rows.round, most)):
            skipped = {own.prefix for own in before.chosen}
        return advance(before, rows, most, Excluded(self._exclude), windows, skipped)

    def _could_not(self, problem: str) -> None:
        self.work.rounds.problem = shortened(problem, _MOST_PROBLEM)
        self.told.append(self.work.rounds.problem)

    def _look(self, selection: Selection) -> None:
        """Compare treated with held-out prefixes where that is due, and take harm back."""
        decisions, thresholds = self.work.decisions, self.entry.thresholds
        newest = selection.history.newest
        if not selection.chosen or not self._is_due(selection, thresholds):
            return
        # Of the draws of a look, which nobody can choose.
        digest = hashlib.sha256(f"{decisions.salt}\nlook\n{newest}".encode()).digest()
        seed = int.from_bytes(digest[:4], "big")
        effects = compare(selection.chosen, thresholds, seed)
        windows = compare_windows(selection.chosen, thresholds, seed)
        blocks = {}
        if thresholds.block:
            rows = self.work.rounds.rows
            blocks = compare_blocks(rows, decisions.salt, thresholds, seed)
        decisions.looked(LookTaken(newest, clock.wall(), effects, windows, blocks))
        worse, count = _harm(effects, blocks, thresholds), len(self.told)
        if worse:
            decisions.become(ROLLED_BACK, worse, BY_COMPARISON)
            decisions.pending = [host.name for host in self.pop.hosts]
            self.told.append(f"taken back: {worse}")
        elif harm(windows, thresholds) and not decisions.windows_off:
            decisions.windows_off = harm(windows, thresholds)
            decisions.note(f"no more initial windows: {decisions.windows_off}", BY_COMPARISON)
            self.told.append(f"no more initial windows: {decisions.windows_off}")
        self.is_news = len(self.told) > count

    def _is_due(self, selection: Selection, thresholds: Thresholds) -> bool:
        """A week has at most so many looks as share alpha; the first one has as much to see."""
        looks = self.work.decisions.looks
        begun = min(own.since for own in selection.chosen)
        last = max(begun, looks[-1].round) if looks else begun
        return selection.history.newest - last >= _WEEK / thresholds.looks

    def _wanted(self, selection: Selection) -> Configuration | None:
        """What hosts are to be told next; None where they are to be told nothing."""
        rounds = self.work.rounds
        before = rounds.configuration
        made = None if rounds.problem else self._made(selection, before)
        if made is None:
            return self._renewed_blind(before)
        rounds.good = clock.wall()
        if self.waits:
            return before
        if self._rests:
            return self._empty(before)
        if not made.prefixes and not rounds.is_treating:
            return None
        return made

    @property
    def _rests(self) -> bool:
        """Whether this is a block of time without treatment."""
        block, number = self.entry.thresholds.block, int(clock.wall() // ROUND)
        return block > 0 and not is_on(self.work.decisions.salt, number, block)

    def _empty(self, before: Configuration | None) -> Configuration | None:
        """What hosts have, without its prefixes."""
        if before is None or not before.prefixes:
            return before
        number = max(self.work.decisions.number, before.number) + 1
        return replace(before, prefixes=[], number=number).sealed()

    def _made(self, selection: Selection, has: Configuration | None) -> Configuration | None:
        """A configuration that hosts may be told; the one that they have if nothing is new."""
        before = self.work.rounds.treatment
        decisions, terms, thresholds = (
            self.work.decisions,
            self.entry.terms,
            self.entry.thresholds,
        )
        if decisions.windows_off:
            without = tuple(replace(own, has_window=False) for own in selection.chosen)
            selection = replace(selection, chosen=without)
        selection = told_next(selection, before, thresholds.new)
        made = make_configuration(selection, before, terms.algorithm, terms.ttl, self.entry.applier)
        if made != has:
            # A number that a host may have heard is never given to another content.
            number = max(decisions.number, before.number if before else 0) + 1
            made = replace(made, number=number).sealed()
        limits = Limits(thresholds.prefixes, thresholds.new, terms.most_leave, self._exclude)
        try:
            refuse_configuration(made, before, limits)
        except RefusedError as error:
            self._could_not(str(error))
            return None
        return made

    def _renewed_blind(self, before: Configuration | None) -> Configuration | None:
        rounds, terms = self.work.rounds, self.entry.terms
        if before is None or not (before.prefixes or rounds.resting):
            return None
        if clock.wall() - rounds.good <= terms.renew_blind:
            return before
        self.told.append(
            f"not renewed any more after {duration(terms.renew_blind)}: hosts take "
            f"configuration {before.number} back within {duration(before.ttl)}"
        )
        return None


def _harm(
    effects: Sequence[PrefixEffect],
    blocks: Mapping[str, Sequence[PrefixEffect]],
    thresholds: Thresholds,
) -> str:
    """What is proven; blocks of time, where there are any, tell more than held-out prefixes."""
    if not blocks:
        return harm(effects, thresholds)
    than = "that of {} in blocks without treatment"
    groups = {CHOSEN: "chosen prefixes", NEIGHBOURS: "their neighbours"}
    found = [harm(blocks[own], thresholds, than.format(name)) for own, name in groups.items()]
    return "; ".join(filter(None, found))


def _own_networks(pop: Pop) -> list[str]:
    """The prefixes in which the hosts of a PoP are, as far as the inventory has their addresses."""
    found = set()
    for host in pop.hosts:
        for address in (host.address, host.server_address):
            try:
                found.add(text_of(number_of_address(address)))
            except ValueError:
                continue
    return sorted(found)
