# SPDX-License-Identifier: Apache-2.0
"""The door to a step: it opens a rollout and one of its batches, permits, and closes both again.

A step is written as what it does with them, and is called with what names them. A neighbour that
has opened them already hands them on (``on``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import update_wrapper
from typing import Callable, Generic, TypeVar

from edgetune.base.documents.batch import Batch
from edgetune.base.errors import EdgetuneError, FencedError, StoreError
from edgetune.rollout.context import Context
from edgetune.rollout.hosts.silencing import keep_silenced
from edgetune.rollout.hosts.weights import end_measuring
from edgetune.rollout.ownership.lease import Rollout, open_rollout

_Told = TypeVar("_Told", bound=Mapping[str, object])


class BatchStep(Generic[_Told]):
    """A step on one batch; ``on`` takes it with what is open. To be used as a decorator."""

    __name__: str

    def __init__(self, on: Callable[[Rollout, Batch], _Told]) -> None:
        self.on = on
        update_wrapper(self, on)
        # Its parameters are those of the call.
        del vars(self)["__wrapped__"]

    def __call__(self, context: Context, rollout: str, epoch: int, batch: int) -> _Told:
        """Take the step. Errors as of ``open_rollout`` and ``Record.batch``, and its own."""
        with _opened(context, rollout, epoch, batch) as (opened, work):
            return self.on(opened, work)


@contextmanager
def _opened(
    context: Context, rollout: str, epoch: int, number: int
) -> Iterator[tuple[Rollout, Batch]]:
    """Both, to act on; alerts of hosts that are out stay silenced.

    What is known of the hosts by the end is written down, also where the step cannot go on.
    """
    opened = open_rollout(context, rollout, epoch)
    work = opened.batch(number)
    # What is drained is put back as it stood: not with a weight that was lent.
    end_measuring(opened, patient=work.batch_type != "restore")
    keep_silenced(opened, work)
    try:
        yield opened, work
    except (FencedError, StoreError):
        # Whoever has the claim by now writes. A store that is away may lack what comes before.
        raise
    except EdgetuneError:
        with suppress(EdgetuneError):
            opened.settle(work)
        raise
    opened.settle(work)
