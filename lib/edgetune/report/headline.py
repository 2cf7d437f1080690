# SPDX-License-Identifier: Apache-2.0
"""What a rollout came to, in the few words that stand above everything else; what it cost its PoP:
how long each host was out of service, and what of requests; and what comes next of it, with the
commands that a person may type, and the words and colours of what needs one.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.batch import Batch, HostStep
from edgetune.base.documents.capacity import CapacityRatio
from edgetune.base.documents.head import ENDED, PROMOTED, Head
from edgetune.base.documents.look import Conclusion
from edgetune.base.documents.plan import Plan
from edgetune.base.documents.words import State, Verdict
from edgetune.base.durations import roughly
from edgetune.base.numbers import share
from edgetune.intent.metrics.catalogue import METRICS
from edgetune.judge.capacity import ratio_text
from edgetune.judge.verdict import noted
from edgetune.rollout.status.commands import commands, releases

_TAKEN_BACK = (State.ROLLING_BACK, State.ROLLED_BACK)
_UNDECIDED: dict[str, str] = {
    State.CLAIMED: "The PoP is claimed; nothing is changed yet.",
    State.BASELINE: "The baseline is being measured; nothing is changed yet.",
    State.CHANGING: "The test group is being changed; nothing is compared yet.",
    State.SOAKING: "Both groups are being watched; no look was taken yet.",
    State.HELD: "It was held, and its record holds no verdict.",
    State.PROMOTING: "The control group is being changed; the record holds no verdict.",
    **dict.fromkeys(PROMOTED, "Every host is changed; the record holds no verdict."),
}

_IN_SERVICE = ("done", "skipped")


@dataclass(frozen=True)
class Headline:
    """A ``verdict`` in words, the class of its colour (``tone``), and the ``sentence`` that says
    why it is so. ``before`` is the verdict's own sentence where it is not the cause."""

    verdict: str
    tone: str
    sentence: str
    before: str = ""


def headline(head: Head) -> Headline:
    """Of a rollout that is taken back the cause comes first, whatever a verdict said before."""
    found = head.verdict
    over = head.state in ENDED or head.state == State.ROLLING_BACK
    without = "no verdict" if over else "no verdict yet"
    verdict = found.verdict.value.replace("_", " ") if found else without
    tone = found.verdict.value if found else ""
    reason = found.reason if found else ""
    if head.state not in _TAKEN_BACK:
        return Headline(verdict, tone, reason or _UNDECIDED[head.state])
    verb = "Taken back" if head.state == State.ROLLED_BACK else "Being taken back"
    cause = head.cause or "its history does not say why"
    before = "" if not reason or reason in cause else reason
    return Headline(verdict, tone, f"{verb}: {cause}", before)


def effect_of(head: Head) -> str:
    """The newest look's effect on the intent's metric, and on the load that hosts carry, in few
    words; empty if none was taken, and nothing measured."""
    return "; ".join([*_looked_at(head.verdict), *_measured(head.capacity)])


def _measured(own: CapacityRatio | None) -> list[str]:
    if own is None:
        return []
    limit = f" to the limit of {own.metric}" if own.metric else ""
    return [f"load{limit}, measured: {ratio_text(own)}"]


def _looked_at(found: Conclusion | None) -> list[str]:
    if found is None or (found.ratio is None and not found.metric):
        return []
    # Of one of a site its name has to do: no plan is read for it.
    known = found.metric in METRICS
    name = METRICS[found.metric].title if known else found.metric or "its metric"
    told = "not compared" if found.ratio is None else share(found.ratio)
    carried = [f"load to the limit of {own}: {share(r)}" for own, r in found.headroom.items()]
    return [f"{name}: {told}{noted(found.measured)}", *carried]


@dataclass(frozen=True)
class Out:
    """How long a host was out of service in all, in ``seconds``, and whether it ``still`` is.

    ``recorded`` is False where it was drained and its record does not say when: earlier versions
    did not write it down.
    """

    seconds: float = 0.0
    still: bool = False
    recorded: bool = True

    def __str__(self) -> str:
        if not self.recorded:
            return "not recorded"
        if not self.seconds:
            return "none"
        return roughly(round(self.seconds)) + (" so far" if self.still else "")


def times_out(batches: Sequence[Batch], now: float) -> dict[str, Out]:
    """By host; a host stays out from one batch to the next until one of them puts it back."""
    hosts = dict.fromkeys(name for batch in batches for name in batch.hosts)
    return {name: _out([b.hosts[name] for b in batches if name in b.hosts], now) for name in hosts}


def _out(steps: Sequence[HostStep], now: float) -> Out:
    if any(step.lb_before is not None and not step.out_at for step in steps):
        return Out(recorded=False)
    spans: list[tuple[float, float | None]] = []
    for step in steps:
        if step.out_at:
            end = step.at if step.step in _IN_SERVICE else None
            spans.append((_same_absence(spans, step) or step.out_at, end))
    seconds = sum((now if end is None else end) - start for start, end in spans)
    return Out(max(seconds, 0.0), bool(spans) and spans[-1][1] is None)


def _same_absence(spans: list[tuple[float, float | None]], step: HostStep) -> float:
    """When the absence began that the next batch of a host goes on with; taken from the list."""
    start, end = spans[-1] if spans else (0.0, 0.0)
    if end is not None and end <= step.out_at:
        return 0.0
    spans.pop()
    return start


def out_text(times: Mapping[str, Out]) -> str:
    """All hosts in one sentence."""
    unknown = [host for host, out in times.items() if not out.recorded]
    known = {host: out.seconds for host, out in times.items() if out.recorded and out.seconds}
    told = [f"of {len(unknown)} hosts not recorded"] if unknown else []
    if known:
        longest = max(known, key=lambda host: known[host])
        middle = roughly(round(statistics.median(known.values())))
        most = roughly(round(known[longest]))
        told.insert(0, f"{len(known)} hosts, {middle} each (median), {most} at most ({longest})")
    still = [host for host, out in times.items() if out.still]
    told += [f"{len(still)} still out"] if still else []
    return "; ".join(told) or "no host"


def requests_text(plan: Plan, batches: Sequence[Batch]) -> str:
    """What is known of lost requests: nothing was counted, and what was done to lose none."""
    return "; ".join(
        ["not measured: no metric counts the requests of clients", *_care(plan, batches)]
    )


def _care(plan: Plan, batches: Sequence[Batch]) -> Iterator[str]:
    steps = [step for batch in batches for step in batch.hosts.values()]
    if not any(step.lb_before is not None for step in steps):
        yield "no host was taken out of service"
        return
    if plan.options.drop_sessions:
        yield "drop_sessions: a session that was open at the drain deadline was dropped, uncounted"
    else:
        yield "a host was changed only once it had no session left"
    skipped = sum(step.step == "skipped" for step in steps)
    if skipped:
        yield f"{skipped} skipped and left unchanged"


WAITING_FOR_A_PERSON = (State.HELD, State.HANDING_OVER)
_COLORS: dict[str, str] = {
    State.HELD: "warning",
    State.ROLLING_BACK: "danger",
    State.ROLLED_BACK: "danger",
    Verdict.IMPROVED: "good",
    Verdict.DEGRADED: "danger",
    Verdict.INCONCLUSIVE: "warning",
}
ATTENTION = re.compile(
    r"\b(?:EVERYTHING IS STOPPED|NO OWNER|WITHOUT AN OWNER|OVERDUE|QUARANTINED|HELD|PAUSED"
    r"|HANDING OVER|NO SAMPLE|DAMAGED|NOT KNOWN|NOT seen out of service|(?:NOT )?TAKEN BACK"
    r"|NO ROUND|NOT ON|WEIGHTS NOT RETURNED|MEASUREMENT LEFT)\b"
)
"""What a status says of a rollout or a PoP that needs a person."""


class Next(NamedTuple):
    """A sentence, and a command where there is one."""

    text: str
    command: str = ""


_BACK = ("To take it back:", "back")
_FIRST = (
    ("While its workflow lives it goes on: the baseline first, then the changes.", ""),
    ("To end it, with nothing changed yet:", "back"),
)
_CHANGES = (
    ("While its workflow lives it goes on with the next batch.", ""),
    ("To let no further batch begin:", "pause"),
    _BACK,
)
_STAYS = "While its workflow lives it looks, and promotes, holds or takes it back."
_ROWS: dict[State, tuple[tuple[str, str], ...]] = {
    State.CLAIMED: _FIRST,
    State.BASELINE: _FIRST,
    State.CHANGING: _CHANGES,
    State.SOAKING: (
        ("The rule advance_soaking takes the looks that are due. To take them now:", "look"),
        _BACK,
    ),
    State.HELD: (
        ("A person decides; until then the test group stays changed and the PoP claimed.", ""),
        ("To soak and look again:", "look longer"),
        _BACK,
    ),
    State.PROMOTING: _CHANGES,
    State.COMPLETE: (
        ("Nothing is left to do.", ""),
        ("To take it back later:", "back"),
        ("To keep its effect without edgetune:", "hand over"),
    ),
    State.ROLLING_BACK: (
        ("While its workflow lives it goes on until every host is as it was.", ""),
        ("To see what it waits for:", "status"),
    ),
    State.ROLLED_BACK: (
        ("Nothing is left to do: no host carries the change.", ""),
        ("To try again, once the cause is mended:", "again"),
    ),
    State.HANDING_OVER: (
        ("Some of its hosts are handed over. To hand the others over:", "hand over"),
    ),
    State.HANDED_OVER: (
        ("Nothing is left to do: its hosts keep its effect without edgetune.", ""),
    ),
}


def next_steps(head: Head) -> list[Next]:
    """In the order in which a person thinks of them."""
    rows = list(_ROWS[State(head.state)])
    if head.state == State.SOAKING and head.wait:
        rows[0] = (_STAYS, "")
    told = [Next(text, commands(head).get(what, "")) for text, what in rows]
    released = [
        Next(f"{host}, {when}:", way)
        for host in sorted(head.quarantined)
        for when, way in releases(head, host).items()
    ]
    return [*(told[1:] if released else told), *released]


def color_of(state: str, verdict: str) -> str:
    """Slack's name of the colour that says how a rollout does; empty if nothing is known yet."""
    return _COLORS.get(state) or _COLORS.get(verdict, "")
