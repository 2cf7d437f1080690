# SPDX-License-Identifier: Apache-2.0
"""Kinds whose settings are nothing but files."""

from edgetune.agent.kinds.base import Handler
from edgetune.agent.vocabulary.values import Target, Value


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
