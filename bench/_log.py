# SPDX-License-Identifier: Apache-2.0
"""A log of JSON lines, with which a long run that was interrupted goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def read_lines(log: Path | None) -> Iterator[dict[str, Any]]:
    """Its documents, oldest first, without lines that are not whole."""
    if log is None or not log.exists():
        return
    for line in log.read_text(encoding="utf-8").splitlines():
        try:
            document = json.loads(line)
        except ValueError:
            continue
        if isinstance(document, dict):
            yield document


def append(log: Path | None, document: dict[str, Any]) -> None:
    """Add a document to the log, after a line that may have been cut off."""
    if log is None:
        return
    with log.open("a+b") as file:
        file.seek(max(0, file.tell() - 1))
        start = b"" if file.read(1) in (b"", b"\n") else b"\n"
        file.write(start + json.dumps(document).encode() + b"\n")
