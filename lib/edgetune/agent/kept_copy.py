# SPDX-License-Identifier: Apache-2.0
"""Runs the agent's copy on a host's disk; this very file is the ``agent.py`` there.

The text of the agent lies beside it, and what Python makes of that text. Python keeps nothing of a
file that it is to run: to compile the whole text again takes twice as long as Python itself.
"""

import gc
import os
import sys
from binascii import crc32
from importlib.util import MAGIC_NUMBER
from marshal import dumps, loads
from typing import Any, Dict

SOURCE, COMPILED = ".source", ".compiled"
"""What the names of both end with, after that of this file."""

PROGRAM = "edgetune-agent"
"""The text as a whole, among the modules that lie compiled."""

HEAD = len(MAGIC_NUMBER) + 8


def head(source: bytes, code: bytes) -> bytes:
    """For which Python and which text it is, and that it is whole."""
    sums = [crc32(part).to_bytes(4, "big") for part in (source, code)]
    return b"".join([MAGIC_NUMBER, *sums])


def dump(source: bytes, compiled: Dict[str, bytes]) -> bytes:
    """The file of what a text has compiled: each module marshalled, as a run needs few of them."""
    code = dumps(compiled)
    return head(source, code) + code


def load(name: str, source: bytes) -> Dict[str, bytes]:
    """What such a file holds for this Python and this text; nothing where that is not whole."""
    try:
        with open(name, "rb") as file:
            kept = file.read()
    except OSError:
        return {}
    found: Dict[str, bytes] = {}
    if kept[:HEAD] == head(source, kept[HEAD:]):
        found = loads(kept[HEAD:])
    return found


def run(name: str) -> None:
    """The agent whose text is kept for the file ``name``."""
    with open(name + SOURCE, "rb") as file:
        source = file.read()
    kept = load(name + COMPILED, source)
    program = loads(kept[PROGRAM]) if PROGRAM in kept else compile(source, PROGRAM, "exec")
    variables: Dict[str, Any] = {"__name__": "__main__", "source": source, "KEPT": kept}
    # A boot is over before there is much to be collected.
    gc.disable()
    try:
        exec(program, variables)
    except SystemExit as end:
        # Python would take everything down piece by piece, which is a tenth of a boot hook.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(end.code or 0))


if __name__ == "__main__":
    run(sys.argv[0])
