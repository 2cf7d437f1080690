# SPDX-License-Identifier: Apache-2.0
"""What gives prefixes of clients a congestion control of their own: a file here for each way."""

import hashlib
import json
from importlib import import_module
from typing import Dict, List, NamedTuple

from edgetune.agent.host import Host


class Wanted(NamedTuple):
    """What new connections to a prefix are to have; ``initcwnd`` 0 is what they have without us."""

    prefix: str
    initcwnd: int


class Configuration(NamedTuple):
    """As it is sent (``documents.congestion.Configuration``)."""

    pop: str
    number: int
    algorithm: str
    ttl: int
    prefixes: List[Wanted]
    applier: str
    checksum: str

    @property
    def sum(self) -> str:
        """The checksum that it should have."""
        body = dict(self._asdict(), prefixes=[dict(wanted._asdict()) for wanted in self.prefixes])
        del body["checksum"]
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return "sha256:" + hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


class Applier:
    """Gives prefixes of clients a congestion control of their own, and takes it from them.

    Only what is ours is ever changed. Failed where something did not work, Refused where a
    precondition does not hold. Another ``set``, or ``flush``, mends what a failed one left.
    """

    name = ""

    def __init__(self, host: Host) -> None:
        self.host = host

    def probe(self, configuration: Configuration) -> None:
        """Refused where this host cannot have it, or could not take it back; changes nothing."""
        raise NotImplementedError

    def refuse_strangers(self) -> None:
        """Refused where something that is not ours would be lost."""
        raise NotImplementedError

    def state(self) -> str:
        """What is another text whenever ``set`` may have something to do, and costs little."""
        raise NotImplementedError

    def set(self, configuration: Configuration) -> Dict[str, str]:
        """Treat these prefixes and no others, and read it back.

        It is the same on a second call. Prefixes that cannot be treated come back, each with the
        reason.
        """
        raise NotImplementedError

    def flush(self) -> None:
        """Treat no prefix any more; nothing happens where none is."""
        raise NotImplementedError


APPLIERS = ("routes", "file")


def applier(host: Host, name: str) -> Applier:
    """One of APPLIERS; a way that is not asked for is not compiled."""
    made: Applier = import_module(f"{__name__}.{name}").APPLIER(host)
    return made
