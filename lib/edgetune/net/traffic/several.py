# SPDX-License-Identifier: Apache-2.0
"""Several load balancers that send requests to the hosts of one PoP, as if they were one.

A server is out of traffic when every part that has it withdrew it, and it serves when every part
sends it requests: each question is answered by the worst of them. A part that does not answer
leaves them all unanswered. A change is asked of all parts at once, so one that is away keeps none
of the others from changing; the error names those that did not.

Where the parts withdrew a server in different ways, the word of the whole is one for each of them:
``drain at tcp://10.20.0.3:9999/edges, ready at tcp://10.20.0.4:9999/edges``.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Callable, Generic, TypeVar

from edgetune.base.dataclass import dataclass
from edgetune.base.errors import DrainError
from edgetune.net.traffic.driver import Balancer, DrainDriver, Server

_READY = "ready"
_AT, _BETWEEN = " at ", ", "

Result = TypeVar("Result")


@dataclass(frozen=True)
class Part:
    """One of them, by a name without spaces; those of one ``role`` have the same servers."""

    name: str
    role: str
    balancer: Balancer


class Several(DrainDriver):
    """All parts; one alone is as it is."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts

    def servers(self) -> Mapping[str, Server]:
        asked = _each(self._parts, lambda part: part.balancer.servers())
        if asked.failed:
            raise DrainError("; ".join(asked.failed.values()))
        told = asked.told
        if len(told) == 1:
            return told[self._parts[0].name]
        names = dict.fromkeys(server for own in told.values() for server in own)
        return {name: _joined(name, self._shown(told, name)) for name in names}

    def withdraw(self, server: str) -> None:
        self._change(server, lambda part: part.balancer.withdraw(server))

    def isolate(self, server: str) -> None:
        self._change(server, lambda part: part.balancer.isolate(server))

    def restore(self, server: str, withdrawn: str = "") -> None:
        words = _words(withdrawn)
        usual = "" if words else withdrawn
        self._change(
            server, lambda part: part.balancer.restore(server, words.get(part.name, usual))
        )

    def refuses_changes(self) -> str:
        asked = _each(self._parts, lambda part: part.balancer.refuses_changes())
        problems = "; ".join(filter(None, [*asked.failed.values(), *asked.told.values()]))
        if asked.failed:
            raise DrainError(problems)
        return problems

    def answering(self) -> tuple[DrainDriver, str]:
        asked = _each(self._parts, lambda part: part.balancer.servers())
        if not (asked.failed and asked.told):
            return self, ""
        rest = copy.copy(self)
        rest._parts = [part for part in self._parts if part.name in asked.told]
        return rest, "; ".join(asked.failed.values())

    def _shown(
        self, told: Mapping[str, Mapping[str, Server]], server: str
    ) -> dict[str, Server | None]:
        """By part, a server that it has, or that another one of its role has."""
        roles = {part.role for part in self._parts if server in told[part.name]}
        own = [part.name for part in self._parts if part.role in roles]
        return {name: told[name].get(server) for name in own}

    def _change(self, server: str, change: Callable[[Part], None]) -> None:
        if len(self._parts) == 1:
            return change(self._parts[0])
        known = _each(self._parts, lambda part: part.balancer.servers())
        having = [part for part in self._parts if server in known.told.get(part.name, ())]
        roles = {part.role for part in having}
        lacking = [
            f"{part.name} has no server {server!r}"
            for part in self._parts
            if part.name in known.told and part not in having
            if part.role in roles or not (having or known.failed)
        ]
        changed = _each(having, change)
        problems = [*known.failed.values(), *lacking, *changed.failed.values()]
        if problems:
            raise DrainError("; ".join(problems))
        return None


class _Asked(Generic[Result]):
    """What parts told, and why others did not, by name."""

    def __init__(self) -> None:
        self.told: dict[str, Result] = {}
        self.failed: dict[str, str] = {}


def _each(parts: Sequence[Part], ask: Callable[[Part], Result]) -> _Asked[Result]:
    """All at once: one that hangs takes the time of no other."""
    asked: _Asked[Result] = _Asked()
    if not parts:
        return asked
    with ThreadPoolExecutor(len(parts)) as pool:
        for part, answer in [(part, pool.submit(ask, part)) for part in parts]:
            try:
                asked.told[part.name] = answer.result()
            except DrainError as error:
                asked.failed[part.name] = str(error)
    return asked


def _joined(name: str, parts: Mapping[str, Server | None]) -> Server:
    """The worst of what the parts show."""
    told = {part: own for part, own in parts.items() if own is not None}
    every, is_whole = [*told.values()], len(told) == len(parts)
    addresses = {own.address for own in every}
    counts = [own.sessions for own in every]
    known = [count for count in counts if count is not None]
    any_withdrawn = any(own.withdrawn for own in every)
    all_withdrawn = is_whole and all(own.withdrawn for own in every)
    return replace(
        every[0],
        withdrawn=_word({part: own.withdrawn for part, own in told.items()}),
        leaving=any(own.leaving for own in every) or (any_withdrawn and not all_withdrawn),
        up=is_whole and all(own.up for own in every),
        sessions=sum(known) if is_whole and len(known) == len(counts) else None,
        address=addresses.pop() if len(addresses) == 1 else "",
        checked=all(own.checked for own in every),
        passing=is_whole and all(own.passing for own in every),
        idle=_reasons({part: own.idle for part, own in told.items()}),
        state=_word({part: own.state or own.withdrawn for part, own in told.items()}),
        overridden_by=_reasons({part: own.overridden_by for part, own in told.items()}),
        parts=parts,
    )


def _word(words: Mapping[str, str]) -> str:
    """One word for all parts, or one for each of them."""
    if len({*words.values()}) == 1:
        return next(iter(words.values()))
    return _BETWEEN.join(f"{word or _READY}{_AT}{part}" for part, word in words.items())


def _reasons(whys: Mapping[str, str]) -> str:
    """One reason for all parts, or that of each part which has one."""
    if len({*whys.values()}) == 1:
        return next(iter(whys.values()))
    return _BETWEEN.join(f"{why}{_AT}{part}" for part, why in whys.items() if why)


def _words(withdrawn: str) -> dict[str, str]:
    """By part, how it had withdrawn a server ("" for not at all); {} for one word of all."""
    if _AT not in withdrawn:
        return {}
    pairs = [each.partition(_AT) for each in withdrawn.split(_BETWEEN)]
    return {part: "" if word == _READY else word for word, _, part in pairs}
