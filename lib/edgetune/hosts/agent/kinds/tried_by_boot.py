# SPDX-License-Identifier: Apache-2.0
"""Kinds whose settings the next boot tries once, and which a confirmation makes last."""

from typing import Sequence

from edgetune.hosts.agent.boot_loaders import boot_loader
from edgetune.hosts.agent.boot_loaders.base import TRIAL, BootEntry, BootLoader
from edgetune.hosts.agent.kinds.base import Handler
from edgetune.hosts.agent.protocol import Unsupported
from edgetune.vocabulary.command_line import for_first_boot
from edgetune.vocabulary.setting import Setting


class TriedByBoot(Handler):
    """What is stored of such a setting is what the next boot is of: the trial, or the default."""

    live = False
    tried_by_boot = True

    @property
    def loader(self) -> BootLoader:
        """Unsupported where the host has none that we know."""
        return boot_loader(self.host)

    def probe(self, setting: Setting) -> None:
        """Unsupported where the host could not fall back, or somebody chose its next boot."""
        self.loader.probe()
        once = self.loader.once_id()
        if once not in ("", TRIAL):
            raise Unsupported(f"somebody else asked for the entry {once!r} at the next boot")

    def probe_stored(self, setting: Setting, tuning: str) -> None:
        self.probe(setting)

    def boot_once(self, base: BootEntry, words: Sequence[str]) -> None:
        """Let the next boot be of this kernel and command line; one that goes wrong ends itself."""
        self.loader.boot_once(base, for_first_boot(words))
