# SPDX-License-Identifier: Apache-2.0
"""``verify``: whether every setting is as wanted."""

import time
from typing import Dict, List, NamedTuple

from edgetune.agent.boot_hook import FOLLOWING
from edgetune.agent.host import Host
from edgetune.agent.journal import Journals
from edgetune.agent.observe import Row, observe_all, read_settings
from edgetune.agent.protocol import DIGEST, TUNING, Json, Request
from edgetune.agent.reachable import LINK_UP, RIGHT_NOW, lost_connections
from edgetune.agent.services import START_WAIT, awaited_state
from edgetune.agent.undo import way_back
from edgetune.agent.vocabulary.kinds import Setting


def run(host: Host, request: Request) -> Json:
    """Whether every setting is as wanted, now and after a boot, and the services run.

    ``way_back`` says what taking the tuning back will lead to; it is empty where there is none.
    """
    tuning = request.text("tuning", TUNING)
    request.optional("digest", DIGEST)
    settings = read_settings(request)
    request.done()
    journal = Journals(host).load(tuning)
    led = way_back(host, journal) if journal else {}
    way = {name: found and found._asdict() for name, found in led.items()}
    found = verify_settings(host, tuning, settings, RIGHT_NOW)
    return dict(found.document(), way_back=way)


class Verified(NamedTuple):
    """How a tuning stands: its journal's state, its settings, and the states of its services.

    ``lost`` says by peer how many connections it does not answer that it did before the change.
    """

    state: str
    rows: List[Row]
    services: Dict[str, str]
    lost: Dict[str, int]

    @property
    def verified(self) -> bool:
        """Whether all is well."""
        running = all(state == "active" for state in self.services.values())
        return running and not self.lost and all(map(self.is_well, self.rows))

    def is_well(self, row: Row) -> bool:
        """Whether a setting is as wanted; before its confirmation one boot has to have tried it."""
        return row.as_wanted or (self.state == "provisional" and row.holds_so_far)

    def document(self) -> Json:
        """For an answer."""
        return {
            "verified": self.verified,
            "state": self.state,
            "settings": [dict(row.shown, ok=self.is_well(row)) for row in self.rows],
            "services": self.services,
            "lost_connections": self.lost,
        }


def verify_settings(
    host: Host, tuning: str, settings: List[Setting], patience: float = LINK_UP
) -> Verified:
    """How a tuning stands; connections have so many seconds to be answered."""
    journal = Journals(host).load(tuning)
    named = [setting.restart for setting in settings if setting.restart]
    # Just after a boot a service may not have come up yet, and tells nothing of its properties.
    services = {name: awaited_state(host, name, START_WAIT) for name in dict.fromkeys(named)}
    # Just after a boot what needs its interface up may not be set again yet.
    end = time.monotonic() + START_WAIT
    while host.exists(FOLLOWING) and time.monotonic() < end:
        time.sleep(0.1)
    rows = observe_all(host, settings, tuning)
    lost = lost_connections(host, journal, patience) if journal else {}
    return Verified(journal.state if journal else "none", rows, services, lost)
