# SPDX-License-Identifier: Apache-2.0
"""How each kind of setting is tried: each has a file in ``kinds``, with its ``TRIAL``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from edgetune.vocabulary.kinds import KINDS
from edgetune.vocabulary.values import format_cpus
from tests.support import agent_nic
from tests.support.agent_cpus import Machine
from tests.support.agent_nic import CARDS, Card, Make
from tests.support.agent_root import setting

MAKES = (*CARDS, agent_nic.veth)
MACHINES = (Machine(sockets=1, cores=4, threads=1), Machine(sockets=2, cores=4, threads=2))
ETH0 = {"interface": "eth0"}
NGINX = {"service": "nginx"}
CACHE = "/var/cache/nginx"

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
    the ``files`` (path and content), and is asked for ``settings``, a strategy for each target. A
    change is seen by the ``file`` that is written or the ``call`` of a program: patterns, where
    the change is more than a file that keeps it. ``beside`` are settings that it cannot do without.
    ``asks`` is what a request for it has to say beside the settings. Hosts of `Build` have Linux:
    kinds of FreeBSD have no ``settings``, and are tried in `tests/lib/hosts/agent/test_freebsd.py`.
    """

    target: Mapping[str, str]
    taken: list[Any]
    refused: list[Any]
    settings: Callable[[Build], list[Settings]]
    files: Callable[[Build], Mapping[str, str]] = field(default=lambda build: {})
    file: str = ""
    call: str = ""
    beside: tuple[Mapping[str, Any], ...] = ()
    asks: Mapping[str, Any] = field(default_factory=dict)


def path_of(name: str) -> Path:
    """Where the trial of a kind is."""
    return Path(__file__).with_name("kinds") / f"{name.replace('.', '_')}.py"


def trials() -> dict[str, Trial]:
    """Every trial that there is, in the order of application."""
    names = [name for name in KINDS if path_of(name).exists()]
    return {
        name: import_module(f"tests.support.kinds.{path_of(name).stem}").TRIAL for name in names
    }


def any_of(kind: str, target: Mapping[str, str], *values: Any) -> Settings:
    """A setting with one of these values."""
    return st.sampled_from(values).flatmap(lambda value: bounded(kind, target, value))


def bounded(kind: str, target: Mapping[str, str], value: Any) -> Settings:
    """With ``only`` where a value is made of numbers."""
    parts = value.values() if isinstance(value, dict) else value.split()
    numbers = KINDS[kind].ordered and all(str(part).isdigit() for part in parts)
    only = st.sampled_from([None, "raise", "lower"] if numbers else [None])
    return only.map(lambda word: setting(kind, dict(target), value, only=word))


def of_nginx(own: Settings) -> Settings:
    """The same, with a restart of nginx."""
    return own.map(lambda one: {**one, "restart": "nginx"})


def cpus_of(machine: Machine) -> st.SearchStrategy[str]:
    """Lists of CPUs that a machine has."""
    some = st.sets(st.sampled_from(sorted(machine.online)), min_size=1, max_size=6)
    # What a host has that was changed by hand.
    return st.just("0-1") | some.map(format_cpus)


def of_queues(kind: str, *words: str) -> Callable[[Build], list[Settings]]:
    """Settings of the queues of eth0: a word, or CPUs."""

    def settings(build: Build) -> list[Settings]:
        values = st.sampled_from(words) | cpus_of(build.machine)
        return [values.map(lambda value: setting(kind, ETH0, value))]

    return settings


def of_card(
    kind: str, parts: Callable[[Card], Mapping[str, st.SearchStrategy[Any]]], unknown: str = "rx"
) -> Callable[[Build], list[Settings]]:
    """Settings of parts that a card's driver knows; of an ``unknown`` one where it knows none."""

    def settings(build: Build) -> list[Settings]:
        known = dict(parts(build.card())) or {unknown: st.just(8)}
        value = st.fixed_dictionaries({}, optional=known).filter(bool)
        return [value.flatmap(lambda own: bounded(kind, ETH0, own))]

    return settings
