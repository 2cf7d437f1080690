# SPDX-License-Identifier: Apache-2.0
"""What this host does for each kind of setting."""

import os
import sys
from importlib import import_module
from typing import Dict, List, Optional, Sequence, Type

from edgetune.agent.host import Host, decode
from edgetune.agent.journal import Journal, Journals
from edgetune.agent.protocol import Unsupported
from edgetune.agent.vocabulary.kind import Kind
from edgetune.agent.vocabulary.kinds import KINDS, Setting
from edgetune.agent.vocabulary.places import AGENT, INIT_SCRIPT, RC_SCRIPT, UNIT, UNIT_LINK
from edgetune.agent.vocabulary.values import Target, Value, chosen, holds, merged

PYTHON = sys.executable or "/usr/bin/python3"
"""What runs the hook."""


def probe_hook(host: Host) -> None:
    """Unsupported when this host's init is none that we know."""
    if host.init == "other":
        raise Unsupported(
            "nothing can keep it over a boot: no systemd, nothing runs /etc/init.d/S??*"
        )


def hook_files(host: Host) -> Sequence[str]:
    """Its files on a host with this init, beside our copy."""
    known = {"systemd": (UNIT, UNIT_LINK), "sysv": (INIT_SCRIPT,), "rc": (RC_SCRIPT,)}
    return known.get(host.init, ())


def hook_installed(host: Host) -> bool:
    """Whether the next boot will run it."""
    files = hook_files(host)
    return bool(files) and all(host.exists(name) for name in (*files, AGENT))


class Handler:
    """How settings of one kind are read, changed, kept over a boot, and taken back.

    ``kind`` is what the vocabulary knows of it. ``live`` settings can be read back at once, the
    others after the restart of their service. Those ``tried_by_boot`` come into force at the next
    boot, for that boot alone, until ``commit`` makes them last. With
    ``partly`` a setting names parts of what there is, and the others may be anything.
    """

    kind: Kind
    live = True
    tried_by_boot = False
    partly = False

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

    def in_terms(self, setting: Setting, found: Value) -> Value:
        """What was read in the terms of a setting, and no more of it."""
        return chosen(found, setting.value) if self.partly else found

    def same(self, now: Value, wanted: Value) -> bool:
        """Whether a value read is the one wanted."""
        return holds(now, wanted) if self.partly else now == wanted

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


class FileKept(Handler):
    """A kind that is set by writing files, and comes into force as services restart.

    The journal remembers each file that is written, so there is nothing else to be put back.
    """

    live = False

    def snapshot(self, target: Target) -> object:
        return None

    def apply(self, target: Target, value: Value) -> None:
        pass

    def restore(self, target: Target, snapshot: object) -> None:
        pass


class HookKept(Handler):
    """A kind that only our boot hook keeps; its stored value is the newest journal's.

    Where values have parts, each part is the newest that any journal keeps.
    """

    def kept_by_hook(self, target: Target) -> bool:
        return True

    def probe_stored(self, setting: Setting, tuning: str) -> None:
        probe_hook(self.host)

    def persistent(self, target: Target) -> Optional[Value]:
        found: Optional[Value] = None
        if hook_installed(self.host):
            for value in Journals(self.host).kept(self.kind.name, target):
                found = self.merge(found, value)
        return found

    def merge(self, older: Optional[Value], newer: Value) -> Value:
        """What both say, where a newer journal keeps another value than an older one."""
        return merged(older, newer)


_OURS = "# Kept by edgetune "


def header(journal: Journal) -> str:
    """The first line of every configuration file we write."""
    return f"{_OURS}for the tuning {journal.tuning}, digest {journal.digest}\n"


def without_header(text: str) -> str:
    """A configuration file of ours without what says that it is."""
    first, _, rest = text.partition("\n")
    return rest if first.startswith(_OURS) else text


def later(name: str, ours: str) -> bool:
    """Whether a configuration file is read after ours."""
    return os.path.basename(name) > os.path.basename(ours)


def drop_ins(host: Host, directories: Sequence[str]) -> List[str]:
    """The .conf files in the order they are read: by name, the first directory masks the next."""
    found: Dict[str, str] = {}
    for directory in directories:
        for name in host.names(directory):
            if name.endswith(".conf") and not name.startswith("."):
                found.setdefault(name, f"{directory}/{name}")
    return [found[name] for name in sorted(found)]


def handler_on(host: Host, name: str) -> Handler:
    """What carries out a kind on a host; Unsupported where its system does not have that.

    ``nic.irq_affinity`` has NicIrqAffinity in nic_irq_affinity.py. Those of FreeBSD are in the
    folder ``freebsd``. A file is imported when its kind is asked for: each round trip pays for what
    it compiles.
    """
    why = KINDS[name].refusal_on(host.system)
    if why:
        raise Unsupported(why)
    handler: Type[Handler] = getattr(import_module(module_of(host.system, name)), class_of(name))
    return handler(host)


def module_of(system: str, name: str) -> str:
    """The full name of the module that carries out a kind on a system."""
    folder = "" if system == "linux" else f".{system}"
    return f"{__name__}{folder}.{name.replace('.', '_')}"


def class_of(name: str) -> str:
    """The name of the class that carries out a kind."""
    return name.title().replace(".", "").replace("_", "")
