# SPDX-License-Identifier: Apache-2.0
"""What a host does for every kind of setting."""

from typing import Dict, List, Optional

from edgetune.agent.host import Host, decode
from edgetune.agent.journal import Journal, Journals
from edgetune.agent.protocol import Unsupported
from edgetune.agent.vocabulary.kind import Kind
from edgetune.agent.vocabulary.setting import Setting
from edgetune.agent.vocabulary.values import Target, Value


class Handler:
    """How settings of one kind are read, changed, kept over a boot, and taken back.

    ``kind`` is what the vocabulary knows of it. ``live`` settings can be read back at once, the
    others after the restart of their service. Those ``tried_by_boot`` come into force at the next
    boot, for that boot alone, until ``commit`` makes them last.
    """

    kind: Kind
    live = True
    tried_by_boot = False

    def __init__(self, host: Host) -> None:
        self.host = host

    def rank(self, tuning: str) -> str:
        """What the names of the files of a tuning that is applied, or stands, begin with."""
        return Journals(self.host).rank(tuning)

    def text(self, file: str) -> str:
        """The content of a file as it is; Unsupported when it cannot be read."""
        try:
            return decode(self.host.read(file))
        except OSError as error:
            raise Unsupported(f"{file}: {error.strerror}") from None

    def probe(self, setting: Setting) -> None:
        """Unsupported when this host cannot take the value."""

    def probe_stored(self, setting: Setting, tuning: str) -> None:
        """Unsupported when this host cannot keep the value over a boot."""

    def kept_by_hook(self, target: Target) -> bool:
        """Whether we set it again at each boot; else it lives in files that others read alone."""
        return False

    def runtime(self, target: Target) -> Value:
        """What is in force now; Unsupported when this host does not have it."""
        raise NotImplementedError

    def persistent(self, target: Target) -> Optional[Value]:
        """What will be in force after a boot; None when nobody has said."""
        raise NotImplementedError

    def rounded(self, target: Target, value: Value) -> Value:
        """What this host makes of a value: drivers take some numbers only."""
        return value

    def asked(self, target: Target, found: Value, value: Value) -> Value:
        """What was read in the terms of a setting with this value, and no more of it."""
        return found

    def in_terms(self, setting: Setting, found: Value) -> Value:
        """The same, where it depends on its siblings."""
        return self.asked(setting.target, found, setting.value)

    def same(self, now: Value, wanted: Value) -> bool:
        """Whether a value read is the one wanted."""
        return now == wanted

    def snapshot(self, target: Target) -> object:
        """What ``restore`` needs, with everything downstream of the setting; JSON can hold it."""
        raise NotImplementedError

    def apply(self, target: Target, value: Value) -> None:
        """Change it now; OSError or Failed when that does not work."""
        raise NotImplementedError

    def commit(self, setting: Setting) -> None:
        """Keep for every boot what one has tried; OSError or Failed when that does not work."""

    def prove(self, setting: Setting) -> None:
        """Failed when a look that costs too much for every day finds it otherwise.

        Asked once, after the restart of its service.
        """

    def present(self, target: Target) -> bool:
        """Whether the host still has what is set: if it is gone nothing is to be restored."""
        return True

    def ready(self, target: Target) -> bool:
        """Whether the host has come far enough, while it boots, for this to be set to stay."""
        return True

    def restore(self, target: Target, snapshot: object) -> None:
        """Make a target that is present as it was; TypeError for no snapshot of this kind."""
        raise NotImplementedError

    def is_back(self, target: Target, now: Optional[Value], was: Optional[Value]) -> bool:
        """Whether ``restore`` came out where it reads otherwise than before."""
        return False

    def files(self, journal: Journal, settings: List[Setting]) -> Dict[str, str]:
        """The files that keep these settings over a boot, with their content."""
        return {}

    def unmarked(self, target: Target) -> Dict[str, str]:
        """The files of ours that keep it and that no journal holds, as they are without our marks.

        Those of `files` are in the journal.
        """
        return {}

    def reload(self) -> None:
        """Make the operating system look at changed files."""


def held(kept: object) -> Dict[str, object]:
    """What a snapshot holds by name."""
    if not isinstance(kept, dict):
        raise TypeError(f"the journal holds no mapping but {kept!r}")
    return kept


def texts(kept: object) -> Dict[str, str]:
    """The same, where all of it are texts."""
    return {name: str(text) for name, text in held(kept).items()}
