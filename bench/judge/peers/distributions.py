# SPDX-License-Identifier: Apache-2.0
"""The sequential test of whole distributions by which Netflix looks for regressions of a canary:
Lindon, Sanden and Shirikian, "Rapid Regression Detection in Software Deployments through Sequential
Testing", KDD 2022. It takes all requests as independent of each other.

Around the distribution of each group lies a band that holds the true one at every moment at once
(Howard and Ramdas, "Sequential estimation of quantiles", Bernoulli 2022, equation 3). Where the
bands of both groups part anywhere, the groups differ.
"""

from __future__ import annotations

import math

import numpy as np

from bench.judge.scenarios import Array


def half_width(requests: float, alpha: float) -> float:
    """Of the band after so many requests."""
    if requests < 1:
        return math.inf
    iterated = math.log(math.log(math.e * requests))
    return 0.85 * math.sqrt((iterated + 0.8 * math.log(1612 / alpha)) / requests)


def is_slower(test: Array, control: Array, alpha: float) -> bool:
    """Whether the bands say that requests of the test group took longer; of counts in buckets."""
    wide = sum(half_width(float(own.sum()), alpha / 2) for own in (test, control))
    shares = [np.cumsum(own) / max(own.sum(), 1) for own in (test, control)]
    return bool(np.any(shares[1] - shares[0] > wide))
