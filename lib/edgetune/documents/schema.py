# SPDX-License-Identifier: Apache-2.0
"""Which versions of stored documents this version of the pack understands.

1   quarantined hosts had their reason alone
2   baselines and looks had their rows as lists of numbers (see ``judge.rows``); batches did not
    say what they wait for
3   options of plans had other names (see ``documents.plan``)
4   the present one
"""

from __future__ import annotations

from typing import Any, Callable

from edgetune import RECORD_SCHEMA
from edgetune.documents.reading import check_is, read_document
from edgetune.errors import RefusedError

_MOST_VERSIONS = 100_000


def read_versioned(key: str, text: str) -> dict[str, Any]:
    """The fields of a stored document, as the present version writes them, without ``schema``.

    DamagedError if the text is no document, RefusedError if a later version wrote it.
    """
    document = read_document(key, text)
    schema = document.pop("schema", None)
    refuse_schema(key, schema)
    return {name: _UNDERSTOOD[schema](name, value) for name, value in document.items()}


def is_other_schema(schema: Any) -> bool:
    """Whether another version of the pack wrote it, and its fields may mean something else."""
    return type(schema) is int and 0 < schema < _MOST_VERSIONS and schema not in _UNDERSTOOD


def refuse_schema(key: str, schema: Any) -> None:
    """RefusedError for the schema of another version, DamagedError for none at all."""
    if is_other_schema(schema):
        understood = f"this edgetune understands up to {RECORD_SCHEMA}"
        raise RefusedError(
            f"{key}: a record has schema {schema}, {understood}; "
            "carry the rollout on with the version of the pack that wrote it, or a later one"
        )
    check_is(key, "schema", type(schema) is int and schema in _UNDERSTOOD, "is none of ours")


def _from_first(name: str, value: Any) -> Any:
    if name != "quarantined" or not isinstance(value, dict):
        return value
    return {host: {"reason": reason} for host, reason in value.items()}


_UNDERSTOOD: dict[Any, Callable[[str, Any], Any]] = {
    1: _from_first,
    2: lambda name, value: value,
    3: lambda name, value: value,
    RECORD_SCHEMA: lambda name, value: value,
}
