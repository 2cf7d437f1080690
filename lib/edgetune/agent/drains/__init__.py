# SPDX-License-Identifier: Apache-2.0
"""What a host does to get no requests: a file here for each way, named as the drain driver is."""

import json
from importlib import import_module
from typing import Any, Dict, NamedTuple, Optional

from edgetune.agent.host import Host
from edgetune.agent.protocol import Failed, Refused, Request
from edgetune.agent.readings import first_number
from edgetune.agent.vocabulary.places import STATE


class Seen(NamedTuple):
    """How a host stands, as in `edgetune.net.traffic.driver.Server`; ``refuses`` is why a change
    would be refused, or ""."""

    withdrawn: str
    up: bool
    leaving: bool
    refuses: str


class Drain:
    """Takes this host out of traffic, and lets it in again.

    Each change is the same on a second call, and is there when the call returns. Failed where
    something did not work, Refused where a precondition does not hold.
    """

    def __init__(self, host: Host) -> None:
        self.host = host

    def look(self) -> Seen:
        """How this host stands now; nothing is changed."""
        raise NotImplementedError

    def withdraw(self) -> None:
        """Let no new client come, while sessions go on; a withdrawn host stays as it is."""
        raise NotImplementedError

    def isolate(self) -> None:
        """Let nothing come any more."""
        raise NotImplementedError

    def restore(self, withdrawn: str) -> None:
        """Let clients come; or with a word that ``look`` gave before, be withdrawn in that way."""
        raise NotImplementedError


class Note:
    """What a way remembers on this host, in one file, over boots.

    Its age goes by the uptime, since a clock may be set. After a boot it is as old as the boot:
    what had read the state has begun anew.
    """

    def __init__(self, host: Host, file: str) -> None:
        """``file`` is one of the agent's places, so that it goes with the agent."""
        self._host, self._file = host, file

    def read(self) -> Optional[Dict[str, Any]]:
        """What was written; None where nothing was. Failed where it cannot be read."""
        try:
            found = json.loads(self._host.kept(self._file)[0].decode())
            if isinstance(found, dict):
                return found
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, Refused, ValueError) as error:
            raise Failed(f"{self._file} is damaged: {error}") from None
        raise Failed(f"{self._file} is damaged: it holds no object")

    def write(self, **values: object) -> None:
        """Remember this, and when that was; durable when it returns."""
        moment = {"boot_id": self._host.boot_id, "uptime": self._uptime()}
        self._host.make_directory(STATE, 0o700)
        self._host.write(self._file, json.dumps({**values, **moment}).encode() + b"\n", 0o600)

    def forget(self) -> None:
        """Remember nothing."""
        self._host.remove(self._file)

    def age(self, note: Dict[str, Any]) -> float:
        """Seconds since it was written."""
        uptime, since = self._uptime(), note.get("uptime")
        same = note.get("boot_id") == self._host.boot_id
        return uptime - since if same and isinstance(since, (int, float)) else uptime

    def _uptime(self) -> float:
        seconds = first_number(self._host, "/proc/uptime")
        if seconds is None:
            raise Failed("this host does not tell its uptime")
        return seconds


DRAINS = ("bird", "flag")


def open_drain(host: Host, name: str, fields: Request) -> Drain:
    """One of DRAINS, with what the inventory has for it; BadRequest names a wrong field."""
    # A way that is not asked for is not compiled.
    made: Drain = import_module(f"edgetune.agent.drains.{name}").DRAIN(host, fields)
    fields.done()
    return made
