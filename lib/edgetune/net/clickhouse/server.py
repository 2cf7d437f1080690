# SPDX-License-Identifier: Apache-2.0
"""ClickHouse over HTTP: one query, and an answer that is proven to be whole.

ClickHouse sends 200 before a query has run. One that fails midway has its exception at the end of
the body, or in a header. So the whole answer is one document of JSON that counts its own rows, and
the server sends nothing of it before its end (``wait_end_of_query``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from edgetune.base.dataclass import dataclass
from edgetune.base.errors import InputError, SilentError, SourceError
from edgetune.base.sanitize import shortened
from edgetune.base.secret_files import read_private
from edgetune.net.connection import LateError, Tls, left
from edgetune.net.http import Answer, LongAnswerError, NetError, Service, query_of
from edgetune.site.inventory import Host

MOST_ROWS = 250_000
MOST_BYTES = 128 << 20
"""Of one answer: the text of so many rows has about 30 MB."""

# Seconds by which a query ends before we go, so that ClickHouse says why.
_BEFORE = 2.0
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

# ClickHouse takes 128 KiB for the value of a field.
_HOSTS_OF_A_FIELD = 500


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
        """The rows of a SELECT with these columns; ``deadline`` is of ``clock.monotonic``.

        Parameters stand in the SQL as ``{NAME:TYPE}``, and never in its text. SourceError where the
        answer is not whole, SilentError where none came in time, InputError for a file of ours
        that cannot be read.
        """
        answer = self._ask(sql, parameters, deadline)
        try:
            document = answer.document()
        except ValueError:
            # There stands the exception of a query that failed midway.
            end = answer.body[-_LONGEST:].decode("utf-8", "replace").strip() or "it is empty"
            raise self.wrong(f"its answer has no end: {end}") from None
        return self._whole(document, columns)

    def wrong(self, problem: str) -> SourceError:
        """An error about what it answered, to be raised."""
        return SourceError(f"{self.where}: {shortened(problem, _LONGEST)}")

    def _ask(self, sql: str, parameters: Mapping[str, str], deadline: float) -> Answer:
        if self.ca_file and not os.access(self.ca_file, os.R_OK):
            raise InputError("inventory", f"ca_file of {self.where}", "cannot be read")
        password = read_private(self.password_file, f"password_file of {self.where}")
        login = {"X-ClickHouse-User": self.user, "X-ClickHouse-Key": password}
        kind, form = _form(sql, parameters)
        headers = {"Content-Type": kind, "Accept-Encoding": "identity"}
        headers.update({name: value for name, value in login.items() if value})
        try:
            most = max(1, int(left(deadline) - _BEFORE))
            # They stand in the address: a form is read after them.
            settings = {**_SETTINGS, "max_execution_time": most, "wait_end_of_query": 1}
            path = query_of({name: str(value) for name, value in settings.items()})
            context = Tls(self.ca_file).context
            with Service(self.url, {}, [password], context, MOST_BYTES) as service:
                answer = service.ask("POST", path, deadline, form, headers)
        except LongAnswerError as error:
            raise self.wrong(str(error)) from None
        except (NetError, LateError) as error:
            raise SilentError(f"{self.where}: {error}") from None
        code = answer.headers.get("x-clickhouse-exception-code", "")
        if answer.status != 200 or code:
            problem = answer.body.decode("utf-8", "replace").strip() or f"exception {code}"
            raise self.wrong(service.shown(f"answers {answer.status}: {problem}", _LONGEST))
        return answer

    def _whole(self, answer: Any, columns: Sequence[str]) -> list[list[Any]]:
        if not isinstance(answer, dict):
            raise self.wrong("its answer is no object of JSON")
        failed = answer.get("exception", "")
        if failed != "":
            raise self.wrong(f"failed midway: {failed}")
        rows, meta = answer.get("data"), answer.get("meta")
        if not isinstance(rows, list) or not isinstance(meta, list):
            raise self.wrong("its answer has no data, or does not say of which columns")
        named = [column.get("name") if isinstance(column, dict) else None for column in meta]
        if named != [*columns]:
            raise self.wrong(f"its answer has other columns than were asked for: {named}")
        if answer.get("rows") != len(rows):
            raise self.wrong(f"{len(rows)} rows came, and it counted {answer.get('rows')}")
        if not all(isinstance(row, list) and len(row) == len(columns) for row in rows):
            raise self.wrong("a row of its answer has another number of columns")
        return rows


def _form(sql: str, parameters: Mapping[str, str]) -> tuple[str, bytes]:
    """The type and the text of a form with the query and its parameters (RFC 7578).

    Proxies take no address with the names of all hosts.
    """
    named = {f"param_{name}": text for name, text in parameters.items()}
    form = {"query": f"{sql} FORMAT JSONCompact", **named}
    between = os.urandom(16).hex()
    head = f'--{between}\r\nContent-Disposition: form-data; name="{{}}"\r\n\r\n{{}}\r\n'
    parts = "".join(head.format(name, text) for name, text in form.items())
    return f"multipart/form-data; boundary={between}", f"{parts}--{between}--\r\n".encode()


def by_value(hosts: Sequence[Host], template: str, where: str) -> dict[str, str]:
    """The name of each host by what a table has for it; InputError if two have the same.

    ``template`` is the field ``host_value`` of the inventory, ``where`` names the server.
    """
    names: dict[str, str] = {}
    for host in hosts:
        value = template.replace("{name}", host.name).replace("{address}", host.address)
        if names.setdefault(value, host.name) != host.name:
            text = f"{value!r} stands for {names[value]} and for {host.name}"
            raise InputError("inventory", f"host_value of {where}", text)
    return names


def parameters_of(values: Sequence[str]) -> dict[str, str]:
    """Parameters with all of them: ``hosts0``, ``hosts1`` and so on."""
    parts = [
        values[first : first + _HOSTS_OF_A_FIELD]
        for first in range(0, len(values), _HOSTS_OF_A_FIELD)
    ]
    return {f"hosts{number}": array_of(part) for number, part in enumerate(parts)}


def is_one_of(parameters: Sequence[str]) -> str:
    """The SQL of: the column ``host`` is in one of these parameters."""
    conditions = (f"{{host:Identifier}} IN {{{name}:Array(String)}}" for name in parameters)
    return f"({' OR '.join(conditions)})"


def array_of(texts: Sequence[str]) -> str:
    """As ClickHouse writes an Array(String)."""
    quoted = (text.replace("\\", "\\\\").replace("'", "\\'") for text in texts)
    return "[" + ",".join(f"'{text}'" for text in quoted) + "]"
