# SPDX-License-Identifier: Apache-2.0
"""A file of prefixes, for a web server that sets the congestion control of responses itself.

The file is one that nginx includes in a block ``geo``: a prefix and its value in each line. This
host says in SETUP where it is, and how the web server checks and reloads it. No message of a
controller says so.
"""

import contextlib
import json
import os
import stat
from typing import Dict, List, NamedTuple, Optional, Sequence

from edgetune.agent.appliers import Applier, Configuration
from edgetune.agent.host import Host
from edgetune.agent.kinds import probe_hook
from edgetune.agent.protocol import (
    AgentError,
    BadRequest,
    Failed,
    Refused,
    Request,
    Unsupported,
    complaint,
    shortened,
)
from edgetune.agent.vocabulary.grammar import DIRECTORY
from edgetune.agent.vocabulary.places import PREFIX_FILE_NOTE as NOTE
from edgetune.agent.vocabulary.places import PREFIX_FILE_SETUP as SETUP

HEAD = "# edgetune writes this file: prefixes of clients, and the congestion control of each.\n"
"""The first line. A file without prefixes has no other: the web server goes on to include it."""

ALLOWED = "/proc/sys/net/ipv4/tcp_allowed_congestion_control"
MOST_SECONDS = 15
"""Of one command. An answer waits for six at most, and the controller for 120 s."""

_SECONDS = 10
_MOST_SAID = 400
_MOST_WORDS = 20
_PROGRAM = "[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_WORD = "[ -~]{1,200}"


class Setup(NamedTuple):
    """What this host says: the file, and the commands that check and reload it."""

    file: str
    check: Sequence[str]
    reload: Sequence[str]
    seconds: int


class Written(NamedTuple):
    """What the web server took last: the text of a file, in a boot.

    It is written before the file changes, without ``settled`` until the web server took that.
    """

    file: str
    text: str
    settled: bool
    boot_id: str


class File(Applier):
    """A file that the web server reads; what it does not take is never left there."""

    name = "file"

    def probe(self, configuration: Configuration) -> None:
        setup = read_setup(self.host)
        if not self.host.exists(os.path.dirname(setup.file)):
            raise Refused(f"{SETUP}: file: there is no directory {os.path.dirname(setup.file)}")
        _refuse_strangers_of(self.host, setup.file)
        for command in (setup.check, setup.reload):
            if self.host.program(command[0]) is None:
                raise Refused(f"{SETUP}: there is no program {command[0]}")
        if any(wanted.initcwnd for wanted in configuration.prefixes):
            raise Refused("a web server sets no initial window, so a file of prefixes has none")
        name = configuration.algorithm
        if name not in self.host.text(ALLOWED).split():
            raise Refused(f"{ALLOWED} has no {name}: the web server may not choose it")
        try:
            # The file is still there after a boot.
            probe_hook(self.host)
        except Unsupported as error:
            raise Refused(f"a boot would not take the file back: {error}") from None

    def refuse_strangers(self) -> None:
        _refuse_strangers_of(self.host, read_setup(self.host).file)

    def state(self) -> str:
        """What stands in the files that it is made of."""
        found = [self.host.text(SETUP), self.host.text(NOTE)]
        with contextlib.suppress(AgentError):
            found.append(self.host.text(read_setup(self.host).file))
        return "\n".join(found)

    def set(self, configuration: Configuration) -> Dict[str, str]:
        """Have this file, which the web server checked and reloaded.

        Failed when it did not; then the file is what it was before, and the web server reloads
        that.
        """
        setup, text, was = read_setup(self.host), text_of(configuration), self._written()
        if was is not None and was.file != setup.file:
            self._clear(was.file)
        _refuse_strangers_of(self.host, setup.file)
        is_there = self.host.holds(setup.file, text.encode())
        if is_there and was is not None and was.settled and was[:2] == (setup.file, text):
            return {}
        before = was.text if was is not None and was.file == setup.file else HEAD
        try:
            self._tell(setup, text, before)
        except (AgentError, OSError):
            # What it does not take either is left for the next ``set``, as it is not settled.
            if before != text:
                with contextlib.suppress(AgentError, OSError):
                    self._tell(setup, before, before)
            raise
        return {}

    def flush(self) -> None:
        was = self._written()
        files = {was.file} if was is not None else set()
        with contextlib.suppress(Refused):
            files.add(read_setup(self.host).file)
        cleared = [file for file in files if self._clear(file)]
        if was is not None and not self.host.exists(was.file):
            # The web server goes on to include it, and takes nothing without.
            self.host.write(was.file, HEAD.encode())
        # Before its services start, nobody has read what the boot before left.
        emptied = was.settled and was.text == HEAD if was else not self.host.exists(NOTE)
        starts = self.host.booting and (was is None or was.boot_id != self.host.boot_id)
        if not starts and (cleared or not emptied):
            _reload(self.host, read_setup(self.host))
        self.host.remove(NOTE)

    def _written(self) -> Optional[Written]:
        """None where nobody knows what the web server has."""
        try:
            return Written(**json.loads(self.host.kept(NOTE)[0].decode()))
        except (OSError, Refused, ValueError, TypeError):
            return None

    def _tell(self, setup: Setup, text: str, before: str) -> None:
        boot_id = self.host.boot_id
        self._remember(Written(setup.file, before, False, boot_id))
        self.host.write(setup.file, text.encode())
        _reload(self.host, setup)
        if not self.host.holds(setup.file, text.encode()):
            raise Failed(f"{setup.file} is not what was written there")
        self._remember(Written(setup.file, text, True, boot_id))

    def _remember(self, written: Written) -> None:
        self.host.write(NOTE, json.dumps(written._asdict()).encode() + b"\n", 0o600)

    def _clear(self, file: str) -> bool:
        """Leave no prefix in a file; False if it is not ours, or has none."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, Refused):
            text = self.host.kept(file)[0]
            if text.startswith(HEAD.encode()) and text != HEAD.encode():
                self.host.write(file, HEAD.encode())
                return True
        return False


def text_of(configuration: Configuration) -> str:
    """The file: ``203.0.113.0/24 bbr;`` for each prefix."""
    head = f"{HEAD}# number {configuration.number}, {configuration.checksum}\n"
    return head + "".join(
        f"{wanted.prefix} {configuration.algorithm};\n" for wanted in configuration.prefixes
    )


def read_setup(host: Host) -> Setup:
    """What this host says; Refused if nothing, or with the field that makes no sense."""
    try:
        text, beside = host.kept(SETUP)
        # Its commands are run by root.
        if beside.mode & (stat.S_IWGRP | stat.S_IWOTH) or beside.uid not in (0, os.geteuid()):
            raise Refused("others than root can change it")
        fields = Request(json.loads(text.decode()))
        made = Setup(
            file=fields.text("file", DIRECTORY),
            check=_command(fields, "check"),
            reload=_command(fields, "reload"),
            seconds=fields.whole("seconds", 1, MOST_SECONDS, _SECONDS),
        )
        fields.done()
    except FileNotFoundError:
        raise Refused(f"there is no {SETUP}, which says where the file of prefixes is") from None
    except BadRequest as error:
        raise Refused(f"{SETUP}: {error.field or 'all of it'}: {error}") from None
    except (OSError, Refused, ValueError) as error:
        raise Refused(f"{SETUP}: {complaint(error)}") from None
    return made


def _command(fields: Request, name: str) -> List[str]:
    words = fields.raw(name)
    if not isinstance(words, list) or not 1 <= len(words) <= _MOST_WORDS:
        raise fields.wrong(name, f"must be a list of 1 to {_MOST_WORDS} words")
    inside = Request({f"{name}[{i}]": word for i, word in enumerate(words)})
    patterns = [_PROGRAM] + [_WORD] * (len(words) - 1)
    return [inside.text(f"{name}[{i}]", pattern) for i, pattern in enumerate(patterns)]


def _refuse_strangers_of(host: Host, file: str) -> None:
    """Refused for a file that somebody else wrote; an empty one is nobody's."""
    try:
        text = host.kept(file)[0]
    except FileNotFoundError:
        return
    except OSError as error:
        raise Refused(f"{file}: {complaint(error)}") from None
    if text.strip() and not text.startswith(HEAD.encode()):
        raise Refused(f"{file} is somebody else's: its first line is not the one that we write")


def _reload(host: Host, setup: Setup) -> None:
    """Failed with what a program complains of, also when it takes too long."""
    for command in (setup.check, setup.reload):
        status, said = host.attempt_within(setup.seconds, *command)
        if status != 0:
            words = " ".join(said.split()) or f"exit status {status}"
            raise Failed(f"{' '.join(command)}: {shortened(words, _MOST_SAID)}")


APPLIER = File
