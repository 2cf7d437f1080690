# SPDX-License-Identifier: Apache-2.0
"""Asks many BMCs at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable

from edgetune.bmc.credentials import Login
from edgetune.config import Config
from edgetune.hosts.result import HostResult
from edgetune.inventory import Host


class Bmcs:
    """BMCs reached over Redfish, ``config.bmc_threads`` at a time."""

    def __init__(self, config: Config, credentials: Callable[[str], Login]) -> None:
        self._config, self._credentials = config, credentials

    def ask(
        self,
        hosts: Sequence[Host],
        verb: str,
        request: Callable[[Host], Mapping[str, Any]],
        timeout: float | None = None,
    ) -> dict[str, HostResult]:
        """Send ``verb`` to the BMC of every host; failures are data, not exceptions."""
        raise NotImplementedError
