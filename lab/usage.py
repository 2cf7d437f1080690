# SPDX-License-Identifier: Apache-2.0
"""What the parts of the `edgetune` command share: its directories, and an error about its use."""

from __future__ import annotations

import os
from pathlib import Path

from lab import CHECKOUT
from lab.runner.metadata import Pack

__all__ = ["UsageError", "config_file", "home", "pack"]


class UsageError(Exception):
    """The command cannot be carried out; the message is one line. ``next`` is what to type.

    ``reason`` is the word of which ``lab.runner.ending`` makes the exit status.
    """

    def __init__(self, message: str, next: str = "edgetune --help", reason: str = "usage") -> None:
        super().__init__(message)
        self.next, self.reason = next, reason


def home() -> Path:
    """The directory of state."""
    return Path(os.environ.get("EDGETUNE_HOME") or CHECKOUT / ".edgetune").resolve()


def pack() -> Pack:
    """The pack that is run; MetadataError where it is none."""
    return Pack(Path(os.environ.get("EDGETUNE_PACK") or CHECKOUT))


def config_file() -> Path:
    """The configuration of the pack as it runs here; it may not exist."""
    return Path(os.environ.get("EDGETUNE_CONFIG") or home() / "edgetune.yaml")
