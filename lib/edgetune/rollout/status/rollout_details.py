# SPDX-License-Identifier: Apache-2.0
"""One rollout, or what is under way on a PoP, with all that is known of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.head import ENDED, Head
from edgetune.base.errors import EdgetuneError
from edgetune.base.sanitize import command, one_line
from edgetune.report.text import rollout_text
from edgetune.rollout.gates.freeze import why_frozen
from edgetune.rollout.gates.pause import pause_text, pauses_of
from edgetune.rollout.ownership.automation import needed_rules, what_is_off
from edgetune.rollout.record.heads import unreadable_text
from edgetune.rollout.record.rollout import Record
from edgetune.rollout.status.attention import Seen, counted
from edgetune.rollout.status.congestion import seen_rounds, what_is_wrong
from edgetune.rollout.status.present import Present, spoken

_RECENT = 900.0


@dataclass
class InFull:
    """Rollouts of one PoP: ``left`` has the notices of those without an owner, ``waits`` what
    others wait for, by id."""

    seen: Seen
    left: Mapping[str, str]
    waits: Mapping[str, str]

    def text(self, pop: str, with_ended: bool) -> str:
        """All of it. Of a ``pop`` what is under way or has hosts in quarantine, or its last
        rollout, and the others ``with_ended``."""
        heads, some = self.seen.heads, self.seen.open or self.seen.heads[-1:]
        shown = heads if with_ended or self.seen.filtered else some
        parts = [*self._notices(pop, shown), *map(self._rollout, shown)]
        parts += [] if shown else [self._none(pop)]
        if len(shown) < len(heads):
            more = command("rollout_status", pop=pop, with_ended="true")
            parts.append(f"{counted(len(heads) - len(shown))} more: {more}")
        return "\n\n".join(parts) + (self._drift(shown[-1].pop) if shown else "")

    def _none(self, pop: str) -> str:
        if self.seen.filtered:
            return "No rollouts."
        begins = command("rollout_pop", pop=pop, tuning="TUNING")
        return f"No rollouts on {pop}. Begin one with: {begins}"

    def _notices(self, pop: str, shown: Sequence[Head]) -> list[str]:
        """What is to be known before anything else."""
        seen, permits = self.seen, f"{command('resume_all')} permits changes again"
        stop = f"Everything is stopped ({one_line(seen.stopped)}); {permits}."
        notices = [*([stop] if seen.stopped else []), *self.left.values(), *seen.unknown]
        notices += [one_line(unreadable_text(each)) for each in seen.damaged]
        notices += self._paused(pop or shown[0].pop) if pop or shown else []
        notices += self._rounds(pop) if pop else []
        frozen = (why_frozen(seen.context, head) for head in shown if head.state not in ENDED)
        notices += [f"{why}." for why in frozen if why]
        off = what_is_off(seen.context, needed_rules(shown))
        return [*notices, *(["\n".join(map(one_line, off))] if off else [])]

    def _paused(self, pop: str) -> list[str]:
        why = pause_text(pop, pauses_of(self.seen.context, pop))
        goes_on = command("resume_pop", pop=pop)
        return [f"{one_line(why)}; {goes_on} lets it go on."] if why else []

    def _rounds(self, pop: str) -> list[str]:
        """How the congestion control of its clients stands, and what a person is needed for."""
        try:
            found = seen_rounds(self.seen.context, pop)
        except EdgetuneError as error:
            return [f"How rounds stand is not known: {one_line(str(error))}."]
        return [
            "\n  ".join([one_line(f"congestion control: {own.line}"), *what_is_wrong(own)])
            for own in found
        ]

    def _rollout(self, head: Head) -> str:
        return rollout_text(head, self.waits.get(head.id) or self._now(head))

    def _now(self, head: Head) -> str:
        """What it is doing, where its state does not say that alone."""
        try:
            told = Present(Record(self.seen.context, head), self.seen.now).text
        except EdgetuneError as error:
            return f"what it does is not known: {one_line(str(error))}"
        return f"now: {told}" if told != spoken(head.state) else ""

    def _drift(self, pop: str) -> str:
        """Hosts with settings that are not as a tuning left them, by their newest samples."""
        now = self.seen.now
        try:
            recent = self.seen.context.samples.window(pop, now - _RECENT, now)
        except EdgetuneError as error:
            return f"\n  drift is not known: {error}"
        newest = {host: own.get("drifted", 0) for host, own in recent.latest_gauges().items()}
        hosts = [f"{one_line(host)} ({count:g})" for host, count in sorted(newest.items()) if count]
        if not hosts:
            return ""
        says = f"{command('sample_hosts', pop=pop)} says which"
        return f"\n  settings that have drifted: {', '.join(hosts)}; {says}"
