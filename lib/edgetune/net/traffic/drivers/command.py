# SPDX-License-Identifier: Apache-2.0
"""A program of the operator on the action runners."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

from edgetune.base import clock
from edgetune.base.errors import DrainError
from edgetune.base.fields import Field
from edgetune.base.files import load_json
from edgetune.base.sanitize import one_line
from edgetune.net.traffic.hook import HookDriver

_MOST_BYTES = 16 << 20
_MOST_SHOWN = 300


class Command(HookDriver):
    """A program of yours on every action runner, called as ``PROGRAM servers``,
    ``PROGRAM withdraw NAME``, ``PROGRAM isolate NAME`` and ``PROGRAM restore NAME [WORD]``. One
    that tells weights is called as ``PROGRAM weigh NAME WEIGHT``, too.

    No shell runs it. ``servers`` prints the document of a hook. An exit status other than 0 is a
    failure, and the last line on standard error says why.
    """

    fields = {
        "program": Field(
            "path of the program; two PoPs with the same program share their servers",
            example="/opt/stackstorm/edgetune/balancer",
            pattern=r"/[A-Za-z0-9_./-]+",
        )
    }
    advice = "let the program change servers"

    def __init__(self, program: str) -> None:
        self._where = self._program = program

    def _asked(self, deadline: float) -> object:
        return load_json(self._run(["servers"], deadline).decode("utf-8"))

    def _tell(
        self, do: str, server: str, withdrawn: str, deadline: float, weight: int | None
    ) -> None:
        word = withdrawn if weight is None else str(weight)
        self._run([do, server, *([word] if word else [])], deadline)

    def _run(self, words: list[str], deadline: float) -> bytes:
        try:
            process = subprocess.Popen(
                [self._program, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise DrainError(f"{self._where}: cannot be run: {error.strerror}") from None
        try:
            output, problem = process.communicate(timeout=max(0.0, deadline - clock.monotonic()))
        except BaseException as error:
            # What it started would go on, and change a server later.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                raise DrainError(f"{self._where} {words[0]}: did not end in time") from None
            raise
        if process.returncode:
            lines = problem.decode("utf-8", "replace").split("\n")
            last = next((line for line in reversed(lines) if line.strip()), "it says nothing")
            raise DrainError(
                f"{self._where} {words[0]}: exit status {process.returncode}: "
                f"{one_line(last)[:_MOST_SHOWN]}"
            )
        if len(output) > _MOST_BYTES:
            raise DrainError(f"{self._where} {words[0]}: tells more than {_MOST_BYTES >> 20} MiB")
        return output


DRIVER = Command
