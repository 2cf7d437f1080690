# SPDX-License-Identifier: Apache-2.0
"""Moves upon hosts whose congestion control, or whose announcement, is steered."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

import pytest

from edgetune.agent.appliers import applier
from edgetune.agent.appliers.file import HEAD
from edgetune.agent.congestion import Congestion
from edgetune.agent.host import Host
from edgetune.agent.vocabulary.places import PREFIX_FILE_NOTE
from tests.support.agent_root import until
from tests.support.appliers import CHOSEN
from tests.support.birds import CONSTANTS, PAIR, SOCKET
from tests.support.machine_moves import Moves
from tests.support.steered import Steered


class OnWeb(Moves):
    """Moves upon a host on which an applier treats prefixes; ``web`` is its double."""

    def __init__(self, host: Any, patch: pytest.MonkeyPatch) -> None:
        super().__init__(host, patch)
        self.web, self._held = host.web, ExitStack()

    def play(self, moves: list[dict[str, Any]]) -> None:
        with self._held:
            super().play(moves)

    def _configuration(self, told: dict[str, Any]) -> dict[str, Any]:
        change = told.pop("change", {})
        chosen = CHOSEN[: told.pop("prefixes", 2)]
        return {**self.web.configuration(chosen, **told), **change}

    def tells(self, told: dict[str, Any]) -> None:
        self.let_go(None)
        self.result = self.web.tell(self._configuration(told))

    def not_told(self, told: dict[str, Any]) -> None:
        """The refusal of a configuration: its reason, its field and its message."""
        self.result = {"message": self.web.refusal(self._configuration(told))}

    def setup(self, change: dict[str, Any]) -> None:
        """What the host says of its web server, with some of it changed."""
        self.web.write_setup(change)

    def hold(self, _: object) -> None:
        """The keeper does nothing until ``let_go``."""
        self._held.enter_context(Host(str(self.host.path)).lock())

    def let_go(self, _: object) -> None:
        self._held.close()

    def keeps(self, _: object) -> None:
        """The keeper looks."""
        assert Congestion(Host(str(self.host.path))).keep() > 0, self.where

    def flush(self, _: object) -> None:
        applier(Host(str(self.host.path)), self.web.name).flush()

    def unsettled(self, _: object) -> None:
        """The agent was killed before the reload."""
        name = PREFIX_FILE_NOTE[1:]
        told = json.loads(self.host.read(name))
        assert told["settled"] is True, self.where
        self.host.write(name, json.dumps({**told, "settled": False, "text": HEAD}))

    def mark_web(self, _: object) -> None:
        self._web = self.web.file, self.web.treated

    def web_as_marked(self, _: object) -> None:
        seen = self.web.file, self.web.treated
        assert seen == self._web, f"{self.where}: {seen}"

    @property
    def bare(self) -> bool:
        """Whether nothing but its head is in the file."""
        return bool(self.web.file == HEAD)

    def soon(self, facts: dict[str, Any]) -> None:
        """Facts that come true in a while, by what the keeper does."""

        def there() -> bool:
            try:
                self.then(facts)
            except AssertionError:
                return False
            return True

        assert until(there, 20) or self.then(facts) is None


class OnBird(Moves):
    """Moves upon a host that announces two addresses by a BIRD in memory, ``fake``."""

    def __init__(self, host: Any, patch: pytest.MonkeyPatch) -> None:
        super().__init__(host, patch)
        self.fake = host.bird
        pairs = [PAIR, "anycast6/anycast6_leaving"]
        fields = {"protocols": pairs, "peers": [], "wait": 30}
        fields.update(file=f"/{CONSTANTS}", socket=f"/{SOCKET}")
        self._steered_by = Steered(host, "bird", **fields)

    def _asked(self, do: str) -> dict[str, Any]:
        self.fake.told.clear()
        return self._steered_by.ask(do, **self.move.pop("with", {}))

    def bird(self, do: str) -> None:
        self._take(self._asked(do), "result")

    def no_bird(self, do: str) -> None:
        self._take(self._asked(do), "error")

    def announces(self, names: str) -> None:
        """The enabled protocols that announce an address."""
        up = {name for name, state in self.fake.state.items() if state == "up"}
        self._compare("on", " ".join(sorted(n for n in up if "anycast" in n)), names)

    def drained(self, expected: bool) -> None:
        """What the constant says for the next boot."""
        self.reads({CONSTANTS: f"define EDGETUNE_DRAINED = {expected:d};"})

    def heard(self, verbs: str) -> None:
        self._compare("heard", " ".join(sorted({t.split()[0] for t in self.fake.told})), verbs)

    def ordered(self, expected: str) -> None:
        """The changes, in order."""
        told = [line for line in self.fake.told if '"' not in line]
        own = [line for line in told if line.split()[0] in ("enable", "disable")]
        self._compare("ordered", " ".join(own), expected)

    def refuses_bird(self, why: str) -> None:
        """The host says so before, and when it is asked; nothing is changed."""
        before = dict(self.fake.state)
        self.bird("look")
        self._compare("refuses", self.result["refuses"], why)
        for do in ("withdraw", "isolate"):
            self.no_bird(do)
            self._compare("message", self.result["message"], why)
        assert self.fake.state == before, self.where
        self.lacks("var/lib/edgetune/drain-bird.json")
