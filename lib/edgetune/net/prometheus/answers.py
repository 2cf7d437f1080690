# SPDX-License-Identifier: Apache-2.0
"""Reads what an instant query with a range selector is answered: raw samples, or no answer at all.

An answer with warnings is not whole, although its status says success: Thanos warns of stores that
it could not reach. VictoriaMetrics says ``isPartial``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from edgetune.base.dataclass import dataclass
from edgetune.base.sanitize import shortened

_MOST_TOLD = 300


@dataclass(frozen=True)
class Series:
    """The raw samples of one series: ``times`` in epoch seconds, in their order."""

    labels: Mapping[str, str]
    times: Sequence[float]
    values: Sequence[float]

    @property
    def name(self) -> str:
        """Of its metric."""
        return self.labels.get("__name__", "")


def read_matrix(body: bytes) -> list[Series]:
    """The series of an answer; ValueError says why it is none, or not whole."""
    answer = _parsed(body)
    if answer.get("status") != "success":
        raise ValueError(f"answers no success: {error_in(answer) or 'without a reason'}")
    warnings = answer.get("warnings")
    if warnings:
        raise ValueError(f"warns that its answer is not whole: {_told(warnings)}")
    if answer.get("isPartial"):
        raise ValueError("says that its answer is partial")
    data = answer.get("data")
    whole = data if isinstance(data, dict) else {}
    kind, rows = whole.get("resultType"), whole.get("result")
    if kind != "matrix" or not isinstance(rows, list):
        raise ValueError(f"answers {_told(kind)}, and no matrix")
    return [*map(_series, rows)]


def error_text(body: bytes) -> str:
    """The reason in an answer that is an error, or nothing where there is none to be read."""
    try:
        return error_in(_parsed(body))
    except ValueError:
        return ""


def error_in(answer: Mapping[str, Any]) -> str:
    """The reason in an answer that was read, in one line."""
    told = [answer.get(key) for key in ("errorType", "error")]
    return shortened(": ".join(text for text in told if isinstance(text, str)), _MOST_TOLD)


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("answers what is no JSON, or ends too early") from None
    if not isinstance(answer, dict):
        raise ValueError("answers another thing than Prometheus does")
    return answer


def _series(row: Any) -> Series:
    try:
        labels, pairs = row["metric"], row.get("values", [])
        times, values = [pair[0] for pair in pairs], [float(pair[1]) for pair in pairs]
        whole = {str}.issuperset(map(type, [*labels, *labels.values()]))
        ordered = times == sorted(times) and {int, float}.issuperset(map(type, times))
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError):
        raise ValueError("answers a series that is none") from None
    if not (whole and ordered):
        raise ValueError("answers a series that is out of order")
    return Series(labels, times, values)


def _told(value: object) -> str:
    return shortened(json.dumps(value), _MOST_TOLD)
