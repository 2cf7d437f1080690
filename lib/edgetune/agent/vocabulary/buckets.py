# SPDX-License-Identifier: Apache-2.0
"""The buckets of a histogram: log-linear, the same on every host.

Each reaches from its own bound up to the next one, which it does not hold. From ``LEAST`` on a
bound is at most 10 % above the one before: 35 of them in each power of ten, in steps of 0.1 from 1,
of 0.25 from 2.5, and of 0.5 from 5. The usual bounds of Prometheus (2.5, 5, 7.5, 10, ...) are among
them. What is less than ``LEAST`` is in the first bucket, of number 0, and the last has no end.
"""

from bisect import bisect_right

_IN_TEN = [*range(100, 250, 10), *range(250, 500, 25), *range(500, 1000, 50)]
_FIRST, _LAST = -3, 11
LEAST = 1e-3
BUCKET = ":"
"""What stands between the name of a histogram and the number of a bucket."""


# As text, each is the float that a log has for the same number.
BOUNDS = [0.0, *(float(f"{n}e{ten - 2}") for ten in range(_FIRST, _LAST + 1) for n in _IN_TEN)]
"""Where each bucket begins, by its number."""


def bucket_of(value: float) -> int:
    """The number of the bucket of an amount that is not below 0."""
    return bisect_right(BOUNDS, value) - 1


def bucket_name(histogram: str, number: int) -> str:
    """The counter of a bucket; that of the histogram's own name counts what is in all of them."""
    return f"{histogram}{BUCKET}{number}"
