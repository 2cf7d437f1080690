# SPDX-License-Identifier: Apache-2.0
"""Kayenta's judge (NetflixACAJudge) for one metric, written afresh from its source.

Source: github.com/spinnaker/kayenta, kayenta-judge (MannWhitneyClassifier, Transforms, EffectSizes,
WeightedSumScorer) and kayenta-mannwhitney. Left out, as one metric needs none of them: groups and
their weights, muted metrics, `mustHaveData`, the removal of outliers (off by default), and reasons
in words. The noise that Kayenta adds to two constants is drawn anew there, and fixed here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Callable

import numpy as np

from bench.judge.peers._groups import Groups, drops_of_groups
from bench.judge.peers._shift import Shift, TiedError, shift
from bench.judge.scenarios import Array, Replicate

MARGINAL = 75.0
"""The usual score up to which a look ends the analysis."""


@dataclass(frozen=True)
class Metric:
    """The configuration of a metric; the names and defaults are Kayenta's."""

    direction: str = "either"
    """What is a failure: increase, decrease, or either."""
    nan_strategy: str = "remove"
    """remove leaves missing values out, replace makes 0 of them."""
    effect_size: str = "meanRatio"
    """meanRatio, or cles: how likely a value of the canary is above one of the baseline."""
    allowed: tuple[float, float] = (1.0, 1.0)
    """Effect down to which a decrease passes, and up to which an increase does."""
    critical: bool = False
    """One failure, or a lack of data, ends the canary."""
    critical_at: tuple[float, float] = (1.0, 1.0)
    """Effect from which on a decrease, or an increase, is such a failure."""
    tolerance: float = 0.25
    """How much of the estimated shift the interval must exclude."""
    confidence: float = 0.98


@dataclass(frozen=True)
class Classification:
    """Pass, High, Low, Nodata or Error; and the ratio of the means, which is shown only."""

    label: str
    critical: bool = False
    deviation: float = 1.0


@dataclass(frozen=True)
class Kayenta:
    """One configuration of the judge, asked at each look until it fails the canary."""

    name: str
    allowed_increase: float = 1.0
    """Ratio of the means up to which an increase passes."""
    lookback: int | None = None
    """Minutes that are judged at a look; all since the soak began if not given."""
    least_points: int = 0
    """Looks with fewer minutes are left out."""
    series: Callable[[Replicate], Groups] = drops_of_groups
    """What is judged of the two groups in each minute."""

    def decide(self, replicate: Replicate, looks: Sequence[int]) -> int | None:
        """The look (minute) that ends the analysis."""
        test, control = self.series(replicate)
        metric = Metric(direction="increase", allowed=(1.0, self.allowed_increase))
        for look in looks:
            seen = slice(max(0, look - self.lookback) if self.lookback else 0, look)
            if look >= self.least_points:
                found = classify(test[seen], control[seen], metric)
                if score([found]) <= MARGINAL:
                    return look
        return None


def score(metrics: Sequence[Classification]) -> float:
    """0 to 100 for metrics of one group and of equal weight; an Error counts for nothing."""
    count = Counter(metric.label for metric in metrics)
    failed = any(metric.critical and metric.label != "Pass" for metric in metrics)
    if failed or 2 * count["Nodata"] >= len(metrics):
        return 0.0
    counted = count["Pass"] + count["High"] + count["Low"]
    return round(100 * count["Pass"] / counted, 2) if counted else 100.0


def classify(experiment: Array, control: Array, metric: Metric) -> Classification:
    """What Kayenta says of one metric."""
    remove = metric.nan_strategy == "remove"
    experiment, control = _transformed(experiment, remove), _transformed(control, remove)
    if not len(experiment) or not len(control):
        return Classification("Nodata", metric.critical) if remove else Classification("Pass")
    if _same(experiment, control):
        return Classification("Pass")
    if np.ptp(experiment) == 0 and np.ptp(control) == 0:
        experiment, control = _jittered(experiment), _jittered(control)
    try:
        found = shift(experiment, control, metric.confidence)
    except TiedError:
        return Classification("Error")
    effect = (cles if metric.effect_size == "cles" else mean_ratio)(experiment, control)
    label = _label(found, effect, metric)
    critical = metric.critical and _is_beyond(label, effect, metric.critical_at)
    return Classification(label, critical, mean_ratio(experiment, control))


def cles(experiment: Array, control: Array) -> float:
    """Common language effect size: the share of pairs in which `experiment` is the higher, ties
    by half (Vargha and Delaney, 2000)."""
    ordered = np.sort(control)
    below = np.searchsorted(ordered, experiment, side="left")
    up_to = np.searchsorted(ordered, experiment, side="right")
    return float((below + up_to).mean()) / 2 / len(control)


def mean_ratio(experiment: Array, control: Array) -> float:
    """NaN if either mean is 0, which no allowed effect then holds back."""
    means = float(experiment.mean()), float(control.mean())
    return math.nan if 0 in means else means[0] / means[1]


def _label(found: Shift, effect: float, metric: Metric) -> str:
    bound = metric.tolerance * abs(found.estimate)
    if metric.direction != "decrease" and found.low > bound:
        return "High" if _is_beyond("High", effect, metric.allowed) else "Pass"
    if metric.direction != "increase" and found.high < -bound:
        return "Low" if _is_beyond("Low", effect, metric.allowed) else "Pass"
    return "Pass"


def _is_beyond(label: str, effect: float, thresholds: tuple[float, float]) -> bool:
    """Whether the effect reaches the threshold of its side; an effect that is NaN does."""
    decrease, increase = thresholds
    return {"High": not effect < increase, "Low": not effect > decrease}.get(label, False)


def _transformed(values: Array, remove: bool) -> Array:
    missing = np.isnan(values)
    return values[~missing] if remove else np.where(missing, 0.0, values)


def _same(experiment: Array, control: Array) -> bool:
    """The same values as often, or one value only."""
    everything = np.concatenate([experiment, control])
    return np.array_equal(np.sort(experiment), np.sort(control)) or np.ptp(everything) == 0


def _jittered(values: Array) -> Array:
    """A constant with noise of 1e-5 of it; always the same noise, so that a run can be repeated."""
    return values * (1 + 1e-5 * np.random.default_rng(0).standard_normal(len(values)))
