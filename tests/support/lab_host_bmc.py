# SPDX-License-Identifier: Apache-2.0
"""A small client for the BMCs of a lab: it reads configuration and inventory as the pack does."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable

import requests
import yaml

from edgetune.net.inventories.yaml import YamlInventory
from edgetune.site.config import read_config
from lab import pop


def directly(function: Callable[..., Any], *words: Any, **more: Any) -> Any:
    return function(*words, **more)


@contextmanager
def from_controller(home: Path) -> Iterator[Callable[..., Any]]:
    """What calls a function where the BMCs of a lab can be reached."""
    with ThreadPoolExecutor(1, initializer=pop.enter_controller, initargs=(home,)) as thread:

        def ask(function: Callable[..., Any], *words: Any, **more: Any) -> Any:
            return thread.submit(function, *words, **more).result(60)

        yield ask


class Bmc:
    """The BMC of a lab host, verified; `ask` calls a function where it can be reached."""

    def __init__(self, home: Path, host: str, ask: Callable[..., Any] = directly) -> None:
        config = read_config(yaml.safe_load((home / "edgetune.yaml").read_text()))
        bmc = YamlInventory(config.inventory).pop("lab1").host(host).bmc
        assert bmc is not None
        self._ask, self.address = ask, bmc.address
        login = yaml.safe_load(Path(config.bmc_credentials_file).read_text())[bmc.credentials]
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.verify = config.bmc_ca_file
        self._session.auth = (login["username"], login["password"])

    def __call__(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        answer = self._ask(self._session.request, method, self.address + path, json=body)
        answer.raise_for_status()
        return answer.json() if answer.content else {}

    @property
    def system(self) -> dict[str, Any]:
        members = self("GET", "/redfish/v1/Systems")["Members"]
        return dict(self("GET", members[0]["@odata.id"]))

    @property
    def events(self) -> list[str]:
        """The messages of its event log."""
        log = self("GET", self.system["LogServices"]["@odata.id"])["Members"][0]["@odata.id"]
        entries = self("GET", self("GET", log)["Entries"]["@odata.id"])["Members"]
        return [str(entry["Message"]) for entry in entries]

    def reset(self, kind: str) -> None:
        self("POST", self.system["Actions"]["#ComputerSystem.Reset"]["target"], {"ResetType": kind})

    def set(self, **attributes: str) -> None:
        bios = self("GET", self.system["Bios"]["@odata.id"])
        pending = bios["@Redfish.Settings"]["SettingsObject"]["@odata.id"]
        apply_time = {"ApplyTime": "OnReset"}
        self("PATCH", pending, {"Attributes": attributes, "@Redfish.SettingsApplyTime": apply_time})
