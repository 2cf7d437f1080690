# SPDX-License-Identifier: Apache-2.0
"""Asks one Prometheus for raw samples: it answers these, or there is no answer at all.

An answer with warnings is not whole, although its status says success: Thanos warns of stores that
it could not reach. VictoriaMetrics says ``isPartial``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from edgetune.base import clock
from edgetune.base.dataclass import dataclass
from edgetune.base.errors import InputError, SilentError, SourceError
from edgetune.base.sanitize import shortened
from edgetune.base.secret_files import Authorization, HttpLogin
from edgetune.net import http
from edgetune.net.connection import Tls
from edgetune.net.http import LongAnswerError, NetError, Service, query_of

DEADLINE = 30.0
"""Seconds for one whole answer."""
MOST_BYTES = 48 << 20
"""Of one answer: some 1,500,000 samples."""
MOST_SKEW = 5.0
"""Seconds by which its clock may differ from ours: samples carry its time, rollouts ours."""

# Thanos gives what one replica has, of all stores, as it was scraped. Others ignore these words.
_WHOLE = {"dedup": "true", "partial_response": "false", "max_source_resolution": "0s"}
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}

_MOST_SHOWN = 300


@dataclass(frozen=True)
class Access(HttpLogin):
    """Where a Prometheus is and how one logs in to it, by the fields of its source."""

    url: str = ""
    tenant: str = ""

    def login(self) -> Authorization:
        """The headers of a request; InputError names the field, and never shows a secret."""
        headers = {"X-Scope-OrgID": self.tenant} if self.tenant else {}
        if self.bearer_token_file and self.username:
            raise InputError("metrics", "username", "is given beside bearer_token_file")
        login = self.authorization("metrics")
        return Authorization({**headers, **login.headers}, login.secrets)


class TooLarge(SourceError):
    """An answer has more than MOST_BYTES, or would take more samples than Prometheus reads at once;
    a shorter time has fewer."""


class Client(http.Client):
    """One Prometheus; ``where`` names it, and the PoP that it is asked for, in errors.

    Each answer has ended ``deadline`` seconds after its question, DEADLINE unless given.
    """

    def __init__(self, access: Access, where: str, deadline: float | None = None) -> None:
        self._where = where
        self._deadline = DEADLINE if deadline is None else deadline
        url, login = f"{access.url.rstrip('/')}/api/v1", access.login()
        self._service = Service(
            url, login.headers, login.secrets, Tls.of(access).context, MOST_BYTES
        )

    def raw(self, selector: str, end: float, seconds: int) -> list[Series]:
        """What was scraped of the series in so many seconds before ``end``.

        Prometheus 2 counts the first moment in, Prometheus 3 does not. SourceError where it does
        not answer, or not as a whole.
        """
        return self._asked("query", query=f"{selector}[{seconds}s]", time=f"{end:.3f}")

    def steps(self, expression: str, start: float, end: float, step: float) -> list[Series]:
        """What an expression was at ``end`` and each ``step`` seconds before, until ``start``.

        SourceError as for ``raw``.
        """
        begin = end - step * math.ceil((end - start) / step)
        times = {"start": f"{begin:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
        # VictoriaMetrics moves the times to multiples of the step for its cache.
        return self._asked("query_range", query=expression, nocache="1", **times)

    def _asked(self, what: str, **parameters: str) -> list[Series]:
        timeout = f"{self._deadline - 2:.0f}s"
        form = query_of({**_WHOLE, **parameters, "timeout": timeout})[1:].encode()
        sent, ends = clock.wall(), clock.monotonic() + self._deadline
        try:
            answer = self._service.ask("POST", f"/{what}", ends, form, _FORM)
        except LongAnswerError as error:
            raise TooLarge(f"{self._where}: {error}") from None
        except NetError as error:
            raise SilentError(f"{self._where}: {error}") from None
        if answer.status != 200:
            problem = f"answers {answer.status}: {error_text(answer.body) or answer.reason}"
            if "too many samples" in problem:
                raise TooLarge(f"{self._where}: {problem}")
            raise self._wrong(problem)
        self._check_clock(answer.time, sent)
        try:
            return read_matrix(answer.body)
        except ValueError as error:
            raise self._wrong(str(error)) from None

    def _check_clock(self, date: float | None, sent: float) -> None:
        """SourceError where its clock is far from ours."""
        if date is None:
            return
        ahead = max(0.0, date - clock.wall()) or min(0.0, date + 1 - sent)
        if abs(ahead) > MOST_SKEW:
            how = "ahead of" if ahead > 0 else "behind"
            raise self._wrong(f"its clock is {abs(ahead):.0f} s {how} the action runner's")

    def _wrong(self, text: str) -> SourceError:
        return SourceError(f"{self._where}: {self._service.shown(text)}")


@dataclass(frozen=True)
class Series:
    """The raw samples of one series: ``times`` in epoch seconds, in their order.

    One of native histograms has the count of each as its ``values``, and what is in their buckets
    in ``buckets``: lower and upper bound, and a count.
    """

    labels: Mapping[str, str]
    times: Sequence[float]
    values: Sequence[float]
    buckets: Sequence[Sequence[tuple[float, float, float]]] = ()

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
        raise ValueError(f"warns that its answer is not whole: {_shown(warnings)}")
    if answer.get("isPartial"):
        raise ValueError("says that its answer is partial")
    data = answer.get("data")
    whole = data if isinstance(data, dict) else {}
    kind, rows = whole.get("resultType"), whole.get("result")
    if kind != "matrix" or not isinstance(rows, list):
        raise ValueError(f"answers {_shown(kind)}, and no matrix")
    return [*map(_series, rows)]


def error_text(body: bytes) -> str:
    """The reason in an answer that is an error, or nothing where there is none to be read."""
    try:
        return error_in(_parsed(body))
    except ValueError:
        return ""


def error_in(answer: Mapping[str, Any]) -> str:
    """The reason in an answer that was read, in one line."""
    parts = [answer.get(key) for key in ("errorType", "error")]
    return shortened(": ".join(text for text in parts if isinstance(text, str)), _MOST_SHOWN)


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
        labels, pairs, native = row["metric"], row.get("values", []), row.get("histograms", [])
        # A series may change from one to the other; what is native then stays.
        pairs = [(time, histogram["count"]) for time, histogram in native] if native else pairs
        times, values = [pair[0] for pair in pairs], [float(pair[1]) for pair in pairs]
        buckets = [_buckets(histogram) for _, histogram in native]
        whole = {str}.issuperset(map(type, [*labels, *labels.values()]))
        ordered = times == sorted(times) and {int, float}.issuperset(map(type, times))
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError):
        raise ValueError("answers a series that is none") from None
    if not (whole and ordered):
        raise ValueError("answers a series that is out of order")
    return Series(labels, times, values, buckets)


def _buckets(histogram: Mapping[str, Any]) -> list[tuple[float, float, float]]:
    """Low bound, high bound and count of each; Prometheus sends the rule of its bounds before."""
    buckets = histogram.get("buckets") or ()
    return [(float(low), float(high), float(count)) for _, low, high, count in buckets]


def _shown(value: object) -> str:
    return shortened(json.dumps(value), _MOST_SHOWN)
