# SPDX-License-Identifier: Apache-2.0
"""Ends a lab together with the process that started it, however that process ends.

The starter holds the writing end of a pipe and never writes. The kernel closes that end with the
process, and the lab, which holds the reading end, then reads end of file. An exit handler would
not do: SIGKILL and `os._exit` run none.
"""

from __future__ import annotations

import os
import select
from pathlib import Path

_held: dict[Path, int] = {}


def hold(home: Path) -> int:
    """The reading end for the lab of `home`; this process holds the other end from now on."""
    let_go(home)
    reader, _held[home] = os.pipe()
    return reader


def let_go(home: Path) -> None:
    """Close the writing end, if this process holds one for `home`."""
    if home in _held:
        os.close(_held.pop(home))


def is_cut(reader: int) -> bool:
    """Whether the starter has ended, or has let go."""
    poll = select.poll()  # select() takes no descriptor above 1023
    poll.register(reader, select.POLLIN)
    return bool(poll.poll(0))
