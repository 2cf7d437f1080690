# SPDX-License-Identifier: Apache-2.0
"""What a rollout came to, in the few words that stand above everything else; and what it cost its
PoP: how long each host was out of service, and what of requests.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.batch import Batch, HostStep
from edgetune.base.documents.head import ENDED, PROMOTED, Head
from edgetune.base.documents.plan import Plan
from edgetune.base.documents.words import State
from edgetune.base.durations import roughly
from edgetune.intent.metrics.catalogue import METRICS
from edgetune.judge.verdict import noted
from edgetune.report.effects import share

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
    """The newest look's effect on the intent's metric, in few words; empty if none was taken."""
    found = head.verdict
    if found is None or (found.ratio is None and not found.metric):
        return ""
    # Of one of a site its name has to do: no plan is read for it.
    known = found.metric in METRICS
    name = METRICS[found.metric].title if known else found.metric or "its metric"
    told = "not compared" if found.ratio is None else share(found.ratio)
    return f"{name}: {told}{noted(found.measured)}"


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
