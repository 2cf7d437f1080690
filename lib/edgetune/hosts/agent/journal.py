# SPDX-License-Identifier: Apache-2.0
"""The journal: what stood here before each tuning, written before the first change."""

import base64
import json
from typing import Any, Dict, Iterator, List, Optional, Tuple

from edgetune.hosts.agent.host import AGENT, Host
from edgetune.hosts.agent.protocol import Failed, Json, Refused
from edgetune.vocabulary.contents import FORM, described
from edgetune.vocabulary.kinds import KINDS
from edgetune.vocabulary.places import STATE
from edgetune.vocabulary.setting import Setting
from edgetune.vocabulary.values import Target, Value

JOURNAL_VERSION = 1
UNSETTLED = ("applying", "restoring", "suspended")


class OtherVersion(Exception):
    """A journal is of an agent that is not like this one; the text says what that one does."""


class Entry:
    """One setting in a journal: what it takes, and what is needed to take it back.

    The value of ``setting`` is what is really set (``only`` may keep more than ``wanted``, which
    is what the tuning asks for). ``runtime`` and ``stored`` say which of the two is changed;
    ``snapshot`` is its kind's own.
    """

    def __init__(
        self, setting: Setting, wanted: Value, before: Json, snapshot: Any, changes: Json
    ) -> None:
        self.setting = setting
        self.wanted = wanted
        self.before = before
        self.snapshot = snapshot
        self.runtime: bool = changes["runtime"]
        self.stored: bool = changes["stored"]

    @property
    def asked_for(self) -> Setting:
        """The setting as the tuning has it."""
        return self.setting.with_value(self.wanted)

    def document(self) -> Json:
        """For the journal's file."""
        return {
            **self.setting.document(),
            "wanted": self.wanted,
            "before": self.before,
            "snapshot": self.snapshot,
            "changes": {"runtime": self.runtime, "stored": self.stored},
        }

    @staticmethod
    def of(data: Json) -> "Entry":
        """From the journal's file."""
        names = ("kind", "target", "value", "only", "restart")
        if not KINDS.on_hosts(data["kind"]):
            raise OtherVersion(f"knows the kind {data['kind']!r}")
        setting = Setting(*(data[name] for name in names))
        # Journals did not always say what was wanted.
        wanted = data.get("wanted", setting.value)
        return Entry(setting, wanted, data["before"], data["snapshot"], data["changes"])

    def forget_changes(self) -> None:
        """Nothing is to be taken back."""
        self.runtime = self.stored = False
        self.snapshot = None


class Journal:
    """Everything needed to take one tuning back.

    ``state`` is ``applying``, ``provisional``, ``confirmed``, ``restoring`` or ``suspended``: a
    tuning below it is taken back, then it is applied again. ``files`` holds
    each file it writes as it was: content (base64, None when absent), mode, uid, gid.
    ``services_due`` names services that still run with what was taken back. ``deadline`` is on
    the monotonic clock of one boot. ``sequence`` grows from tuning to tuning.
    """

    def __init__(self, data: Json) -> None:
        version = data.get("journal")
        if version != JOURNAL_VERSION:
            raise OtherVersion(f"writes journals {version!r}, not {JOURNAL_VERSION}")
        self.tuning: str = data["tuning"]
        self.digest: str = data["digest"]
        self.rollout: str = data["rollout"]
        self.sequence: int = data["sequence"]
        # Before 0.11 a tuning that is suspended was called lifted.
        self.state: str = "suspended" if data["state"] == "lifted" else data["state"]
        self.confirm_within: float = data["confirm_within"]
        self.grace_boots: int = data["grace_boots"]
        self.deadline: Json = data["deadline"]
        self.services_due: List[str] = data["services_due"]
        self.files: Dict[str, Json] = data["files"]
        self.hold([Entry.of(entry) for entry in data["entries"]])
        for entry in self.entries:
            if entry.setting.kind == "file":
                entry.before = self._told_of(entry)

    def hold(self, entries: List[Entry]) -> None:
        """Have these entries."""
        self.entries = entries
        for entry in entries:
            entry.setting.siblings = [own.setting for own in entries]

    def _told_of(self, entry: Entry) -> Json:
        """What stood there before; journals of agents before 0.7 have the content itself."""
        was = self.files.get(entry.setting.target["path"])
        told = {}
        for name, value in entry.before.items():
            if value and not FORM.fullmatch(value):
                value = described(value.encode())
                if was and was["content"] is not None:
                    content = base64.b64decode(was["content"])
                    value = described(content, was["mode"], was["uid"], was["gid"])
            told[name] = value
        return told

    def document(self) -> Json:
        """For its file."""
        own = dict(vars(self), entries=[entry.document() for entry in self.entries])
        return dict(own, journal=JOURNAL_VERSION)

    @property
    def rank(self) -> str:
        """Names its files: those of later tunings are read later."""
        return ranked(self.sequence, self.tuning)

    @property
    def provisional(self) -> bool:
        """Whether it is taken back unless somebody confirms it."""
        return self.confirm_within > 0 and self.state != "confirmed"


class Journals:
    """The journals of this host, a file each."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def load(self, tuning: str) -> Optional[Journal]:
        """The journal of a tuning, or None; Failed when it cannot be read, with the way out."""
        name = _journal_file(tuning)
        try:
            return Journal(json.loads(self._host.kept(name)[0].decode()))
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

    def kept(self, kind: str, target: Target) -> Iterator[Value]:
        """The values that they keep of one setting, in the order of application."""
        for journal in self.all():
            for entry in journal.entries if journal.state != "restoring" else []:
                setting = entry.setting
                if entry.stored and (setting.kind, setting.target) == (kind, target):
                    yield setting.value

    def all(self) -> List[Journal]:
        """Every journal that can be read, in the order of application."""
        return self._load_all()[0]

    def damaged(self) -> Dict[str, str]:
        """The tunings whose journals cannot be read, with what is wrong."""
        return self._load_all()[1]

    def _load_all(self) -> Tuple[List[Journal], Dict[str, str]]:
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
        self._host.write(_journal_file(journal.tuning), _text_of(journal), 0o600)

    def size(self, journal: Journal) -> int:
        """How many bytes it takes on disk."""
        return len(_text_of(journal))

    def forget(self, tuning: str) -> None:
        """Remove it: everything is as it was."""
        self._host.remove(_journal_file(tuning))


def _text_of(journal: Journal) -> bytes:
    # Without an indent: that needs json's encoder in Python, ten times as long.
    return json.dumps(journal.document(), sort_keys=True).encode() + b"\n"


def blank(host: Host, head: Json) -> Journal:
    """A journal that holds no setting yet."""
    sequence = Journals(host).next_sequence()
    own = {"journal": JOURNAL_VERSION, "state": "applying", "sequence": sequence}
    empty: Json = {"deadline": {}, "services_due": [], "files": {}, "entries": []}
    plain: Json = {"rollout": "", "confirm_within": 0, "grace_boots": 0}
    return Journal({**own, **empty, **plain, **head})


def ranked(sequence: int, tuning: str) -> str:
    """Such as ``0002-nic_ring``."""
    return f"{sequence:04d}-{tuning}"


def _journal_file(tuning: str) -> str:
    return f"{STATE}/tunings/{tuning}.json"
