# SPDX-License-Identifier: Apache-2.0
"""ClickHouse over HTTP: one query, and an answer that is proven to be whole.

ClickHouse sends 200 before a query has run. One that fails midway has its exception at the end of
the body, or in a header. So the whole answer is one document of JSON that counts its own rows, and
the server sends nothing of it before its end (``wait_end_of_query``).
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Timer
from typing import TYPE_CHECKING, Any

from edgetune.dataclass import dataclass
from edgetune.errors import InputError, SourceError
from edgetune.files import load_json
from edgetune.sanitize import shortened
from edgetune.secret_files import read_private

if TYPE_CHECKING:
    import requests

MOST_ROWS = 250_000
MOST_BYTES = 128 << 20
"""Of one answer: the text of so many rows has about 30 MB."""

_CONNECT = 5.0
# Seconds by which a query ends before we go, so that ClickHouse says why.
_BEFORE = 2.0
_PART = 1 << 16
_LONGEST = 400

_SETTINGS: Mapping[str, object] = {
    # 1 would refuse the settings that follow, 2 refuses every change of data.
    "readonly": 2,
    "max_result_rows": MOST_ROWS,
    "max_result_bytes": MOST_BYTES,
    # A profile may have another value of these, and then a part of an answer passes for all of it.
    **dict.fromkeys(
        ("result_overflow_mode", "read_overflow_mode", "timeout_overflow_mode"), "throw"
    ),
    "skip_unavailable_shards": 0,
    "limit": 0,
    "offset": 0,
    # NaN is null, and a number has no quotes.
    "output_format_json_quote_denormals": 0,
    "output_format_json_quote_64bit_integers": 0,
}


class SilentError(SourceError):
    """No answer came, or not in time."""


@dataclass(frozen=True)
class Server:
    """One ClickHouse, and how to log in there; ``where`` names it, and for which PoP, in errors."""

    where: str
    url: str
    user: str = ""
    password_file: str = ""
    ca_file: str = ""

    def query(
        self, sql: str, parameters: Mapping[str, str], columns: Sequence[str], deadline: float
    ) -> list[list[Any]]:
        """The rows of a SELECT with these columns; ``deadline`` is of ``time.monotonic``.

        Parameters stand in the SQL as ``{NAME:TYPE}``, and never in its text. SourceError where the
        answer is not whole, SilentError where none came in time, InputError for a file of ours
        that cannot be read.
        """
        body = self._ask(sql, parameters, deadline)
        try:
            answer = load_json(body.decode("utf-8"))
        except ValueError:
            raise self.wrong(f"its answer has no end: {_end_of(body)}") from None
        return self._whole(answer, columns)

    def wrong(self, problem: str) -> SourceError:
        """An error about what it answered, to be raised."""
        return SourceError(f"{self.where}: {shortened(problem, _LONGEST)}")

    def _ask(self, sql: str, parameters: Mapping[str, str], deadline: float) -> bytes:
        import requests

        if self.ca_file and not os.access(self.ca_file, os.R_OK):
            raise InputError("inventory", f"ca_file of {self.where}", "cannot be read")
        headers, left = self._headers(), self._left(deadline)
        try:
            with requests.Session() as session:
                session.trust_env = False
                answer = session.post(
                    self.url,
                    params=_settings(left),
                    files=_form(sql, parameters),
                    headers=headers,
                    verify=self.ca_file or True,
                    timeout=(min(_CONNECT, left), left),
                    allow_redirects=False,
                    stream=True,
                )
                with answer, _hung_up(answer, self._left(deadline)):
                    return self._read(answer, deadline)
        except (requests.RequestException, OSError) as error:
            self._left(deadline)
            raise SilentError(f"{self.where}: does not answer: {_why(error)}") from None

    def _headers(self) -> dict[str, str]:
        password = read_private(self.password_file, f"password_file of {self.where}")
        login = {"X-ClickHouse-User": self.user, "X-ClickHouse-Key": password}
        given = {name: value for name, value in login.items() if value}
        return {"Accept-Encoding": "identity", **given}

    def _read(self, answer: requests.Response, deadline: float) -> bytes:
        body = b"".join(self._parts(answer))
        self._left(deadline)
        code = answer.headers.get("X-ClickHouse-Exception-Code", "")
        if answer.status_code != 200 or code:
            told = body.decode("utf-8", "replace").strip() or f"exception {code}"
            raise self.wrong(f"answers {answer.status_code}: {told}")
        return body

    def _parts(self, answer: requests.Response) -> Iterator[bytes]:
        size = 0
        for part in answer.iter_content(_PART):
            size += len(part)
            if size > MOST_BYTES:
                raise self.wrong(f"its answer is longer than {MOST_BYTES >> 20} MB")
            yield part

    def _left(self, deadline: float) -> float:
        left = deadline - time.monotonic()
        if left <= 0:
            raise SilentError(f"{self.where}: its whole answer did not come in time")
        return left

    def _whole(self, answer: Any, columns: Sequence[str]) -> list[list[Any]]:
        if not isinstance(answer, dict):
            raise self.wrong("its answer is no object of JSON")
        failed = answer.get("exception", "")
        if failed != "":
            raise self.wrong(f"failed midway: {failed}")
        rows, meta = answer.get("data"), answer.get("meta")
        if not isinstance(rows, list) or not isinstance(meta, list):
            raise self.wrong("its answer has no data, or does not say of which columns")
        named = [own.get("name") if isinstance(own, dict) else None for own in meta]
        if named != [*columns]:
            raise self.wrong(f"its answer has other columns than were asked for: {named}")
        if answer.get("rows") != len(rows):
            raise self.wrong(f"{len(rows)} rows came, and it counted {answer.get('rows')}")
        if not all(isinstance(row, list) and len(row) == len(columns) for row in rows):
            raise self.wrong("a row of its answer has another number of columns")
        return rows


def _settings(left: float) -> dict[str, str]:
    """Of the address: a form is read after them."""
    seconds = max(1, int(left - _BEFORE))
    settings = {**_SETTINGS, "max_execution_time": seconds, "wait_end_of_query": 1}
    return {name: str(value) for name, value in settings.items()}


def _form(sql: str, parameters: Mapping[str, str]) -> dict[str, tuple[None, str]]:
    """The query and its parameters: proxies take no address with the names of all hosts."""
    named = {f"param_{name}": text for name, text in parameters.items()}
    form = {"query": f"{sql} FORMAT JSONCompact", **named}
    return {name: (None, text) for name, text in form.items()}


@contextmanager
def _hung_up(answer: requests.Response, seconds: float) -> Iterator[None]:
    """Ends the connection after so many seconds: the timeout of a socket begins anew at each byte
    that drips in."""
    if answer.raw.closed:
        yield
        return
    # A socket of our own: the number of the other one may be another's when the time is up.
    sock = socket.socket(fileno=os.dup(answer.raw.fileno()))
    timer = Timer(seconds, _shut, [sock])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        sock.close()


def _shut(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _why(error: BaseException) -> str:
    """What began it: requests and urllib3 wrap one error into another."""
    while error.__context__ is not None:
        error = error.__context__
    return shortened(str(error) or type(error).__name__, _LONGEST)


def _end_of(body: bytes) -> str:
    """Where the exception of a query stands that failed midway."""
    return body[-_LONGEST:].decode("utf-8", "replace").strip() or "it is empty"
