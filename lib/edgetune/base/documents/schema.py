# SPDX-License-Identifier: Apache-2.0
"""Which versions of stored documents this version of the pack understands.

2   baselines and looks had their rows as lists of numbers (see ``documents.baseline``); batches
    did not say what they wait for
3   the type of a batch was called ``what``; a head kept more of its newest look; plans had other
    names, too (see ``documents.plan``)
4   the present one
"""

from __future__ import annotations

from typing import Any, Callable

from edgetune import RECORD_SCHEMA
from edgetune.base.documents.reading import check_is, read_document, renamed
from edgetune.base.errors import RefusedError

_MOST_VERSIONS = 100_000
_KEPT = ("verdict", "decision", "reason")


def read_versioned(key: str, text: str) -> dict[str, Any]:
    """The fields of a stored document, as the present version writes them, without ``schema``.

    DamagedError if the text is no document, RefusedError if a version wrote it that is later, or
    too old.
    """
    document = read_document(key, text)
    schema = document.pop("schema", None)
    refuse_schema(key, schema)
    return _UNDERSTOOD[schema](document)


def is_other_schema(schema: Any) -> bool:
    """Whether another version of the pack wrote it, and its fields may mean something else."""
    return type(schema) is int and 0 < schema < _MOST_VERSIONS and schema not in _UNDERSTOOD


def refuse_schema(key: str, schema: Any) -> None:
    """RefusedError for the schema of another version, DamagedError for none at all."""
    if is_other_schema(schema):
        raise RefusedError(f"{key}: a record has schema {schema}, this edgetune {_way_out(schema)}")
    check_is(key, "schema", type(schema) is int and schema in _UNDERSTOOD, "is none of ours")


def _way_out(schema: int) -> str:
    carry = "carry the rollout on with"
    if schema > RECORD_SCHEMA:
        way = f"{carry} the version of the pack that wrote it, or a later one"
        return f"understands up to {RECORD_SCHEMA}; {way}"
    return f"understands {min(_UNDERSTOOD)} to {RECORD_SCHEMA}; {carry} 0.10, or an earlier version"


def _from_third(document: dict[str, Any]) -> dict[str, Any]:
    batch: dict[str, Any] = renamed(document, {"what": "batch_type"})
    verdict = batch.get("verdict")
    return {**batch, "verdict": _conclusion(verdict)} if isinstance(verdict, dict) else batch


def _conclusion(verdict: dict[str, Any]) -> dict[str, Any] | None:
    """It was empty before the first look."""
    if not verdict:
        return None
    kept = {name: verdict[name] for name in _KEPT if name in verdict}
    rows = verdict.get("metrics") or [{}]
    known = isinstance(rows, list) and isinstance(rows[0], dict)
    return {**kept, "ratio": rows[0].get("ratio") if known else rows}


_UNDERSTOOD: dict[Any, Callable[[dict[str, Any]], dict[str, Any]]] = {
    2: _from_third,
    3: _from_third,
    RECORD_SCHEMA: dict,
}
