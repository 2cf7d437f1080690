# SPDX-License-Identifier: Apache-2.0
"""What boots a host: a file here for each boot loader."""

import os
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple, Type

from edgetune.agent.host import Host
from edgetune.agent.protocol import Failed, Unsupported

TRIAL = "edgetune-trial"
"""The id of our own entry, which is booted once."""


class BootEntry(NamedTuple):
    """An entry of the boot menu: the release of its kernel, and its command line in words."""

    id: str
    release: str
    words: Tuple[str, ...]


class BootLoader:
    """Boots one entry, the default, unless another one was asked for once.

    Entries go by ids that stay when others are added. What cannot be read raises Unsupported.
    """

    name = ""
    place = "/boot"
    """The directory of the partition that it reads, from whose root entries name their files."""

    def __init__(self, host: Host) -> None:
        self.host = host

    @staticmethod
    def is_here(host: Host) -> bool:
        """Whether this one boots the host."""
        raise NotImplementedError

    def probe(self) -> None:
        """Unsupported where an entry that is asked for once may be booted again and again."""
        raise NotImplementedError

    def probe_install(self) -> None:
        """Unsupported where a package of a kernel makes that the default as it is installed."""

    def _refuse_unwritable(self, file: str) -> None:
        """Unsupported where a file of the boot loader's cannot be made, or replaced."""
        try:
            file = self.host.followed(file)
            with self.host.directory(os.path.dirname(file)) as directory:
                why = directory.why_not_writable(os.path.basename(file))
        except OSError as error:
            raise Unsupported(f"{file}: {error.strerror}") from None
        if why:
            raise Unsupported(why)

    def entries(self) -> List[BootEntry]:
        """All that can be booted, in the order of the menu."""
        raise NotImplementedError

    def files(self, id: str) -> List[str]:
        """Of an entry: its kernel and its initramfs, as the host names them.

        Unsupported where one of them is not found.
        """
        return [self._file_on_host(named) for named in self._named_files(id) if "$" not in named]

    def _named_files(self, id: str) -> List[str]:
        """The same, as the entry names them; RHEL names one by a variable that is empty."""
        raise NotImplementedError

    def _file_on_host(self, named: str) -> str:
        # On the partition of the root they are named from there.
        path = "/" + named.lstrip("/")
        for file in (self.place + path, path):
            if os.path.exists(self.host.path(file)):
                return file
        raise Unsupported(f"the boot menu names {named}, which is not in {self.place}")

    def default_id(self) -> str:
        """The id of the default; Unsupported, with what to do, where it has none of its own."""
        raise NotImplementedError

    def stored_default(self) -> str:
        """How the default is stored, which need not be by its id; ``set_default`` takes it."""
        return self.default_id()

    def set_default(self, id: str) -> None:
        """Make an entry the default."""
        raise NotImplementedError

    def once_id(self) -> str:
        """The id of the entry that is booted once, next; "" where none is."""
        raise NotImplementedError

    def set_once(self, id: str) -> None:
        """Boot an entry once; "" for none."""
        raise NotImplementedError

    def write_trial(self, base: BootEntry, words: Sequence[str]) -> None:
        """Make our own entry: the kernel of ``base`` with these words."""
        raise NotImplementedError

    def remove_trial(self) -> None:
        """Have none; also where there was none."""
        raise NotImplementedError

    def kept(self, parameter: str) -> object:
        """What ``unkeep`` needs to take ``keep`` of that parameter back; JSON can hold it."""
        raise NotImplementedError

    def keep(self, parameter: str, words: Sequence[str]) -> None:
        """Have the default, and kernels installed later, booted with these words."""
        raise NotImplementedError

    def unkeep(self, parameter: str, kept: object) -> None:
        """Have what ``kept`` returned; also where it is so already."""
        raise NotImplementedError

    def unmarked(self, parameter: str) -> Dict[str, str]:
        """The files of ours that ``keep`` made, as they are without our marks."""
        return {}

    def entry(self, id: str) -> BootEntry:
        """The entry of that id; Unsupported where there is none."""
        for entry in self.entries():
            if entry.id == id:
                return entry
        raise Unsupported(f"the boot menu has no entry {id}")

    def entry_of(self, release: str) -> BootEntry:
        """The first entry of a kernel that is not ours; Failed where there is none."""
        for entry in self.entries():
            if entry.release == release and entry.id != TRIAL:
                return entry
        raise Failed(f"the boot menu has no entry for the kernel {release}")

    def default(self) -> BootEntry:
        """What is booted, but for the next boot."""
        return self.entry(self.default_id())

    def trial(self) -> Optional[BootEntry]:
        """Our own entry, if the next boot is of it."""
        return self.entry(TRIAL) if self.once_id() == TRIAL else None

    def next(self) -> BootEntry:
        """What the next boot is of."""
        once = self.once_id()
        return self.entry(once) if once else self.default()

    def boot_once(self, base: BootEntry, words: Sequence[str]) -> None:
        """Let the next boot be of the kernel of ``base`` with these words, and no later one."""
        self.write_trial(base, words)
        self.set_once(TRIAL)

    def forget_trial(self) -> None:
        """Let the next boot be of the default."""
        if self.once_id() == TRIAL:
            self.set_once("")
        self.remove_trial()


def boot_loaders() -> Sequence[Type[BootLoader]]:
    """All that are known, in the order in which they are looked for."""
    from edgetune.agent.boot_loaders.grub import Grub
    from edgetune.agent.boot_loaders.grub_bls import GrubBls
    from edgetune.agent.boot_loaders.systemd_boot import SystemdBoot

    return (SystemdBoot, GrubBls, Grub)


def boot_loader(host: Host) -> BootLoader:
    """That of a host; Unsupported where it is none that we know."""
    for kind in boot_loaders():
        if kind.is_here(host):
            return kind(host)
    known = ", ".join(kind.name for kind in boot_loaders())
    raise Unsupported(f"its boot loader is none that is known here ({known})")
