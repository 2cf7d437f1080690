# SPDX-License-Identifier: Apache-2.0
"""What a step takes before it does anything, and what an answer of the agent takes on a host.

Each step of a workflow is a process, on StackStorm as in the local runner. A process imports what
its step imports and ends; the modules were compiled to bytecode before.

The agent travels with each request. On a host with a tuning it also lies compiled, which a request
makes use of (decision 3). Here the host is this machine, which is only read: the requests change
nothing, and the place of the compiled copy is a folder of its own. The programs that the agent asks
are in its figures, and the SSH server, which takes some 15 ms of the host beside it, is not.

Measured is CPU time, user and system; the first row is Python alone. All come in turn, in an order
drawn for each round.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Callable
from unittest import mock

from bench._served import ROOT
from bench._ssh_peers import request_text, run_program
from bench._table import BenchError, carry_out, count_chosen, measure, options, shown, spread, told
from edgetune.agent import bundle
from edgetune.agent.kept_copy import COMPILED
from edgetune.agent.vocabulary.places import AGENT
from edgetune.net.hosts.conversation import BOOTSTRAP

STEPS = ("set_rollout_state", "check_health", "sample_hosts")
# What the step imports late, once there is a host to ask.
LATE = {"sample_hosts": ", paramiko"}
VERBS: dict[str, dict[str, int]] = {"sample": {}, "diagnose": {"seconds": 0}}
COMPILING, FOUND = "agent, compiles its modules", "agent, finds them compiled"
COLUMNS = {"what": "{what}", "step or verb": "{of}", "CPU ms (median, min..max)": told("cpu_ms")}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status comes back."""
    parser = options(__doc__ or "")
    chosen, rounds = count_chosen(parser, arguments, "rounds", 20, quick=2, what="of each, ")
    show = shown("starts and answers of each: {rounds}", COLUMNS)
    return carry_out("start", chosen, lambda: run(rounds), show)


def run(rounds: int) -> dict[str, Any]:
    """The CPU time of each start and answer, in ms; BenchError where one fails."""
    with tempfile.TemporaryDirectory(prefix="edgetune-bench-") as place:
        peers: dict[tuple[str, str], Callable[[], None]] = {
            ("Python alone", "-"): partial(_start, "pass")
        }
        peers.update({("a step", step): partial(_start, _imports(step)) for step in STEPS})
        roots = {COMPILING: Path(place, "new"), FOUND: Path(place, "known")}
        for root in roots.values():
            _show_this_machine(root)
        _keep_compiled(Path(f"{roots[FOUND]}{AGENT}{COMPILED}"))
        for verb in VERBS:
            peers.update({(name, verb): partial(_answer, roots[name], verb) for name in roots})
        for peer in peers.values():
            peer()  # now all have found what they keep
        samples = measure({json.dumps(key): peers[key] for key in peers}, rounds, lambda: 0.0)
    figures = [
        {"what": what, "of": of, "cpu_ms": spread(1000 * one.cpu for one in found)}
        for (what, of), found in zip(peers, samples.values())
    ]
    return {"rounds": rounds, "figures": figures}


def _imports(step: str) -> str:
    code = f"import edgetune.report.action, edgetune.rollout.steps.{step}{LATE.get(step, '')}"
    return f"import sys; sys.path.insert(0, {str(ROOT / 'lib')!r}); {code}"


def _start(code: str) -> None:
    kept = {name: own for name, own in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=kept)
    if done.returncode:
        raise BenchError(f"{code}: {done.stderr.strip().splitlines()[-1:]}")


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
    command = [sys.executable, *shlex.split(BOOTSTRAP)[1:]]
    environment = {"EDGETUNE_ROOT": str(root)}
    document = request_text(verb, VERBS[verb])
    answer = json.loads(run_program(command, environment=environment, given=document))
    if not answer["ok"]:
        raise BenchError(f"{verb}: {answer['error']['message']}")


if __name__ == "__main__":
    sys.exit(main())
