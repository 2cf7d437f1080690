# SPDX-License-Identifier: Apache-2.0
"""Boot loaders that behave: a file here for each one of the agent, with its double as ``LOADER``.

A double keeps files below a host's root, answers for the programs that change them, and boots as
its boot loader does. It shares no code with the agent.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from tests.support.agent_root import AgentRoot

Answer = tuple[int, str, str]
OLD, NEW = "6.1.0-40-amd64", "6.1.0-41-amd64"
ROOT_WORDS = "root=UUID=77f2 ro"
PLAIN_DISK = (
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "23 22 8:2 / /boot rw,relatime shared:2 - ext4 /dev/sda2 rw\n"
)


class Double:
    """A boot loader on a host; ``default`` and ``once`` are ids, ``words`` what the host asks for.

    It has the entry of ``OLD`` as its default. Its ``programs`` are those that change it.
    """

    programs: tuple[str, ...] = ()

    def __init__(self, root: AgentRoot) -> None:
        self.root = root
        self.calls: list[str] = []
        root.write("proc/self/mountinfo", PLAIN_DISK)
        for device in ("8:1", "8:2"):
            (root.path / f"sys/dev/block/{device}").mkdir(parents=True)

    def attempt(self, program: str, *words: str) -> Answer: ...  # As Host.attempt.

    def add(self, release: str) -> None: ...  # What the package of a kernel does.

    def id_of(self, release: str) -> str: ...  # The id of a kernel's own entry.

    def forget_default(self) -> None: ...  # Have no default by name.

    def boot(self) -> tuple[str, str]: ...  # Of what is booted: its release and command line.

    @property
    def default(self) -> str: ...  # The id that is stored.

    @property
    def once(self) -> str: ...  # The id that is booted once, or "".

    def packaged(self, release: str) -> list[str]:
        """The files of a kernel and its initramfs that its package leaves in /boot."""
        return [f"boot/vmlinuz-{release}", f"boot/initrd.img-{release}"]

    def booted(self, release: str) -> list[str]:
        """Those that are booted."""
        return self.packaged(release)

    def kernel_files(self, release: str) -> None:
        """All of them."""
        for file in {*self.packaged(release), *self.booted(release)}:
            self.root.write(file, f"{file} of {release}\n")


def of(name: str) -> ModuleType:
    """The file of that name."""
    return import_module(f"{__name__}.{name}")
