# SPDX-License-Identifier: Apache-2.0
"""Kinds whose settings the next boot tries once, and which a confirmation makes last."""

from typing import Sequence

from edgetune.agent.boot_loaders import TRIAL, BootEntry, BootLoader, boot_loader
from edgetune.agent.journal import Journals
from edgetune.agent.kinds import Handler
from edgetune.agent.protocol import Unsupported
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.kernel_cmdline import for_first_boot

REBOOT_FIRST = "reboot, so that it is what runs that the host falls back to"


class TriedByBoot(Handler):
    """What is stored of such a setting is what the next boot is of: the trial, or the default."""

    live = False
    tried_by_boot = True

    @property
    def running(self) -> str:
        """The release of the kernel that runs."""
        return self.host.text("/proc/sys/kernel/osrelease")

    @property
    def loader(self) -> BootLoader:
        """Unsupported where the host has none that we know."""
        return boot_loader(self.host)

    def probe(self, setting: Setting) -> None:
        """Unsupported where it could not fall back to what runs, or its next boot is chosen."""
        self.loader.probe()
        once = self.loader.once_id()
        if once not in ("", TRIAL):
            raise Unsupported(f"somebody else asked for the entry {once!r} at the next boot")
        default = self.loader.default().release
        # Some entries name no release, as those of Arch Linux.
        if default[:1].isdigit() and default != self.running and not self._is_under_way():
            raise Unsupported(
                f"the kernel {default} is the default, and {self.running} runs: {REBOOT_FIRST}"
            )

    def _is_under_way(self) -> bool:
        """Whether a trial may be what runs: then the default is what ran before it."""
        return any(
            journal.state == "provisional"
            and any(entry.setting.is_tried_by_a_boot for entry in journal.entries)
            for journal in Journals(self.host).all()
        )

    def probe_stored(self, setting: Setting, tuning: str) -> None:
        self.probe(setting)

    def boot_once(self, base: BootEntry, words: Sequence[str]) -> None:
        """Let the next boot be of this kernel and command line; one that goes wrong ends itself."""
        self.loader.boot_once(base, for_first_boot(words))
