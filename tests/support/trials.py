# SPDX-License-Identifier: Apache-2.0
"""How each kind of setting is tried: each has a file in ``kinds``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from edgetune.agent.vocabulary.kinds import KINDS
from edgetune.agent.vocabulary.kinds.nic_irq_affinity import POLICIES
from edgetune.agent.vocabulary.values import format_cpus
from tests.support.agent_cpus import Machine
from tests.support.agent_nic import CARDS, SINGLE, Card, Make, veth
from tests.support.agent_root import setting

MAKES = (*CARDS, veth)
MACHINES = (Machine(sockets=1, cores=4, threads=1), Machine(sockets=2, cores=4, threads=2))
ETH0 = {"interface": "eth0"}
CACHE = "/var/cache/nginx"
SWITCH = st.sampled_from(("on", "off"))

Settings = st.SearchStrategy[dict[str, Any]]


@dataclass(frozen=True)
class Build:
    """What a host is made of; ``old`` ones have the migration cost as a sysctl, others nowhere."""

    card: Make
    machine: Machine
    init: str = "systemd"
    old: bool = True
    balanced: bool = False


@dataclass(frozen=True)
class Trial:
    """How a kind is tried.

    A setting of ``target`` takes the values ``taken``, and none of those ``refused``. A host has
    the ``of_host`` (path and content; ``of_old`` ones beside them), and is asked for ``choices``:
    targets with values, and ``restart`` where a service is to be restarted. What a card takes
    depends on the card (`ASKED`). A change is seen by the ``file`` that is written or the ``call``
    of a program: patterns, where the change is more than a file that keeps it. ``beside`` are
    settings that it cannot do without. ``asks`` is what a request for it has to say beside the
    settings. Hosts of `Build` have Linux: nothing is asked for of kinds of FreeBSD, which are
    tried in `tests/lib/agent/machines/freebsd.yaml`.
    """

    kind: str
    target: Mapping[str, str]
    taken: list[Any]
    refused: list[Any]
    choices: list[Mapping[str, Any]] = field(default_factory=list)
    of_host: Mapping[str, str] = field(default_factory=dict)
    of_old: Mapping[str, str] = field(default_factory=dict)
    file: str = ""
    call: str = ""
    beside: tuple[Mapping[str, Any], ...] = ()
    asks: Mapping[str, Any] = field(default_factory=dict)

    def settings(self, build: Build) -> list[Settings]:
        """What a host can be asked for: a strategy for each target."""
        if self.kind in ASKED:
            return [ASKED[self.kind](build).flatmap(lambda own: bounded(self.kind, ETH0, own))]
        return [any_of(self.kind, **choice) for choice in self.choices]

    def files(self, build: Build) -> Mapping[str, str]:
        """What such a host has."""
        return {**self.of_host, **(self.of_old if build.old else {})}


def path_of(name: str) -> Path:
    """Where the trial of a kind is."""
    return Path(__file__).with_name("kinds") / f"{name.replace('.', '_')}.yaml"


def trials() -> dict[str, Trial]:
    """Every trial that there is, in the order of application."""
    return {name: _trial(name) for name in KINDS if path_of(name).exists()}


def _trial(name: str) -> Trial:
    own = yaml.safe_load(path_of(name).read_text(encoding="utf-8"))
    named = {"settings": "choices", "files": "of_host", "old_files": "of_old"}
    beside = tuple(setting(**one) for one in own.pop("beside", ()))
    return Trial(name, beside=beside, **{named.get(key, key): part for key, part in own.items()})


def any_of(kind: str, target: Mapping[str, str], values: list[Any], **more: Any) -> Settings:
    """A setting with one of these values."""
    return st.sampled_from(values).flatmap(lambda value: bounded(kind, target, value, **more))


def bounded(kind: str, target: Mapping[str, str], value: Any, **more: Any) -> Settings:
    """With ``only`` where a value is made of numbers."""
    parts = value.values() if isinstance(value, dict) else value.split()
    numbers = KINDS[kind].ordered and all(str(part).isdigit() for part in parts)
    only = st.sampled_from([None, "raise", "lower"] if numbers else [None])
    return only.map(lambda word: setting(kind, dict(target), value, only=word, **more))


def of_queues(*words: str) -> Callable[[Build], st.SearchStrategy[Any]]:
    """For the queues of eth0: a word, or CPUs that the machine has."""

    def values(build: Build) -> st.SearchStrategy[Any]:
        cpus = st.sampled_from(sorted(build.machine.online))
        some = st.sets(cpus, min_size=1, max_size=6).map(format_cpus)
        # What a host has that was changed by hand.
        return st.sampled_from((*words, "0-1")) | some

    return values


def of_card(
    parts: Callable[[Card], Mapping[str, st.SearchStrategy[Any]]], unknown: str = "rx"
) -> Callable[[Build], st.SearchStrategy[Any]]:
    """Parts that a card's driver knows; an ``unknown`` one where it knows none."""

    def values(build: Build) -> st.SearchStrategy[Any]:
        known = dict(parts(build.card())) or {unknown: st.just(8)}
        return st.fixed_dictionaries({}, optional=known).filter(bool)

    return values


def _channels(card: Card) -> Mapping[str, Any]:
    both = {name for name in card.most_channels if name != "combined"}
    named = set(card.most_channels) - both or both
    return {name: st.integers(1, card.most_channels[name]) for name in sorted(named)}


def _ring(card: Card) -> Mapping[str, Any]:
    return {side: st.integers(64, most) for side, most in card.most_ring.items()}


def _coalesce(card: Card) -> Mapping[str, Any]:
    size = st.integers(2, 1000)
    return {name: SWITCH if part in ("on", "off") else size for name, part in card.coalesce.items()}


def _features(card: Card) -> Mapping[str, Any]:
    names = (*SINGLE, "tcp-segmentation-offload")
    return {name: SWITCH for name in names if name not in card.fixed or name == "ntuple-filters"}


def _rss(card: Card) -> Mapping[str, Any]:
    other_key = st.just(card.rss.key[:-2] + "ee")
    return {
        "equal": st.integers(1, max(min(card.rings, card.rss.reach), 1)),
        "hfunc": st.sampled_from(card.rss.functions),
        # Nothing tells of a driver that refuses another one, as bnxt does.
        **({} if card.rss.key_fixed or not card.rss.key else {"key": other_key}),
        **{flow: st.sampled_from(("sd", "sdfn")) for flow in card.rss.free},
    }


ASKED: Mapping[str, Callable[[Build], st.SearchStrategy[Any]]] = {
    "nic.channels": of_card(_channels),
    "nic.ring": of_card(_ring),
    "nic.coalesce": of_card(_coalesce, "rx-usecs"),
    "nic.features": of_card(_features),
    "nic.rss": of_card(_rss),
    "nic.irq_affinity": of_queues(*POLICIES),
    "nic.rps": of_queues("others"),
    "nic.xps": of_queues("per_queue"),
}
"""Values that depend on what a host is made of."""
