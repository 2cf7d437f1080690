# SPDX-License-Identifier: Apache-2.0
"""Requests of our own, for a service that tells of no others: asked on the host, evenly over time,
and written down in a log of ours, which is read as any access log.

A process asks them, until that log is gone, or nobody has wanted one for ``PATIENCE``. Another
check gets another log, and so another process.
"""

import fcntl
import os
import time

from edgetune.agent.health import HealthCheck
from edgetune.agent.host import Host
from edgetune.agent.vocabulary.places import ACTIVE_LOG, ACTIVE_NOTE, STATE

EVERY = 0.25
"""Seconds from one request to the next: 240 a minute."""
PATIENCE = 900.0
MOST_BYTES = 1 << 20
"""Of the log, which is then emptied."""
FAILED = 599
"""The status of what was not answered well. Its time counts all the same."""


def start_asking(host: Host, check: HealthCheck) -> None:
    """From now on, unless a process of this host does so already."""
    host.make_directory(STATE, 0o700)
    asked = check.asked.encode()
    if not host.holds(ACTIVE_NOTE, asked):
        host.remove(ACTIVE_LOG)
    host.replace(ACTIVE_NOTE, asked, 0o600)
    with host.directory(STATE) as state:
        name = os.path.basename(ACTIVE_LOG)
        log = state.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        # The process shares this lock, and has it until its end.
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fork() == 0:
            _ask_alone(host, check, log)
    except BlockingIOError:
        pass
    finally:
        os.close(log)


def _ask_alone(host: Host, check: HealthCheck, log: int) -> None:
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        # The SSH connection goes on as long as somebody has its pipes.
        os.closerange(1, log)
        os.closerange(log + 1, 64)
        ask_until_unwanted(host, check, log)
    finally:
        os._exit(0)


def ask_until_unwanted(host: Host, check: HealthCheck, log: int) -> None:
    """One request after the other, each written to the open file ``log``."""
    began, due = time.time(), time.monotonic()
    while os.fstat(log).st_nlink and time.time() - max(began, _wanted_at(host)) < PATIENCE:
        # One that took long is followed by those that it kept back, but not by those of minutes.
        due = max(due, time.monotonic() - PATIENCE / 60) + EVERY
        time.sleep(max(0.0, due - time.monotonic()))
        sent = time.monotonic()
        status = FAILED if check.ask()[0] is None else 200
        if os.fstat(log).st_size > MOST_BYTES:
            os.ftruncate(log, 0)
        os.write(log, b"%d %.3f\n" % (status, 1000 * (time.monotonic() - sent)))


def _wanted_at(host: Host) -> float:
    """When a look last wanted them: other access logs may be read since."""
    try:
        return os.stat(host.real(ACTIVE_NOTE)).st_mtime
    except OSError:
        return 0.0
