# SPDX-License-Identifier: Apache-2.0
"""What an answer takes on a host where the agent compiles its modules, and where they lie compiled.

The agent travels with each request. On a host with a tuning it also lies compiled, which a request
makes use of (decision 3). Here the host is this machine, which is only read: the requests change
nothing, and the place of the compiled copy is a folder of its own. Measured is the CPU time of the
process of the agent, user and system, with the programs that it asks. The SSH server, which takes
some 15 ms of the host beside it, is left out. All come in turn, in an order drawn for each round.
"""

from __future__ import annotations

import functools
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Callable
from unittest import mock

from bench._table import (
    BenchError,
    carry_out,
    count_chosen,
    cpu_figures,
    options,
    print_cpu_figures,
)
from edgetune import AGENT_PROTOCOL
from edgetune.agent import bundle
from edgetune.agent.kept_copy import COMPILED
from edgetune.agent.vocabulary.places import AGENT
from edgetune.net.hosts.conversation import BOOTSTRAP
from edgetune.net.hosts.fleet import packed

VERBS: dict[str, dict[str, int]] = {"sample": {}, "diagnose": {"seconds": 0}}
COMPILING, FOUND = "compiles its modules", "finds them compiled"
PYTHON = "Python alone"
NAMES = ("agent", "verb")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status comes back."""
    parser = options(__doc__ or "")
    chosen, rounds = count_chosen(parser, arguments, "rounds", 20, quick=2, what="of each, ")
    return carry_out("answer", chosen, lambda: run(rounds), show)


def run(rounds: int) -> dict[str, Any]:
    """The CPU time of each answer, in ms; BenchError where there is none."""
    with tempfile.TemporaryDirectory(prefix="edgetune-bench-") as place:
        roots = {COMPILING: Path(place, "new"), FOUND: Path(place, "known")}
        for root in roots.values():
            _show_this_machine(root)
        _keep_compiled(Path(f"{roots[FOUND]}{AGENT}{COMPILED}"))
        peers: dict[tuple[str, str], Callable[[], None]] = {(PYTHON, "-"): _start_python}
        for verb in VERBS:
            for name, root in roots.items():
                peers[name, verb] = functools.partial(_answer, root, verb)
        figures = cpu_figures(peers, rounds, NAMES)
    return {"benchmark": "answer", "rounds": rounds, "figures": figures}


def _show_this_machine(root: Path) -> None:
    """A root that shows what this machine has, with a folder of its own for the agent."""
    Path(f"{root}{AGENT}").parent.mkdir(parents=True)
    for there in Path("/").iterdir():
        if there.name not in ("var", "tmp"):
            (root / there.name).symlink_to(there)


def _keep_compiled(file: Path) -> None:
    source, modules = bundle.make(), bundle.modules()
    with mock.patch.multiple(bundle, received=source, modules_received=modules):
        file.write_bytes(bundle.compiled_copy(str(file)))


def _answer(root: Path, verb: str) -> None:
    document = {"protocol": AGENT_PROTOCOL, "verb": verb, **VERBS[verb]}
    done = subprocess.run(
        [sys.executable, *shlex.split(BOOTSTRAP)[1:]],
        input=packed(bundle.make()) + json.dumps(document).encode(),
        capture_output=True,
        check=False,
        env={**os.environ, "EDGETUNE_ROOT": str(root)},
    )
    if not done.stdout.startswith(b"{"):
        raise BenchError(f"{verb}: {done.stderr.decode().strip().splitlines()[-1:]}")
    answer = json.loads(done.stdout)
    if not answer["ok"]:
        raise BenchError(f"{verb}: {answer['error']['message']}")


def _start_python() -> None:
    subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)


def show(document: Mapping[str, Any]) -> None:
    print_cpu_figures(document, "answers", NAMES)


if __name__ == "__main__":
    sys.exit(main())
