# SPDX-License-Identifier: Apache-2.0
"""``textfile``: what a host tells node_exporter of itself."""

import os

from edgetune.agent.boot_hook import BootHook, Textfile
from edgetune.agent.host import Host
from edgetune.agent.kinds import probe_hook
from edgetune.agent.protocol import Json, Request, Unsupported
from edgetune.agent.vocabulary.grammar import DIRECTORY


def textfile(host: Host, request: Request) -> Json:
    """Keep the file ``edgetune.prom`` in the ``directory`` of this host; with "" no more.

    The boot hook writes it at each boot. ``missing`` says why the file is not there, and is "" when
    it is. That is no failure: on a host whose init is not known nothing is written, nor where there
    is no such directory.
    """
    directory = request.text("directory", f"({DIRECTORY})?")
    request.done()
    with host.lock():
        missing = _obstacle(host, directory) if directory else ""
        try:
            Textfile(host).keep("" if missing else directory)
            problem = BootHook(host).sync()
        except OSError as error:
            missing, problem = str(error), ""
        return {"missing": missing or problem}


def _obstacle(host: Host, directory: str) -> str:
    try:
        probe_hook(host)
    except Unsupported as why:
        return str(why)
    there = os.path.isdir(host.path(directory))
    return "" if there else f"this host has no directory {directory}"
