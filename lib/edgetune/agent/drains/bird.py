# SPDX-License-Identifier: Apache-2.0
"""A host that announces its service address by BIRD.

First it announces the address with the community GRACEFUL_SHUTDOWN (RFC 8326, 65535:0), by a second
protocol that is disabled otherwise and has the higher preference: routers prefer other hosts, and
still have a way to this one. Then both protocols are disabled, which withdraws the address.

BIRD gets the commands enable and disable, and no others. It is not restarted, and not reconfigured:
that enables again what a person has disabled. Since a boot forgets what was disabled, a constant
says it to the next BIRD, in a file that its configuration includes.
"""

import re
import socket
import time
from contextlib import closing
from typing import Any, Dict, List, NamedTuple, Optional

from edgetune.agent.drains import Drain, Note, Seen
from edgetune.agent.host import Host, decode
from edgetune.agent.protocol import Failed, Refused, Request
from edgetune.agent.vocabulary.grammar import DIRECTORY
from edgetune.agent.vocabulary.places import BIRD_NOTE

SECONDS = 10.0
MOST_BYTES = 4 << 20
READY, PROTOCOL, SYMBOL, DENIED, NO_MATCH = "0001", "1002", "1010", "8007", "8003"
_LAST = re.compile(rb"(?:^|\n)\d{4} [^\n]*\n\Z")


class Protocol(NamedTuple):
    """A row of ``show protocols``: ``state`` is up, start, stop, flush or down."""

    kind: str
    state: str
    established: bool


class Bird:
    """One conversation on its control socket. Failed where it does not answer as BIRD does.

    Each line of a reply begins with a code of four digits, and "-" where more follow, or with a
    space where the code of the line before holds. The last line has a space behind its code: so a
    reply that was cut off is known as one (BIRD 2 and 3, nest/cli.c and doc/reply_codes).
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._end = time.monotonic() + SECONDS
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(SECONDS)
            self._socket.connect(path)
            if READY not in self._reply():
                raise Failed(f"{path}: what answers there is not BIRD")
        except OSError as error:
            self.close()
            raise Failed(f"BIRD does not answer at {path}: {error.strerror or error}") from None
        except Failed:
            self.close()
            raise

    def close(self) -> None:
        """End the conversation."""
        self._socket.close()

    def protocols(self) -> Dict[str, Protocol]:
        """All of them, by name."""
        found = {}
        for line in self.ask("show protocols").get(PROTOCOL, []):
            words = line.split()
            if len(words) < 4:
                raise Failed(f"{self._path}: BIRD tells of a protocol: {line!r}")
            found[words[0]] = Protocol(words[1], words[3], "Established" in words[4:])
        return found

    def knows(self, symbol: str) -> bool:
        """Whether its configuration has a constant of that name."""
        lines = self.ask(f"show symbols {symbol}").get(SYMBOL, [])
        return any(line.split()[:2] == [symbol, "constant"] for line in lines)

    def refuses(self) -> str:
        """Why it would obey no command, or "": it is asked to disable what no protocol is called.

        BIRD looks at the rights of the socket first.
        """
        reply = self.ask('disable "edgetune asks"')
        if NO_MATCH in reply:
            return ""
        return f"BIRD at {self._path} obeys nothing: {_first(reply)}"

    def set(self, name: str, enabled: bool) -> None:
        """Enable or disable a protocol, and wait until that shows; Refused where it is denied."""
        reply = self.ask(f"{'enable' if enabled else 'disable'} {name}")
        if DENIED in reply:
            raise Refused(f"BIRD at {self._path}: {name}: {_first(reply)}")
        while True:
            protocol = self.protocols().get(name)
            if protocol is None:
                raise Failed(f"BIRD at {self._path} has no protocol {name}")
            if (protocol.state != "down") if enabled else (protocol.state == "down"):
                return
            if time.monotonic() > self._end:
                raise Failed(f"BIRD at {self._path}: {name} is {protocol.state}: {_first(reply)}")
            time.sleep(0.05)

    def ask(self, command: str) -> Dict[str, List[str]]:
        """The lines of its whole reply, by their codes."""
        try:
            self._socket.sendall(command.encode() + b"\n")
            return self._reply()
        except OSError as error:
            why = error.strerror or error
            raise Failed(f"BIRD at {self._path} does not answer {command!r}: {why}") from None

    def _reply(self) -> Dict[str, List[str]]:
        data = b""
        while not _LAST.search(data):
            left = self._end - time.monotonic()
            if left <= 0:
                raise Failed(f"BIRD at {self._path} did not answer in time")
            self._socket.settimeout(left)
            part = self._socket.recv(65536)
            if not part:
                raise Failed(f"BIRD at {self._path} ended in the middle of its answer")
            data += part
            if len(data) > MOST_BYTES:
                raise Failed(f"BIRD at {self._path} answers more than {MOST_BYTES >> 20} MiB")
        found: Dict[str, List[str]] = {}
        code = ""
        for line in decode(data).splitlines():
            begin = re.match(r"(\d{4})[- ]", line)
            code = begin.group(1) if begin else code
            found.setdefault(code, []).append(line[5:] if begin else line[1:])
        return found


def _first(reply: Dict[str, List[str]]) -> str:
    lines = [line.strip() for lines in reply.values() for line in lines]
    return next(filter(None, lines), "it says nothing")


GRACEFUL, WITHDRAWN = "graceful", "withdrawn"
CONSTANT = "EDGETUNE_DRAINED"
NAME = "[A-Za-z_][A-Za-z0-9_]{0,63}"
TEXT = f"define {CONSTANT} = {{}};\n"
_FILE = re.compile(rf"define {CONSTANT} = ([01]);\n")


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
        peers = self._peers or [name for name, protocol in known.items() if protocol.kind == "BGP"]
        return any(known[name].established for name in peers)

    def _since(self) -> float:
        """Seconds since it is announced with the community; "long ago" where others did that."""
        note = self._note.read()
        return self._wait if note is None else self._note.age(note)

    def _before(self) -> Dict[str, Any]:
        note = self._note.read() or {}
        before = note.get("before", {})
        if not isinstance(before, dict):
            raise Failed("the note of the drain is damaged: before is no object")
        return before

    def _remember(self, known: Dict[str, Protocol], anew: bool = False) -> None:
        """Which ones were enabled, written down once: never our own withdrawal. With ``anew`` the
        age of that note begins anew."""
        if anew or self._note.read() is None:
            enabled = {pair.plain: _is_on(known, pair.plain) for pair in self._pairs}
            self._note.write(before=self._before() or enabled)

    def _tell_boots(self, drained: bool) -> None:
        text = TEXT.format(int(drained)).encode()
        if not self.host.holds(self._file, text):
            self.host.write(self._file, text)

    def _boots_drained(self) -> Optional[str]:
        found = _FILE.fullmatch(self.host.kept(self._file)[0].decode("utf-8", "replace"))
        return found.group(1) if found else None

    def _refuse(self, bird: Bird) -> None:
        refuses = bird.refuses() or self._no_file(bird)
        if refuses:
            raise Refused(refuses)

    def _refuses(self, bird: Bird, how: str) -> str:
        refuses = bird.refuses() or self._no_file(bird)
        if not refuses and not how and self._boots_drained() == "1":
            return f"{self._file} says that this host is drained: a boot would withdraw it"
        return refuses

    def _no_file(self, bird: Bird) -> str:
        """Why a BIRD that starts would not learn that this host is drained, or ""."""
        form = TEXT.format(0).strip()
        try:
            if self._boots_drained() is None:
                return f"{self._file} has to be one line, {form!r}"
        except OSError as error:
            return f"{self._file} with the line {form!r} is not there: {error.strerror}"
        why = self.host.why_not_writable(self._file)
        if why:
            return f"{self._file} cannot be written: {why}"
        if not bird.knows(CONSTANT):
            return f"BIRD's configuration does not include {self._file}: a boot would announce"
        return ""


def _is_on(known: Dict[str, Protocol], name: str) -> bool:
    return known[name].state != "down"


DRAIN = BirdDrain
