# SPDX-License-Identifier: Apache-2.0
"""A host that steers its own traffic, whose agent is asked to do so in this process."""

from __future__ import annotations

from typing import Any

from edgetune.agent.dispatch import answer
from tests.support.agent_root import AgentRoot, request


class Steered:
    """The host ``root``, steered ``by`` a drain with these fields, each of which can be another."""

    def __init__(self, root: AgentRoot, by: str, **fields: Any) -> None:
        self.root, self.by, self.fields = root, by, fields

    def ask(self, do: str = "look", word: str = "", **more: Any) -> dict[str, Any]:
        """The whole reply; ``more`` are fields of the drain, or else of the request."""
        asked = {"by": self.by, "do": do, "withdrawn": word, "ports": [80], "epoch": 1}
        asked["fields"] = {name: more.pop(name, own) for name, own in self.fields.items()}
        return answer(str(self.root.path), request("drain", **{**asked, **more}))

    def told(self, do: str = "look", word: str = "", **more: Any) -> dict[str, Any]:
        """The result of what goes well."""
        reply = self.ask(do, word, **more)
        assert reply["ok"], reply
        found: dict[str, Any] = reply["result"]
        return found

    def refused(self, do: str, **more: Any) -> str:
        """Why something does not."""
        reply = self.ask(do, **more)
        assert not reply["ok"], reply
        return str(reply["error"]["message"])
