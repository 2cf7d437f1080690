# SPDX-License-Identifier: Apache-2.0
"""Write the state of edgetune as a file for node_exporter's textfile collector."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

from edgetune.base.errors import InputError
from edgetune.base.files import write_file
from edgetune.base.names import several
from edgetune.fleet.export.state import read_state
from edgetune.rollout.context import Context


class ExportResult(TypedDict):
    """Where the file is, and how many PoPs lack series in it."""

    path: str
    pops_unknown: int
    message: str


def export_metrics(context: Context) -> ExportResult:
    """Write ``metrics_file`` over an earlier one; changes nothing else, and asks no host.

    InputError: the configuration names no such file, or does not permit it. StoreError: a store is
    away; the earlier file stays, and its ``edgetune_export_timestamp_seconds`` tells its age.
    """
    path = context.config.metrics_file
    if not path:
        raise InputError("configuration", "metrics_file", "is not set; metrics are written there")
    values = read_state(context)
    write_file(Path(path), values.text().encode("utf-8"), "metrics_file")
    unknown = round(values.sum("edgetune_pops_unknown"))
    lacks = f"; a record of {several(unknown, 'PoP')} cannot be read"
    message = f"{path} is written" + (lacks if unknown else "")
    return {"path": path, "pops_unknown": unknown, "message": message}
