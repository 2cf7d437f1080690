# SPDX-License-Identifier: Apache-2.0
"""Have hosts tell Prometheus their boots, and the tunings that stand on them."""

from __future__ import annotations

from typing import TypedDict

from edgetune.base.documents.host import Textfile
from edgetune.rollout.context import Context


class TextfilesResult(TypedDict):
    """How many hosts have the file, and by host why one has not."""

    written: int
    missing: dict[str, str]
    message: str


def write_textfiles(context: Context, pop: str) -> TextfilesResult:
    """Have every host of a PoP keep edgetune.prom in textfile_directory.

    The boot hook of a host writes the file anew at each boot, and its agent with each change of its
    tunings. Without textfile_directory the file and what keeps it are removed.
    """
    directory = context.config.textfile_directory
    hosts = context.inventory.pop(pop).hosts
    request = {"directory": directory}
    answers = context.fleet.ask(hosts, "textfile", lambda host: request).values()
    missing = {own.host: own.error or own.read(Textfile).missing for own in answers}
    missing = {host: why for host, why in missing.items() if why}
    written = len(hosts) - len(missing)
    done = f"{written} hosts keep {f'{directory}/edgetune.prom' if directory else 'none'}"
    lost = f"; not {', '.join(missing)}" if missing else ""
    return {"written": written, "missing": missing, "message": f"{done}{lost}"}
