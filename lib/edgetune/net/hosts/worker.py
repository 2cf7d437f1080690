# SPDX-License-Identifier: Apache-2.0
"""The program of a worker (`workers`): it answers the questions of the process that began it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from edgetune.net.hosts.fleet import Fleet
from edgetune.net.hosts.workers import Ask, Question, load, write


def main() -> None:
    """Answer questions until there are no more."""
    # The process that we help gets Ctrl-C as well, and says when to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers, lock = os.fdopen(os.dup(1), "wb"), threading.Lock()
    os.dup2(2, 1)  # nothing else is written there

    def answer(ask: Ask, number: int, question: Question) -> None:
        result = ask(question)
        with lock:
            write(answers, (number, result))

    config, threads, ahead = load(sys.stdin.buffer)
    asking = Fleet(config).asking(threads if ahead > 1 else 0)
    with asking as ask, ThreadPoolExecutor(threads * ahead) as pool:
        write(answers, "up")
        with suppress(EOFError):
            while True:
                pool.submit(answer, ask, *load(sys.stdin.buffer))
        # Conversations that are under way end with us.
        os._exit(0)


if __name__ == "__main__":
    main()
