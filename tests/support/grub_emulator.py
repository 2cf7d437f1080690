# SPDX-License-Identifier: Apache-2.0
"""What GRUB itself chooses: grub-emu runs a menu, and says which entry it boots.

``python -m tests.support.grub_emulator VERSION`` writes the choices of the grub-emu at hand into
``fixtures/grub_choices.json``, beside those of other versions.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support import ROOT

PROGRAM = os.environ.get("EDGETUNE_GRUB_EMU") or shutil.which("grub-emu") or ""
CHOICES = ROOT / "tests/fixtures/grub_choices.json"
HEAD = """\
set timeout=0
set menuentry_id_option=--id
export menuentry_id_option
load_env
set default="${saved_entry}"
"""
SECONDS = 20.0


def choose(menu: str, value: str) -> str:
    """The ``linux`` line of the entry that GRUB boots for a ``saved_entry``; "" for no kernel."""
    # It boots nothing, but tells which line it came to.
    told = re.sub(r"(?m)^(\s*)linux\s+(.*)$", r"\1echo 'CHOSEN \2 .'\n\1exit", menu)
    told = re.sub(r"(?m)^(\s*)fwsetup$", r"\1echo 'CHOSEN  .'\n\1exit", told)
    escaped = value.replace("\\", "\\\\")
    block = f"# GRUB Environment Block\nsaved_entry={escaped}\n".ljust(1024, "#")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "grub.cfg").write_text(HEAD + told)
        Path(folder, "grubenv").write_text(block)
        said = _run([PROGRAM, "-d", folder, "-m", "/dev/null"])
    found = re.search(r"CHOSEN (.*) \.\r", said)
    assert found, said
    return found.group(1).strip()


def _run(command: list[str]) -> str:
    """What a program says on a terminal, until it has chosen."""
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe(command[0], command, {**os.environ, "TERM": "xterm"})
    said, end = b"", time.monotonic() + SECONDS
    try:
        while time.monotonic() < end and not re.search(rb"CHOSEN .*\n", said):
            if select.select([terminal], [], [], 0.1)[0]:
                said += os.read(terminal, 65536)
    except OSError:
        pass
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(terminal)
    return said.decode(errors="replace")


def record(version: str) -> None:
    """Add the choices of this GRUB to the fixture."""
    known: dict[str, Any] = json.loads(CHOICES.read_text())
    for row in known["choices"]:
        row["boots"][version] = choose(known["menus"][row["menu"]], row["saved_entry"])
    rows = ",\n".join(f"  {json.dumps(row)}" for row in known.pop("choices"))
    head = json.dumps(known, indent=1)[:-2]
    CHOICES.write_text(f'{head},\n "choices": [\n{rows}\n ]\n}}\n')


if __name__ == "__main__":
    record(sys.argv[1])
