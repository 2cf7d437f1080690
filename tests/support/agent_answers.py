# SPDX-License-Identifier: Apache-2.0
"""A whole answer of an agent to each verb, with the request that it is to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.cases import table

RESULTS: dict[str, dict[str, Any]] = table(Path(__file__).with_suffix(".yaml"))
ROW = {"runtime": "128", "persistent": None, "wanted": "4096", "reason": "differs"}
ROW["id"] = "sysctl:net.core.somaxconn"

_SETTINGS = {"settings": [{"id": row["id"]} for row in RESULTS["plan"]["settings"]]}
REQUESTS: dict[str, dict[str, Any]] = {verb: {} for verb in RESULTS}
REQUESTS.update(plan=_SETTINGS, verify=_SETTINGS, confirm=_SETTINGS, ready={"ready": False})
