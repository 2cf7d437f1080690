# SPDX-License-Identifier: Apache-2.0
"""A host whose web server reads a file of prefixes when it starts, and when it is told to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.agent_root import AgentRoot, NearRoot
from tests.support.appliers import Double, alone

FILE = "etc/web/prefixes.conf"
SETUP = "etc/edgetune/prefix_file.json"
COMMANDS: dict[str, Any] = {
    "file": f"/{FILE}",
    "check": ["web", "check"],
    "reload": ["web", "reload"],
    "seconds": 5,
}
PROGRAM = """\
#!/bin/sh
# stub/down: it does not run. stub/check, stub/reload: what a command does besides.
cd {path} || exit 9
echo "$1" >> stub/web.calls
[ ! -e "stub/$1" ] || . "stub/$1"
case $1 in
    check) ! grep -q bad etc/web/prefixes.conf || {{ echo "it is bad" >&2; exit 1; }} ;;
    reload) [ ! -e stub/down ] || exit 7; cat etc/web/prefixes.conf > stub/loaded ;;
esac
"""


class FileDouble(Double):
    """``stub/loaded`` is what the web server has in its memory."""

    name = "file"

    def __init__(self, root: AgentRoot) -> None:
        super().__init__(root)
        self.write_setup({})
        root.write(FILE, "")
        root.write("stub/loaded", "")
        root.write("stub/web.calls", "")
        root.write("etc/web/other.conf", "of somebody else\n")
        root.write("usr/local/sbin/web", PROGRAM.format(path=root.path)).chmod(0o755)
        # It is asked for the routes where nobody knows which applier stood.
        root.write("usr/local/sbin/ip", "#!/bin/sh\n").chmod(0o755)

    def write_setup(self, change: dict[str, Any]) -> Path:
        """What the host says, with some of it changed."""
        return self.root.write(SETUP, json.dumps({**COMMANDS, **change}))

    @property
    def file(self) -> str:
        """As it stands on the disk."""
        return self.root.read(FILE)

    @property
    def calls(self) -> list[str]:
        """The commands that were run so far."""
        return self.root.read("stub/web.calls").split()

    @property
    def treated(self) -> dict[str, str]:
        return treated_in(self.root.read("stub/loaded"))

    @property
    def others(self) -> object:
        return self.root.read("etc/web/other.conf")

    def fail(self) -> None:
        self.root.write("stub/check", "grep -q '# number' etc/web/prefixes.conf && exit 3\n")

    def be_somebody_elses(self) -> None:
        self.root.write(FILE, "# ours\n192.0.2.0/24 reno;\n")
        self.root.write("stub/loaded", "192.0.2.0/24 reno;\n")

    def boot(self) -> None:
        self.root.new_boot_id()
        self.root.run_hook()
        self.root.write("stub/loaded", self.file)


def treated_in(text: str) -> dict[str, str]:
    """The prefixes of a file, as a web server reads it."""
    return dict(re.findall(r"(?m)^([0-9a-f.:/]+) ([a-z]+);$", text))


@contextmanager
def hosts(folder: Path) -> Iterator[FileDouble]:
    """A host of that kind."""
    with alone(FileDouble(NearRoot(folder / "host"))) as double:
        yield double
