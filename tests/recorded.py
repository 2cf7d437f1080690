# SPDX-License-Identifier: Apache-2.0
"""Whole machines that others recorded; ``fixtures/redfish/README.md`` says who."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgetune.bmc.client import Answer, Client
from edgetune.bmc.payload import BmcError
from edgetune.bmc.system import find_system

MACHINES = Path(__file__).parent / "fixtures" / "redfish" / "machines"
NAMES = sorted(path.stem for path in MACHINES.glob("*.json"))
# Of several systems behind one BMC, the one to ask about.
SYSTEMS = {
    "hpe_cray_ex425": "Node0",
    "nvidia_dgxh100": "DGX",
    "nvidia_gb200": "System_0",
}


class Recorded(Client):
    """A conversation with a machine of a file; makers spell their links with and without a /.

    ``missing`` are the links asked for that lead to no page, and ``sent`` the changes, which are
    all refused.
    """

    def __init__(self, name: str) -> None:
        text = (MACHINES / f"{name}.json").read_text(encoding="utf-8")
        self.pages = {_spelt(link): data for link, data in json.loads(text).items()}
        self.missing: list[str] = []
        self.sent: list[tuple[str, str, Any]] = []
        self.root = self.pages["/redfish/v1"]
        self._ahead, self._took = {}, 1.0
        self.system = find_system(self, SYSTEMS.get(name, ""))

    def _find(self, link: str, lane: int = 0) -> Answer | None:
        data = self.pages.get(_spelt(link))
        if data is None:
            self.missing.append(link)
            return None
        return Answer(link, 200, {}, data)

    def change(
        self,
        method: str,
        link: str,
        body: Mapping[str, Any] | None = None,
        etag: str | None = None,
    ) -> Answer:
        self.sent.append((method, link, body))
        raise BmcError("refused", "a recording takes no change")


def _spelt(link: str) -> str:
    return link.partition("?")[0].rstrip("/").lower()
