# SPDX-License-Identifier: Apache-2.0
"""What stands behind a hook in tests: servers in memory."""

from __future__ import annotations

from typing import Any

from tests.support.load_balancers import SERVERS

OUT, OFF = "out", "off"
"""Withdrawn, and isolated."""


class Hooked:
    """Servers, and a hook's answers to what it is told."""

    def __init__(self) -> None:
        self.withdrawn = dict.fromkeys(SERVERS, "")
        self.sessions = dict.fromkeys(SERVERS, 0)
        self.idle = dict.fromkeys(SERVERS, "")
        self.weights: dict[str, int | None] = dict.fromkeys(SERVERS, 100)
        self.denies = False

    def document(self) -> dict[str, Any]:
        """As edgetune reads it."""
        servers = [
            {"name": name, "withdrawn": word, "up": True, "sessions": self.sessions[name]}
            for name, word in self.withdrawn.items()
        ]
        for server in servers:
            server["idle"] = self.idle[server["name"]]
            server["weight"] = self.weights[server["name"]]
        return {"servers": servers, "refuses": "read only" if self.denies else ""}

    def do(self, do: str, server: str, word: str, weight: int | None = None) -> str:
        """Change a server, or say why not."""
        if self.denies:
            return "read only"
        if do == "weigh":
            self.weights[server] = weight
            return ""
        if word not in ("", OUT, OFF):
            return f"there is no {word}"
        self.withdrawn[server] = {"withdraw": OUT, "isolate": OFF, "restore": word}[do]
        return ""
