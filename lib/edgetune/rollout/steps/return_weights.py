# SPDX-License-Identifier: Apache-2.0
"""Return the weights that a pair was lent, and conclude what was measured after the last one."""

from __future__ import annotations

from edgetune.base.documents.capacity import Capacity, PairMeasured
from edgetune.base.documents.reading import encoded
from edgetune.judge.capacity import conclusion
from edgetune.rollout.context import Context
from edgetune.rollout.hosts import weights
from edgetune.rollout.hosts.measuring import Measured, MeasuredResult, conclude, open_measured


class ReturnedResult(MeasuredResult):
    """``measured`` is the ``Capacity`` so far, and ``stopped`` what ended it before its last pair.

    ``ratio`` is a ``CapacityRatio``, empty before the end and where that was not measured.
    """

    ratio: dict[str, object]
    stopped: str
    measured: dict[str, object]
    text: Capacity


def return_weights(context: Context, rollout: str, epoch: int, stopped: str = "") -> ReturnedResult:
    """Give hosts back the weights that they had, where nobody else has set another one.

    ``next`` is ``shift_weights`` while a pair is left. With ``stopped``, why a workflow cannot go
    on, none is.
    """
    found = open_measured(context, rollout, epoch)
    own, at = found.own, found.pair
    own.notes += weights.return_weights(found.opened)
    own.stopped = own.stopped or stopped
    last = at[1].last if at else None
    if not own.stopped and at and last and not last.read:
        # Somebody returned them in the middle: that pair begins anew.
        own.pairs[own.pairs.index(at[1])] = PairMeasured()
    if own.at is not None:
        found.save()
        return _told(found, "shift_weights", "the weights are returned; the next pair follows")
    conclude(found.opened, own)
    return _told(found, "", conclusion(own))


def _told(found: Measured, following: str, message: str) -> ReturnedResult:
    own = found.own
    return {
        **found.told(following, 0, message),
        "ratio": encoded(own.ratio) if own.ratio else {},
        "stopped": own.stopped,
        "measured": encoded(own),
        "text": own,
    }
