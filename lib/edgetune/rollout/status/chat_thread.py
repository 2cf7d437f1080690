# SPDX-License-Identifier: Apache-2.0
"""Where in chat a rollout tells how it gets on."""

from __future__ import annotations

import re
from contextlib import suppress

from edgetune.base.errors import EdgetuneError
from edgetune.base.fields import Fields
from edgetune.rollout.context import Context

_MESSAGE = r"[0-9]{1,20}[.][0-9]{1,9}"
"""The id of a message in Slack."""


def thread_of(context: Context, channel: str, execution: str) -> str:
    """``CHANNEL|MESSAGE`` where a message in that channel began the execution, else the channel.

    hubot hands StackStorm the message with what the execution is to be announced by
    (``source_context``). Slack has a thread for each message; other chats know no such ids.
    """
    api = context.stackstorm
    if not (channel and execution and api):
        return channel
    # Without an answer, or the right to ask, the channel does.
    with suppress(EdgetuneError):
        found = api.call("GET", f"/executions/{execution}?include_attributes=liveaction")
        told = Fields(found, "execution").inside("liveaction").inside("notify", {})
        asked = told.inside("on-complete", {}).inside("data", {})
        message = str(asked.inside("source_context", {}).raw("id", ""))
        if asked.raw("source_channel", "") == channel and re.fullmatch(_MESSAGE, message):
            return f"{channel}|{message}"
    return channel
