# SPDX-License-Identifier: Apache-2.0
"""Asks one Prometheus for raw samples, within bounds of time and size."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from edgetune.errors import SourceError
from edgetune.json_service import silence
from edgetune.prometheus.access import Access
from edgetune.prometheus.answers import Series, error_text, read_matrix

CONNECT, DEADLINE = 5.0, 30.0
"""Seconds to connect, and for one whole answer."""
MOST_BYTES = 48 << 20
"""Of one answer: some 1,500,000 samples."""
MOST_SKEW = 5.0
"""Seconds by which its clock may differ from ours: samples carry its time, rollouts ours."""

CHUNK = 1 << 18
"""Bytes that are read before the time is looked at."""

_MOST_ERROR = 65_536
# Thanos gives what one replica has, of all stores, as it was scraped. Others ignore these words.
_WHOLE = {"dedup": "true", "partial_response": "false", "max_source_resolution": "0s"}


class TooLarge(SourceError):
    """An answer has more than MOST_BYTES, or would take more samples than Prometheus reads at once;
    a shorter time has fewer."""


class SilentError(SourceError):
    """No answer came, or not in time."""


class Client:
    """One Prometheus; ``where`` names it, and the PoP that it is asked for, in errors.

    Each answer has ended ``deadline`` seconds after its question, DEADLINE unless given.
    """

    def __init__(self, access: Access, where: str, deadline: float | None = None) -> None:
        import requests

        self._where = where
        self._deadline = DEADLINE if deadline is None else deadline
        self._url = f"{access.url.rstrip('/')}/api/v1"
        self._session = requests.Session()
        # Neither a proxy nor a .netrc of the environment is meant for it.
        self._session.trust_env = False
        self._session.headers.update(access.headers())
        self._session.verify = access.verify
        self._session.cert = access.certificate

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

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
        body = self._posted(what, {**_WHOLE, **parameters, "timeout": timeout})
        try:
            return read_matrix(body)
        except ValueError as error:
            raise self._wrong(str(error)) from None

    def _posted(self, what: str, parameters: Mapping[str, str]) -> bytes:
        import requests

        sent, ends = time.time(), time.monotonic() + self._deadline
        try:
            with self._session.post(
                f"{self._url}/{what}",
                data=parameters,
                timeout=(CONNECT, self._deadline),
                stream=True,
                allow_redirects=False,
            ) as answer:
                if answer.status_code != 200:
                    raise self._refused(answer)
                self._check_clock(answer.headers.get("Date", ""), sent)
                return self._body(answer, ends, MOST_BYTES)
        except (requests.RequestException, OSError) as error:
            raise SilentError(f"{self._where}: {silence(error)}") from None

    def _body(self, answer: Any, end: float, most: int) -> bytes:
        parts, size = [], 0
        for part in answer.iter_content(CHUNK):
            parts.append(part)
            size += len(part)
            if size > most:
                raise TooLarge(f"{self._where}: answers more than {most >> 20} MiB")
            if time.monotonic() > end:
                told = f"did not end its answer within {self._deadline:.0f} s"
                raise SilentError(f"{self._where}: {told}")
        return b"".join(parts)

    def _refused(self, answer: Any) -> SourceError:
        body = answer.raw.read(_MOST_ERROR, decode_content=True)
        told = f"answers {answer.status_code}: {error_text(body) or answer.reason or ''}"
        if "too many samples" in told:
            return TooLarge(f"{self._where}: {told}")
        return self._wrong(told)

    def _check_clock(self, date: str, sent: float) -> None:
        """SourceError where its clock is far from ours; a header has whole seconds."""
        try:
            told = parsedate_to_datetime(date).timestamp()
        except (TypeError, ValueError):
            return
        ahead = max(0.0, told - time.time()) or min(0.0, told + 1 - sent)
        if abs(ahead) > MOST_SKEW:
            how = "ahead of" if ahead > 0 else "behind"
            raise self._wrong(f"its clock is {abs(ahead):.0f} s {how} the action runner's")

    def _wrong(self, text: str) -> SourceError:
        return SourceError(f"{self._where}: {text}")
