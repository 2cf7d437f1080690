# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, as one tree.

EdgetuneError
├── InputError      something given to us is wrong; names file and field; nothing was touched
│   └── UnconfiguredError nobody has configured the pack yet
├── RefusedError    a precondition does not hold; nothing was touched
│   ├── FencedError somebody else owns the PoP by now
│   ├── NothingToDo every host is as the tuning wants it
│   └── DamagedError a record of ours cannot be read; names key and field
├── StoreError      a store could not be reached; never the same as "not there"
│   └── NoAnswerError a change that was asked for may be made, or not
├── SourceError     a metric source did not answer, or not as a whole; names source, PoP and host
│   └── SilentError no whole answer came in time
├── DrainError      the load balancer did not do or did not know what was asked
│   └── ServerError so for one server alone: the others can be asked
├── HostError       a host could not be reached or did not answer as the agent does
└── BmcError        a BMC did not do what was asked (``bmc.payload``); becomes a HostResult
"""

from __future__ import annotations

from edgetune.base.sanitize import one_line

MOST_MESSAGE = 1000


class EdgetuneError(Exception):
    """Base of everything that edgetune raises on purpose; its text is one clear line."""

    word = ""

    @property
    def reason(self) -> str:
        """Machine-readable word for results: ``input``, ``refused``, ``fenced``, ``store``, ...;
        ``word`` where that is not the name of the class."""
        return self.word or type(self).__name__.replace("Error", "").lower()


class InputError(EdgetuneError):
    """A file, parameter or answer is wrong: ``FILE: FIELD: what is wrong``, in one line."""

    def __init__(self, where: str, field: str | None, message: str) -> None:
        parts = [_short(where), _short(field or "", 200), _short(message)]
        super().__init__(": ".join(part for part in parts if part))
        self.where = where
        self.field = field
        self.problem = message


class UnconfiguredError(InputError):
    """The pack has no configuration at all; names the file and the command."""


class RefusedError(EdgetuneError):
    """A precondition does not hold, so nothing was done."""


class FencedError(RefusedError):
    """The PoP is claimed by somebody else, or by a later epoch of the same rollout."""


class NothingToDo(RefusedError):
    """Every host is as the tuning wants it."""

    word = "refused"


class DamagedError(RefusedError):
    """What a store holds under one of our keys makes no sense: ``KEY is damaged: FIELD: why``.

    The store itself works, so only what rests on this key is refused.
    """

    def __init__(self, key: str, field: str, problem: str) -> None:
        super().__init__(": ".join(part for part in (f"{key} is damaged", field, problem) if part))
        self.key = key
        self.field = field


AWAY = "a store is away"
"""With these words a step that failed with a StoreError begins its error: they tell a workflow's
rollback that nothing speaks against the tuning."""


class StoreError(EdgetuneError):
    """A store could not be reached or answered an error. Stops everything."""


class NoAnswerError(StoreError):
    """A store did not answer: a change that was asked for may be made, or not."""

    word = "store"


class SourceError(EdgetuneError):
    """A metric source that keeps samples did not answer, or its answer is not whole.

    It concerns the PoPs of this source alone, and says nothing about a tuning.
    """

    word = "source"


class SilentError(SourceError):
    """No whole answer came, or not in time: a source that may be down."""


class DrainError(EdgetuneError):
    """The load balancer failed, or does not know the server."""


class ServerError(DrainError):
    """One server failed, or refused; it says nothing about the others."""

    word = "drain"


class HostError(EdgetuneError):
    """A host could not be reached, was not who it should be, or answered garbage."""


def _short(text: str, most: int = MOST_MESSAGE) -> str:
    """In one line; the texts of files have no end of their own."""
    return one_line(text if len(text) <= most else f"{text[: most - 3]}...")
