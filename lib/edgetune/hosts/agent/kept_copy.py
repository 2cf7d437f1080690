# SPDX-License-Identifier: Apache-2.0
"""Runs the agent's copy on a host's disk; this very file is the ``agent.py`` there.

The text of the agent lies beside it, and what Python makes of that text. Python keeps nothing of a
file that it is told to run: to compile the whole text again takes twice as long as Python itself.
"""

import sys
from binascii import crc32
from importlib.util import MAGIC_NUMBER
from marshal import loads
from typing import Any, Dict

SOURCE, COMPILED = ".source", ".compiled"
"""What the names of both end with, after that of this file."""

PROGRAM = "edgetune-agent"
"""The text as a whole, among the modules that lie compiled."""

HEAD = len(MAGIC_NUMBER) + 8


def head(source: bytes, code: bytes) -> bytes:
    """For which Python and which text it is, and that it is whole."""
    sums = [crc32(own).to_bytes(4, "big") for own in (source, code)]
    return b"".join([MAGIC_NUMBER, *sums])


def load_compiled(name: str, source: bytes) -> Dict[str, Any]:
    """What a text has compiled before, with this Python; nothing where that is not whole."""
    try:
        with open(name, "rb") as file:
            kept = file.read()
    except OSError:
        return {}
    found: Dict[str, Any] = {}
    if kept[:HEAD] == head(source, kept[HEAD:]):
        found = loads(kept[HEAD:])
    return found


def run(name: str) -> None:
    """The agent whose text is kept for the file ``name``."""
    with open(name + SOURCE, "rb") as file:
        source = file.read()
    compiled = load_compiled(name + COMPILED, source)
    program = compiled.get(PROGRAM) or compile(source, PROGRAM, "exec")
    exec(program, {"__name__": "__main__", "source": source, "COMPILED": compiled})


if __name__ == "__main__":
    run(sys.argv[0])
