# SPDX-License-Identifier: Apache-2.0
"""What tunings did on the PoPs where they were judged, and what that tells of others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TypedDict

from edgetune.base import clock
from edgetune.base.documents.effect import Expected, KeptEffect
from edgetune.base.documents.head import ENDED, Head
from edgetune.base.documents.reading import encoded
from edgetune.base.errors import InputError
from edgetune.base.fields import near_or_all
from edgetune.base.names import several
from edgetune.base.numbers import share
from edgetune.report.effects import expected_text
from edgetune.report.findings import WIDTH, folded
from edgetune.rollout.context import Context
from edgetune.rollout.record.effects import kept_effects
from edgetune.rollout.record.heads import living_heads
from edgetune.rollout.status.present import span, spoken


class TuningEffects(TypedDict):
    """Of one tuning and metric: the newest effect of each PoP (``KeptEffect``), and what those of
    the newest digest of the tuning tell together (``Expected``), over all and by hardware."""

    tuning: str
    metric: str
    pops: list[dict[str, object]]
    expected: list[dict[str, object]]


class EffectsResult(TypedDict):
    """By tuning; ``unreadable`` says why a document could not be read."""

    effects: list[TuningEffects]
    unreadable: list[str]
    message: str
    text: str


def effects(
    context: Context, tuning: str = "", hardware: str = "", metric: str = ""
) -> EffectsResult:
    """What each tuning did to the metric of its intent on all PoPs where it was judged, be it that
    it was taken back there; of one ``tuning``, ``hardware`` or ``metric`` where they are given.

    The mean over PoPs, its interval and that for the next PoP are those of ``judge.effects``, by
    hardware, too. Of several rollouts on a PoP the newest counts. InputError names what is given
    and not known.
    """
    every, unreadable = kept_effects(context)
    living = {head.id: head for head in living_heads(context)}
    found = [_ended(own, living) for own in every]
    for name, given, known in (
        ("tuning", tuning, {own.tuning for own in found}),
        ("hardware", hardware, {kind for own in found for kind in own.hardware}),
        ("metric", metric, {own.metric for own in found}),
    ):
        if given and given not in known:
            told = f"no effect is known of {given!r}{near_or_all(given, sorted(known))}"
            raise InputError("parameter", name, "; ".join([told, *unreadable]))
    chosen = [
        own
        for own in found
        if tuning in ("", own.tuning)
        and metric in ("", own.metric)
        and (not hardware or hardware in own.hardware)
    ]
    rows, texts = [], []
    for (name, of), group in groupby(sorted(chosen, key=_about), key=_about):
        newest = {own.pop: own for own in group}
        version = max(newest.values(), key=lambda own: own.at).digest
        together = [*_together((own for own in newest.values() if own.digest == version), hardware)]
        shown = {
            pop: own if not hardware else replace(own, whole=own.hardware[hardware])
            for pop, own in newest.items()
        }
        texts.append(_text(name, version, shown, together, bool(tuning)))
        rows.append(
            TuningEffects(
                tuning=name,
                metric=of,
                pops=[encoded(own) for own in newest.values()],
                expected=[encoded(own) for own in together],
            )
        )
    none = "No effect is known yet: a rollout leaves one with the look that ends its soak."
    return {
        "effects": rows,
        "unreadable": unreadable,
        "message": f"effects of {several(len(rows), 'tuning')} on {_pops(chosen)}",
        "text": "\n".join([*(texts or [none]), *unreadable]),
    }


def _about(own: KeptEffect) -> tuple[str, str]:
    return own.tuning, own.metric


def _ended(own: KeptEffect, living: Mapping[str, Head]) -> KeptEffect:
    """The archive keeps how a rollout ended; of one outside of it, its record tells."""
    head = living.get(own.rollout)
    if head is None:
        return own
    return own.after(head.state if head.state in ENDED else "", head.cause)


def _together(own: Iterable[KeptEffect], hardware: str) -> Iterator[Expected]:
    """Over all hardware first; of one PoP, or where all is of one kind, that is all there is."""
    from edgetune.judge.effects import expected

    every = [*own]
    kinds = sorted({kind for each in every for kind in each.hardware})
    for kind in [hardware] if hardware else ["", *(kinds if len(kinds) > 1 else [])]:
        found = expected(every, kind)
        if found:
            yield found


def _text(
    tuning: str,
    version: str,
    pops: Mapping[str, KeptEffect],
    together: Sequence[Expected],
    in_full: bool,
) -> str:
    earlier = {pop for pop, own in pops.items() if own.digest != version}
    count = several(len(pops) - len(earlier), "PoP")
    first = expected_text(together[0]) if together else f"nothing to compare on {count}"
    first += f"; {several(len(earlier), 'PoP')} had another version" if earlier else ""
    lines = folded(first, WIDTH, f"{tuning}  ", "    ")
    for own in together[1:]:
        lines += folded(expected_text(own), WIDTH, "  ", "    ")
    likely = together[0].likely if together and together[0].interval else {}
    width = max(map(len, pops))
    for pop, each in pops.items() if in_full else ():
        told = _pop(each, likely.get(pop)) + "; another version" * (pop in earlier)
        lines += folded(told, WIDTH, f"  {pop:<{width}}  ", "    ")
    return "\n".join(lines)


def _pop(own: KeptEffect, likely: float | None) -> str:
    import math

    log = own.whole.log
    told = "not compared" if log is None else f"{share(math.exp(log))} alone"
    told += "" if likely is None else f", {share(likely)} given all others"
    why = f": {own.why}" if own.why and own.ended == "rolled_back" else ""
    ended = f"; {spoken(own.ended)}{why}" if own.ended else ""
    return f"{told}; {spoken(own.verdict)} {span(clock.wall() - own.at)} ago{ended}"


def _pops(own: Iterable[KeptEffect]) -> str:
    return several(len({each.pop for each in own}), "PoP")
