# SPDX-License-Identifier: Apache-2.0
"""Follows what the README and the page on installing have one type, from their blocks."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edgetune.base.files import load_yaml
from tests.support import ROOT
from tests.support.builders import write_yaml

PAGES = {"README.md": "Install", "docs/how-to/install.md": "Install the pack"}
"""Each with the heading of the part that is followed."""
HOME = "/opt/stackstorm"
DRY_RUN = "st2 run edgetune.rollout_pop pop=ams1 tuning=accept_queue"


def typed(page: str) -> Iterator[str]:
    """The commands of a page in order, and the dry run that comes after them."""
    text = (ROOT / page).read_text(encoding="utf-8")
    part = re.split(rf"^## {PAGES[page]}$", text, flags=re.MULTILINE)[1].partition("\n## ")[0]
    for block in re.findall(r"^```\n(.*?)^```$", part, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            yield re.sub(r"\s+#.*", "", line)
    if DRY_RUN not in part:
        assert f"{DRY_RUN} " in text
        yield DRY_RUN


class Newcomer:
    """Somebody who is root, has the keys of a ``lab``, and types lines of a page.

    What lies below ``/opt/stackstorm`` on a page lies below ``base``. The editor writes the
    inventory of the lab.
    """

    def __init__(self, folder: Path, base: Path, lab: Path) -> None:
        self.base, self._home = base, folder / "home"
        (self._home / ".ssh").mkdir(parents=True)
        for name in ("id_ed25519", "known_hosts"):
            (self._home / ".ssh" / name).write_bytes((lab / name).read_bytes())
            (self._home / ".ssh" / name).chmod(0o600)
        write_yaml(folder / "written.yaml", as_ams1(lab / "inventory.yaml"))
        self._tools = folder / "tools"
        self._tools.mkdir()
        for name, script in {"sudo": 'exec "$@"', "vi": f'cp {folder}/written.yaml "$1"'}.items():
            (self._tools / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
            (self._tools / name).chmod(0o755)

    def types(self, line: str) -> None:
        """A line of a page, as it stands but for the place of StackStorm."""
        path = f"{self._tools}:{os.environ['PATH']}"
        done = subprocess.run(
            ["sh", "-c", line.replace(HOME, str(self.base))],
            env={**os.environ, "HOME": str(self._home), "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"


def as_ams1(inventory: Path) -> Mapping[str, Any]:
    """The inventory of a lab, whose first PoP has the name that the pages use, and no BMCs."""
    document: Any = load_yaml(inventory)
    pop = next(iter(document["pops"].values()))
    pop.pop("bmc", None)
    for host in pop["hosts"].values():
        host.pop("bmc", None)
    return {"pops": {"ams1": pop}}
