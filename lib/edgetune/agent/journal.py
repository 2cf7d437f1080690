# SPDX-License-Identifier: Apache-2.0
"""The journal: what stood here before each tuning, written before the first change."""

import base64
import contextlib
import json
import os
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from edgetune.agent.host import Host
from edgetune.agent.protocol import Failed, Json, Refused
from edgetune.agent.vocabulary.kinds import KINDS, Setting
from edgetune.agent.vocabulary.places import AGENT, STATE
from edgetune.agent.vocabulary.values import FORM, Target, Value, alike, described

JOURNAL_VERSION = 1
UNSETTLED = ("applying", "restoring", "suspended")


class OtherVersion(Exception):
    """A journal is of an agent that is not like this one; the text says what that one does."""


class Reading(NamedTuple):
    """What is in force of a setting, and what is stored; None for what the host does not have."""

    runtime: Optional[Value]
    persistent: Optional[Value]

    def is_like(self, other: "Reading") -> bool:
        """Whether both are the same, as far as both tell."""
        return alike(self.runtime, other.runtime) and alike(self.persistent, other.persistent)


class FileState(NamedTuple):
    """A file as it was; its content in base64, None where there was none.

    ``xattrs`` are in base64, too. Journals did not always have them, nor ``mtime_ns``: None.
    """

    content: Optional[str]
    mode: int
    uid: int
    gid: int
    xattrs: Optional[Dict[str, str]] = None
    mtime_ns: Optional[int] = None


class Deadline(NamedTuple):
    """A moment on the monotonic clock of one boot."""

    boot_id: str
    monotonic: float


class Head(NamedTuple):
    """What a request says of a tuning as a whole."""

    tuning: str
    digest: str
    rollout: str = ""
    confirm_within: float = 0.0
    grace_boots: int = 0


class Entry:
    """One setting in a journal: what it takes, and what is needed to take it back.

    The value of ``setting`` is what is really set (``only`` may keep more than ``wanted``, which
    is what the tuning asks for). ``runtime`` and ``stored`` say which of the two is changed;
    ``snapshot`` is its kind's own.
    """

    def __init__(
        self,
        setting: Setting,
        wanted: Value,
        before: Reading,
        snapshot: object,
        runtime: bool,
        stored: bool,
    ) -> None:
        self.setting = setting
        self.wanted = wanted
        self.before = before
        self.snapshot = snapshot
        self.runtime = runtime
        self.stored = stored

    @property
    def asked_for(self) -> Setting:
        """The setting as the tuning has it."""
        return self.setting.with_value(self.wanted)

    def document(self) -> Json:
        """For the journal's file."""
        return {
            **self.setting.document(),
            "wanted": self.wanted,
            "before": self.before._asdict(),
            "snapshot": self.snapshot,
            "changes": {"runtime": self.runtime, "stored": self.stored},
        }

    @staticmethod
    def of(data: Dict[str, Any]) -> "Entry":
        """From the journal's file; KeyError where a field is missing."""
        setting = Setting.of(data)
        if not KINDS.on_hosts(setting.kind):
            raise OtherVersion(f"knows the kind {setting.kind!r}")
        before = Reading(**data["before"])
        # Journals did not always say what was wanted.
        wanted = data.get("wanted", setting.value)
        return Entry(setting, wanted, before, data["snapshot"], **data["changes"])


class Journal:
    """Everything needed to take one tuning back.

    ``state`` is ``applying``, ``provisional``, ``confirmed``, ``restoring`` or ``suspended``: a
    tuning below it is taken back, then it is applied again. ``files`` holds each file that it
    writes. ``services_due`` names services that still run with what was taken back. ``answering``
    has the peers that answered this host before a change of the network (see ``reachable``).
    ``sequence`` grows from tuning to tuning.
    """

    def __init__(self, head: Head, sequence: int) -> None:
        """One that holds no setting yet."""
        self.tuning, self.digest, self.rollout, self.confirm_within, self.grace_boots = head
        self.sequence = sequence
        self.state = "applying"
        self.deadline: Optional[Deadline] = None
        self.services_due: List[str] = []
        self.answering: Dict[str, str] = {}
        self.files: Dict[str, FileState] = {}
        self.entries: List[Entry] = []

    @staticmethod
    def of(data: Dict[str, Any]) -> "Journal":
        """From its file; KeyError where a field is missing."""
        version = data.get("journal")
        if version != JOURNAL_VERSION:
            raise OtherVersion(f"writes journals {version!r}, not {JOURNAL_VERSION}")
        journal = Journal(Head(*(data[name] for name in Head._fields)), data["sequence"])
        # Before 0.11 a tuning that is suspended was called lifted.
        journal.state = "suspended" if data["state"] == "lifted" else data["state"]
        journal.deadline = Deadline(**data["deadline"]) if data["deadline"] else None
        journal.services_due = data["services_due"]
        # Journals did not always say that.
        journal.answering = data.get("answering", {})
        journal.files = {name: FileState(**file) for name, file in data["files"].items()}
        journal.hold([Entry.of(entry) for entry in data["entries"]])
        for entry in journal.entries:
            if entry.setting.kind == "file":
                file = journal.files.get(entry.setting.target["path"])
                entry.before = Reading(*(_described_file(value, file) for value in entry.before))
        return journal

    def hold(self, entries: List[Entry]) -> None:
        """Have these entries."""
        self.entries = entries
        for entry in entries:
            entry.setting.siblings = [each.setting for each in entries]

    def document(self) -> Json:
        """For its file."""
        return {
            **vars(self),
            "journal": JOURNAL_VERSION,
            "deadline": self.deadline._asdict() if self.deadline else {},
            "files": {name: was._asdict() for name, was in self.files.items()},
            "entries": [entry.document() for entry in self.entries],
        }

    @property
    def rank(self) -> str:
        """Names its files: those of later tunings are read later."""
        return ranked(self.sequence, self.tuning)

    @property
    def provisional(self) -> bool:
        """Whether it is taken back unless somebody confirms it."""
        return self.confirm_within > 0 and self.state != "confirmed"


Stamp = List[Tuple[str, int, int]]


class Journals:
    """The journals of this host, a file each.

    All of them are read once, and again when one of them was written since.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._known: Optional[Tuple[Stamp, Tuple[List[Journal], Dict[str, str]]]] = None

    def load(self, tuning: str) -> Optional[Journal]:
        """The journal of a tuning, or None; Failed when it cannot be read, with the way out."""
        name = journal_file(tuning)
        try:
            return Journal.of(json.loads(self._host.kept(name)[0].decode()))
        except FileNotFoundError:
            return None
        except OtherVersion as other:
            raise Failed(
                f"the journal {name} is of another version of edgetune, which {other}: take the "
                f"tuning back with that version, or on the host: python3 {AGENT} restore {tuning}"
            ) from None
        except PermissionError as error:
            raise Failed(f"the journal {name} cannot be trusted: {error.strerror}") from None
        except (OSError, Refused, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Failed(
                f"the journal {name} is damaged: {error!r}: put the host right by hand, then "
                "remove that file"
            ) from None

    def next_sequence(self) -> int:
        """That of a tuning that is applied now."""
        return max([journal.sequence for journal in self.all()] or [0]) + 1

    def rank(self, tuning: str) -> str:
        """Of a tuning that stands, or of one that is applied now."""
        standing = self.load(tuning)
        return standing.rank if standing else ranked(self.next_sequence(), tuning)

    def kept(self, kind: str, target: Target) -> List[Value]:
        """The values that they keep of one setting, in the order of application."""
        found = self._of(kind, target)
        return [e.setting.value for state, e in found if e.stored and state != "restoring"]

    def changed(self, kind: str, target: Target) -> List[Value]:
        """The values to which they say that one setting was changed, also while it goes back."""
        return [entry.setting.value for _, entry in self._of(kind, target) if entry.runtime]

    def _of(self, kind: str, target: Target) -> Iterator[Tuple[str, Entry]]:
        """What they have of one setting, each with the state of its journal."""
        for journal in self.all():
            for entry in journal.entries:
                if (entry.setting.kind, entry.setting.target) == (kind, target):
                    yield journal.state, entry

    def all(self) -> List[Journal]:
        """Every journal that can be read, in the order of application."""
        return self.read()[0]

    def damaged(self) -> Dict[str, str]:
        """The tunings whose journals cannot be read, with what is wrong."""
        return self.read()[1]

    def _stamp(self) -> Stamp:
        """Another one whenever one of them was written, since a file is replaced as a whole."""
        directory = self._host.path(STATE + "/tunings")
        found = []
        for name in self._host.names(STATE + "/tunings"):
            with contextlib.suppress(FileNotFoundError):
                status = os.lstat(os.path.join(directory, name))
                found.append((name, status.st_ino, status.st_ctime_ns))
        return found

    def read(self) -> Tuple[List[Journal], Dict[str, str]]:
        """`all` and `damaged` of one look."""
        stamp = self._stamp()
        if self._known is None or self._known[0] != stamp:
            self._known = stamp, self._read()
        return self._known[1]

    def _read(self) -> Tuple[List[Journal], Dict[str, str]]:
        loaded: List[Journal] = []
        damaged: Dict[str, str] = {}
        for name in self._host.names(STATE + "/tunings"):
            tuning = name[: -len(".json")]
            if name != f"{tuning}.json" or name.startswith("."):
                continue
            try:
                journal = self.load(tuning)
            except Failed as why:
                damaged[tuning] = str(why)
            else:
                loaded += [journal] if journal else []
        return sorted(loaded, key=lambda journal: journal.sequence), damaged

    def save(self, journal: Journal) -> None:
        """Write it down, durably."""
        self._host.make_directory(STATE + "/tunings", 0o700)
        self._host.write(journal_file(journal.tuning), text_of(journal), 0o600)

    def forget(self, tuning: str) -> None:
        """Remove it: everything is as it was."""
        self._host.remove(journal_file(tuning))


def _described_file(value: Optional[Value], was: Optional[FileState]) -> Optional[Value]:
    """What stood in a file before; journals of agents before 0.7 have the content itself."""
    if not isinstance(value, str) or not value or FORM.fullmatch(value):
        return value
    if was is None or was.content is None:
        return described(value.encode())
    return described(base64.b64decode(was.content), was.mode, was.uid, was.gid)


def text_of(journal: Journal) -> bytes:
    """The file of a journal."""
    # Without an indent: that needs json's encoder in Python, ten times as long.
    return json.dumps(journal.document(), sort_keys=True).encode() + b"\n"


def ranked(sequence: int, tuning: str) -> str:
    """Such as ``0002-nic_ring``."""
    return f"{sequence:04d}-{tuning}"


def journal_file(tuning: str) -> str:
    """The file that holds the journal of a tuning."""
    return f"{STATE}/tunings/{tuning}.json"
