# SPDX-License-Identifier: Apache-2.0
"""One simulated BMC behind its real server, and a plain client of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import requests

from lab.bmc import Machine, Service, serve
from lab.bmc.certificates import Certificates, make_certificates

USER, PASSWORD = "edgetune", "the password of the lab"
SESSIONS = "/redfish/v1/SessionService/Sessions"
HOME = {
    "dell": {"SnoopMode": "HomeSnoop"},
    "hpe": {"QpiSnoopConfig": "Standard"},
    "lenovo": {"Processors_SnoopPreference": "Home Snoop"},
    "ami": {"QPIS00A": "Home Snoop"},
}


class Bmc:
    """A machine, its URL, and a client that is logged in and follows no redirects."""

    def __init__(self, machine: Machine, url: str, authority: Path) -> None:
        self.machine = machine
        self.url = url
        self.authority = authority
        self.client = requests.Session()
        # The environment may name CAs of its own.
        self.client.trust_env = False
        self.client.verify = str(authority)

    @property
    def home(self) -> dict[str, str]:
        """The attributes of Home Snoop on this machine."""
        return HOME[self.machine.personality.name]

    def ask(
        self, method: str, path: str, body: Any = None, timeout: float = 60.0, **headers: str
    ) -> requests.Response:
        """`path`, or the name of a resource of the machine's personality."""
        path = self.machine.personality.paths.get(path, path)
        if method == "GET" and self.machine.personality.slashes:
            path = path.rstrip("/") + "/"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.request(
            method,
            self.url + path,
            json=body,
            headers=named,
            timeout=timeout,
            allow_redirects=False,
        )

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status_code == 200, (path, answer.text)
        return answer.json()

    def log_in(self, password: str = PASSWORD) -> requests.Response:
        login = {"UserName": USER, "Password": password}
        answer = self.ask("POST", SESSIONS, login)
        if answer.status_code == 201:
            self.client.headers["X-Auth-Token"] = answer.headers["X-Auth-Token"]
        return answer

    def patch(self, attributes: dict[str, Any], **headers: Any) -> requests.Response:
        """Set attributes for the next boot, as this vendor wants it."""
        personality = self.machine.personality
        body = dict(attributes) if personality.flat else {"Attributes": attributes}
        if personality.apply_times:
            body["@Redfish.SettingsApplyTime"] = {"ApplyTime": "OnReset"}
        if personality.needs_etag:
            headers = {"If_Match": "*", **headers}
        return self.ask("PATCH", "settings", body, **headers)

    def reset(self, kind: str = "ForceRestart") -> requests.Response:
        return self.ask("POST", "reset", {"ResetType": kind})

    def values(self, name: str = "bios") -> Any:
        """The attributes that a resource shows."""
        body = self.get(name)
        return body if self.machine.personality.flat else body["Attributes"]


def certificates(directory: Path) -> Certificates:
    return make_certificates(directory, ["127.0.0.1"])


@contextlib.contextmanager
def running(files: Certificates, personality: str = "dell", **options: Any) -> Iterator[Bmc]:
    """A BMC that somebody is logged in at."""
    machine = Machine("e000", personality, **options)
    service = Service(USER, PASSWORD)
    here = ("127.0.0.1", 0)
    server = serve({here[0]: machine}, here, files.certificate, files.key, service)
    bmc = Bmc(machine, f"https://127.0.0.1:{server.addresses[0][1]}", files.authority)
    try:
        bmc.log_in()
        yield bmc
    finally:
        bmc.client.close()
        server.close()
