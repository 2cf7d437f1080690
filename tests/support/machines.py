# SPDX-License-Identifier: Apache-2.0
"""Machines as data: what there is for the moves of `machine_moves`, and files of scenarios."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Callable

import pytest

from edgetune.agent.kinds import memory_watermarks, nic_irq_affinity
from tests.support.agent_nic import NicHost
from tests.support.agent_root import AgentRoot, NearRoot, near_root
from tests.support.appliers import Double
from tests.support.appliers.file import hosts
from tests.support.birds import CONSTANTS, IN_SERVICE, SOCKET, FakeBird
from tests.support.freebsd import RELEASES, freebsd_host
from tests.support.kernels import kernel_host
from tests.support.machine_freebsd import OnFreeBsd
from tests.support.machine_kernels import OnKernels
from tests.support.machine_moves import Moves
from tests.support.machine_traffic import OnBird, OnWeb
from tests.support.scenarios import read_scenarios


def _near(init: str) -> Callable[[Path, pytest.MonkeyPatch, ExitStack], AgentRoot]:
    def made(path: Path, patch: pytest.MonkeyPatch, stack: ExitStack) -> AgentRoot:
        patch.setattr(nic_irq_affinity, "PATIENCE", 0.1)
        return stack.enter_context(near_root(path, init, patch))

    return made


def _large(path: Path, patch: pytest.MonkeyPatch, stack: ExitStack) -> NearRoot:
    """256 GiB on two nodes, the second of which has the less."""
    patch.setattr(memory_watermarks, "PAUSE", 0)
    root: Any = NearRoot(path)
    root.patch, root.programs = patch, None
    gib = 1 << 20
    root.write("proc/meminfo", f"MemTotal: {256 * gib} kB\n")
    for node, size in enumerate((160, 96, 0)):
        text = f"Node {node} MemTotal:       {size * gib} kB\nNode {node} MemFree:  7 kB\n"
        root.write(f"sys/devices/system/node/node{node}/meminfo", text)
    for name, text in (("min_free_kbytes", "67584"), ("watermark_scale_factor", "10")):
        root.write(f"proc/sys/vm/{name}", f"{text}\n")
    return root


def _nic(path: Path, patch: pytest.MonkeyPatch, stack: ExitStack) -> NicHost:
    return NicHost(path, patch=patch)


def _web(path: Path, patch: pytest.MonkeyPatch, stack: ExitStack) -> NearRoot:
    double = stack.enter_context(hosts(path.parent))
    host: Any = double.root
    host.web = double
    return host


def _untreated(path: Path, patch: pytest.MonkeyPatch, stack: ExitStack) -> NearRoot:
    """A host that is asked for nothing that an applier does."""
    host: Any = NearRoot(path)
    host.web = Double(host)
    host.web.name = "routes"
    return host


def _bird(path: Path, patch: pytest.MonkeyPatch, stack: ExitStack) -> NearRoot:
    # The path of a socket has 107 characters at most.
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    host: Any = NearRoot(Path(folder))
    host.write(CONSTANTS, IN_SERVICE)
    host.bird = stack.enter_context(closing(FakeBird(host.path / SOCKET, host.path / CONSTANTS)))
    host.bird.state.update(anycast6="up", anycast6_leaving="down")
    return host


MACHINES: dict[str, Callable[[Path, pytest.MonkeyPatch, ExitStack], Any]] = {
    "sysv": _near("sysv"),
    "systemd": _near("systemd"),
    "other": _near("other"),
    "large": _large,
    "nic": _nic,
    "web": _web,
    "untreated": _untreated,
    "bird": _bird,
    **{
        name: lambda path, patch, stack, release=release: stack.enter_context(
            freebsd_host(path, release)
        )
        for name, release in zip(("freebsd13", "freebsd", "freebsd12"), (*RELEASES, "12.4-RELEASE"))
    },
    **{
        name: lambda path, patch, stack, name=name: stack.enter_context(kernel_host(path, name))
        for name in ("grub", "grub_bls", "systemd_boot")
    },
}


MOVES: dict[str, type[Moves]] = {
    **dict.fromkeys(("freebsd13", "freebsd", "freebsd12"), OnFreeBsd),
    **dict.fromkeys(("grub", "grub_bls", "systemd_boot"), OnKernels),
    **{"web": OnWeb, "untreated": OnWeb, "bird": OnBird},
}


def play(machine: str, moves: list[dict[str, Any]], folder: Path, patch: Any) -> None:
    """Play moves upon such a machine; ``each`` in the first has what names stand for."""
    with ExitStack() as stack:
        host = MACHINES[machine](folder / "host", patch, stack)
        own = MOVES.get(machine, Moves)(host, patch)
        own.names = moves[0].pop("each", {})
        own.play(moves)


def machines(folder: Path) -> Iterator[Any]:
    """The scenarios of the files of a folder, each for each of the machines that its file names."""
    for file in sorted(folder.glob("*.yaml")):
        known = read_scenarios(file)
        usual, of_all = known.pop("machine"), known.pop("marks", "")
        for sentence, moves in known.items():
            named = f"{of_all} {moves[0].pop('marks', '')}".split()
            marks = [getattr(pytest.mark, name) for name in named]
            for machine in moves[0].pop("machine", usual).split():
                name = f"{file.stem} {machine}: {sentence}"
                for own in _each(moves):
                    more = ", ".join(map(str, own[0].get("each", {}).values()))
                    yield pytest.param(machine, own, id=f"{name} {more}".strip(), marks=marks)


def _each(moves: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The moves, once for each of the values that names of the first one stand for."""
    first, *rest = moves
    columns = first.get("each")
    for row in zip(*columns.values()) if columns else [()]:
        yield [{**first, "each": dict(zip(columns or (), row))}, *rest]
