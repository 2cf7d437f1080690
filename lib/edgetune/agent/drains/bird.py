# SPDX-License-Identifier: Apache-2.0
"""A host that announces its service address by BIRD.

First it announces the address with the community GRACEFUL_SHUTDOWN (RFC 8326, 65535:0), by a second
protocol that is disabled otherwise and has the higher preference: routers prefer other hosts, and
still have a way to this one. Then both protocols are disabled, which withdraws the address.

BIRD is told to enable and disable, and nothing else. It is not restarted, and not reconfigured:
that enables again what a person has disabled. Since a boot forgets what was disabled, a constant
says it to the next BIRD, in a file that its configuration includes.
"""

import re
from contextlib import closing
from typing import Any, Dict, List, NamedTuple, Optional

from edgetune.agent.drains import Drain, Note, Seen
from edgetune.agent.drains.bird_control import Bird, Protocol
from edgetune.agent.host import Host
from edgetune.agent.protocol import Failed, Refused, Request
from edgetune.agent.vocabulary.grammar import DIRECTORY
from edgetune.agent.vocabulary.places import BIRD_NOTE
from edgetune.agent.writable import why_not_writable

GRACEFUL, WITHDRAWN = "graceful", "withdrawn"
CONSTANT = "EDGETUNE_DRAINED"
NAME = "[A-Za-z_][A-Za-z0-9_]{0,63}"
TEXT = f"define {CONSTANT} = {{}};\n"
_TOLD = re.compile(rf"define {CONSTANT} = ([01]);\n")


class Pair(NamedTuple):
    """The protocol that announces an address, and the one that does so with the community."""

    plain: str
    graceful: str


class BirdDrain(Drain):
    """The host is ``graceful`` while each address that it announces has the community, and
    ``withdrawn`` while it announces none.

    A note on the host holds which protocols were enabled before; these and no others come back.
    """

    def __init__(self, host: Host, fields: Request) -> None:
        super().__init__(host)
        texts = fields.texts("protocols") or []
        self._pairs: List[Pair] = []
        for index, text in enumerate(texts):
            if not re.fullmatch(f"{NAME}/{NAME}", text):
                raise fields.wrong(f"protocols[{index}]", "must be PROTOCOL/PROTOCOL")
            self._pairs.append(Pair(*text.split("/")))
        if not self._pairs:
            raise fields.wrong("protocols", "is empty")
        self._peers = fields.texts("peers") or []
        self._file = fields.text("file", DIRECTORY)
        self._wait = fields.seconds("wait")
        self._socket = fields.text("socket", DIRECTORY)
        self._note = Note(host, BIRD_NOTE)

    def look(self) -> Seen:
        with closing(self._bird()) as bird:
            known = bird.protocols()
            how = self._how(known)
            return Seen(
                how,
                up=self._is_heard(known),
                leaving=how == GRACEFUL and self._since() < self._wait,
                refuses=self._refuses(bird, how),
            )

    def withdraw(self) -> None:
        with closing(self._bird()) as bird:
            known = bird.protocols()
            if self._how(known):
                return
            self._refuse(bird)
            # What an order that was cut off left out is announced with the community from now on.
            self._remember(known, anew=True)
            for pair in self._pairs:
                # What a person has withdrawn is announced in no way.
                if _is_on(known, pair.plain):
                    bird.set(pair.graceful, True)

    def isolate(self) -> None:
        with closing(self._bird()) as bird:
            known = bird.protocols()
            if self._how(known) == WITHDRAWN:
                return
            self._refuse(bird)
            self._remember(known)
            # From here on a BIRD that starts announces nothing.
            self._tell_boots(True)
            self._disable_all(bird)

    def restore(self, withdrawn: str) -> None:
        if withdrawn not in ("", GRACEFUL, WITHDRAWN):
            raise Refused(f"{withdrawn!r} is no way in which BIRD withdraws a host")
        with closing(self._bird()) as bird:
            known = bird.protocols()
            self._refuse_missing(known)
            self._refuse(bird)
            if withdrawn == WITHDRAWN:
                self._disable_all(bird)
            else:
                self._enable_as_before(bird, known, withdrawn == GRACEFUL)
            self._tell_boots(False)
            self._note.forget()

    def _enable_as_before(self, bird: Bird, known: Dict[str, Protocol], gracefully: bool) -> None:
        before = self._before()
        on = [pair for pair in self._pairs if _is_on(known, pair.plain)]
        # Nothing of ours: whoever withdrew it, it is to serve. One that serves is left alone.
        back = [pair for pair in self._pairs if before.get(pair.plain)] or on or self._pairs
        if gracefully:
            # First: the plain ones would be announced alone for a moment.
            for pair in dict.fromkeys([*back, *on]):
                bird.set(pair.graceful, True)
        for pair in back:
            bird.set(pair.plain, True)
        if not gracefully:
            # Last: without this one the address would be away for a moment.
            for pair in self._pairs:
                bird.set(pair.graceful, False)

    def _disable_all(self, bird: Bird) -> None:
        # The plain ones first: they would be announced for a moment once the others are gone.
        for name in [pair.plain for pair in self._pairs] + [pair.graceful for pair in self._pairs]:
            bird.set(name, False)

    def _bird(self) -> Bird:
        return Bird(self.host.path(self._socket))

    def _how(self, known: Dict[str, Protocol]) -> str:
        self._refuse_missing(known)
        plain = [pair for pair in self._pairs if _is_on(known, pair.plain)]
        graceful = [pair for pair in self._pairs if _is_on(known, pair.graceful)]
        if not plain and not graceful:
            return WITHDRAWN
        return GRACEFUL if all(pair in graceful for pair in plain) else ""

    def _refuse_missing(self, known: Dict[str, Protocol]) -> None:
        names = [*(name for pair in self._pairs for name in pair), *self._peers]
        missing = [name for name in names if name not in known]
        if missing:
            raise Failed(f"BIRD has no protocol {', '.join(missing)}")

    def _is_heard(self, known: Dict[str, Protocol]) -> bool:
        """Whether a router hears this host: one of ``peers``, or any BGP session without them."""
        peers = self._peers or [name for name, own in known.items() if own.kind == "BGP"]
        return any(known[name].established for name in peers)

    def _since(self) -> float:
        """Seconds since it is announced with the community; "long ago" where others did that."""
        told = self._note.read()
        return self._wait if told is None else self._note.age(told)

    def _before(self) -> Dict[str, Any]:
        told = self._note.read() or {}
        before = told.get("before", {})
        if not isinstance(before, dict):
            raise Failed("the note of the drain is damaged: before is no object")
        return before

    def _remember(self, known: Dict[str, Protocol], anew: bool = False) -> None:
        """Which ones were enabled, written down once: never our own withdrawal. With ``anew`` the
        age of that note begins anew."""
        if anew or self._note.read() is None:
            own = {pair.plain: _is_on(known, pair.plain) for pair in self._pairs}
            self._note.write(before=self._before() or own)

    def _tell_boots(self, drained: bool) -> None:
        text = TEXT.format(int(drained)).encode()
        if not self.host.holds(self._file, text):
            self.host.write(self._file, text)

    def _told_boots(self) -> Optional[str]:
        found = _TOLD.fullmatch(self.host.kept(self._file)[0].decode("utf-8", "replace"))
        return found.group(1) if found else None

    def _refuse(self, bird: Bird) -> None:
        refuses = bird.refuses() or self._no_file(bird)
        if refuses:
            raise Refused(refuses)

    def _refuses(self, bird: Bird, how: str) -> str:
        refuses = bird.refuses() or self._no_file(bird)
        if not refuses and not how and self._told_boots() == "1":
            return f"{self._file} says that this host is drained: a boot would withdraw it"
        return refuses

    def _no_file(self, bird: Bird) -> str:
        """Why a BIRD that starts would not learn that this host is drained, or ""."""
        form = TEXT.format(0).strip()
        try:
            if self._told_boots() is None:
                return f"{self._file} has to be one line, {form!r}"
        except OSError as error:
            return f"{self._file} with the line {form!r} is not there: {error.strerror}"
        why = why_not_writable(self.host, self._file)
        if why:
            return f"{self._file} cannot be written: {why}"
        if not bird.knows(CONSTANT):
            return f"BIRD's configuration does not include {self._file}: a boot would announce"
        return ""


def _is_on(known: Dict[str, Protocol], name: str) -> bool:
    return known[name].state != "down"


DRAIN = BirdDrain
