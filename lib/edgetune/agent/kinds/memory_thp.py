# SPDX-License-Identifier: Apache-2.0
"""Transparent huge pages."""

import contextlib
import re
from typing import Dict

from edgetune.agent.kinds import HookKept, texts
from edgetune.agent.protocol import Unsupported
from edgetune.agent.vocabulary.kind import parameter
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.memory_thp import KIND, file_of
from edgetune.agent.vocabulary.values import Target, Value

MIN_FREE_FILE = parameter("vm.min_free_kbytes")


class MemoryThp(HookKept):
    """When the kernel uses transparent huge pages."""

    kind = KIND

    def probe(self, setting: Setting) -> None:
        """Unsupported when this kernel does not offer the word."""
        words = re.sub(r"[][]", "", self._read(setting.target)).split()
        if len(words) > 1 and setting.value not in words:
            raise Unsupported(f"this kernel knows {', '.join(words)}, not {setting.value}")

    def runtime(self, target: Target) -> str:
        """The word in brackets, or the only one."""
        text = self._read(target)
        chosen = re.search(r"\[(.+?)\]", text)
        return chosen.group(1) if chosen else text.strip()

    def present(self, target: Target) -> bool:
        return self.host.exists(file_of(target))

    def snapshot(self, target: Target) -> Dict[str, str]:
        return {"text": self._read(target), "word": self.runtime(target)}

    def apply(self, target: Target, value: Value) -> None:
        self._write(target, f"{value}\n")

    def restore(self, target: Target, snapshot: object) -> None:
        """Write the old word; where a plain file stands in for the kernel's, its old text."""
        was = texts(snapshot)
        text = was["text"]
        if self._read(target) == text:
            return
        self.apply(target, was["word"])
        if self._read(target) != text:
            with contextlib.suppress(OSError):
                self._write(target, text)

    def _write(self, target: Target, text: str) -> None:
        """With it the kernel may raise vm.min_free_kbytes, which is not ours to change here."""
        was = self.host.text(MIN_FREE_FILE)
        self.host.write_attribute(file_of(target), text)
        if self.host.text(MIN_FREE_FILE) != was:
            self.host.write_attribute(MIN_FREE_FILE, f"{was}\n")

    def _read(self, target: Target) -> str:
        return self.text(file_of(target))
