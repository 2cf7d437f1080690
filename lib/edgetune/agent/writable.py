# SPDX-License-Identifier: Apache-2.0
"""Whether a host can take the files that a tuning needs; nothing is written to find out."""

import os
from typing import List, Optional, Sequence

from edgetune.agent.host import LOCK, Host
from edgetune.agent.journal import Head, Journal, Journals
from edgetune.agent.kinds import HANDLERS
from edgetune.agent.kinds.base import hook_files
from edgetune.agent.observe import Row
from edgetune.agent.protocol import Unsupported
from edgetune.agent.vocabulary.places import STATE


def refuse_unwritable(host: Host, rows: Sequence[Row], head: Head) -> None:
    """Let each row that is to be changed say why a file that this needs cannot be written."""
    changing = [row for row in rows if row.status == "change"]
    if not changing:
        return
    always = [f"{STATE}/tunings/{head.tuning}.json", LOCK, *hook_files(host)]
    common = _first_problem(host, always)
    journal = Journal(head, Journals(host).next_sequence())
    for row in changing:
        row.problem = common or _first_problem(host, _files_of(host, journal, row))


def _files_of(host: Host, journal: Journal, row: Row) -> List[str]:
    if not row.stored_differs:
        return []
    try:
        return list(HANDLERS.on(host, row.setting.kind).files(journal, [row.to_be_set]))
    except Unsupported:
        return []


def _first_problem(host: Host, files: Sequence[str]) -> Optional[str]:
    problems = (why_not_writable(host, name) for name in files)
    return next(filter(None, problems), None)


def why_not_writable(host: Host, file: str) -> Optional[str]:
    """Why a file, with the directories it needs, cannot be made or replaced; None if it can."""
    directory, name = os.path.split(file)
    while True:
        try:
            with host.directory(directory) as opened:
                return opened.why_not_writable(name)
        except (FileNotFoundError, NotADirectoryError):
            if host.exists(directory):
                return f"{directory} is not a directory"
            directory, name = os.path.dirname(directory), ""
        except OSError as error:
            return error.strerror
