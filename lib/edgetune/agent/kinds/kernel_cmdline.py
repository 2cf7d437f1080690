# SPDX-License-Identifier: Apache-2.0
"""One parameter of the kernel's command line."""

from typing import Dict

from edgetune.agent.boot_loaders import BootEntry
from edgetune.agent.kinds import held
from edgetune.agent.kinds.tried_by_boot import TriedByBoot
from edgetune.agent.protocol import Unsupported
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.kernel_cmdline import KIND, joined, split, with_words, words_of
from edgetune.agent.vocabulary.values import Target, Value


class KernelCmdline(TriedByBoot):
    """All words of one parameter; "" where there are none."""

    kind = KIND

    def runtime(self, target: Target) -> Value:
        """Of the command line that was booted."""
        try:
            words = split(self.text("/proc/cmdline"))
        except ValueError as error:
            raise Unsupported(f"/proc/cmdline cannot be read: {error}") from None
        return joined(words_of(words, target["parameter"]))

    def persistent(self, target: Target) -> Value:
        """Of the command line that will be booted."""
        return joined(words_of(self.loader.next().words, target["parameter"]))

    def snapshot(self, target: Target) -> object:
        return {"kept": self.loader.kept(target["parameter"])}

    def apply(self, target: Target, value: Value) -> None:
        """Have it in the entry that is tried, beside what that has."""
        base: BootEntry = self.loader.trial() or self.loader.default()
        self.boot_once(base, with_words(base.words, target["parameter"], split(str(value))))

    def commit(self, setting: Setting) -> None:
        self.loader.keep(setting.target["parameter"], split(str(setting.value)))
        self.loader.forget_trial()

    def unmarked(self, target: Target) -> Dict[str, str]:
        return self.loader.unmarked(target["parameter"])

    def restore(self, target: Target, snapshot: object) -> None:
        self.loader.forget_trial()
        self.loader.unkeep(target["parameter"], held(snapshot)["kept"])
