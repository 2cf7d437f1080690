# SPDX-License-Identifier: Apache-2.0
"""Directories of configuration files, and the order in which they are read."""

import os
from typing import Dict, List, Sequence

from edgetune.agent.host import Host
from edgetune.agent.journal import Journal

_OURS = "# Kept by edgetune "


def header(journal: Journal) -> str:
    """The first line of every configuration file we write."""
    return f"{_OURS}for the tuning {journal.tuning}, digest {journal.digest}\n"


def without_header(text: str) -> str:
    """A configuration file of ours without what says that it is."""
    first, _, rest = text.partition("\n")
    return rest if first.startswith(_OURS) else text


def later(name: str, ours: str) -> bool:
    """Whether a configuration file is read after ours."""
    return os.path.basename(name) > os.path.basename(ours)


def drop_ins(host: Host, directories: Sequence[str]) -> List[str]:
    """The .conf files in the order they are read: by name, the first directory masks the next."""
    found: Dict[str, str] = {}
    for directory in directories:
        for name in host.names(directory):
            if name.endswith(".conf") and not name.startswith("."):
                found.setdefault(name, f"{directory}/{name}")
    return [found[name] for name in sorted(found)]
