# SPDX-License-Identifier: Apache-2.0
"""``plan``: what a tuning would do here."""

from edgetune.agent.host import Host
from edgetune.agent.journal import Head
from edgetune.agent.observe import observe_all, read_settings, refuse_unwritable
from edgetune.agent.protocol import DIGEST, TUNING, Json, Request


def run(host: Host, request: Request) -> Json:
    """What a tuning would do here; writes nothing at all."""
    tuning = request.text("tuning", TUNING)
    digest = request.text("digest", DIGEST)
    settings = read_settings(request)
    request.done()
    rows = observe_all(host, settings, tuning)
    refuse_unwritable(host, rows, Head(tuning, digest))
    shown = [dict(row.shown, status=row.status) for row in rows]
    return {"settings": shown}
