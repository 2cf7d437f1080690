# SPDX-License-Identifier: Apache-2.0
"""Cases as data: a YAML file of one mapping for each case, whose name is a sentence."""

from __future__ import annotations

import os
import pickle
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml


def table(file: Path, loader: Any = yaml.SafeLoader) -> Any:
    """The document in a YAML file, which is parsed once: each worker of each run reads all tables.

    It lies parsed where compiled modules do.
    """
    text = file.read_bytes()
    key = (sha256(text).digest(), loader.__name__)
    kept = file.parent / "__pycache__" / f"{file.name}.{sys.implementation.cache_tag}.pickle"
    with suppress(OSError, EOFError, ValueError, pickle.UnpicklingError):
        known, document = pickle.loads(kept.read_bytes())
        if known == key:
            return document
    document = yaml.load(text.decode("utf-8"), loader)  # noqa: S506
    if not sys.dont_write_bytecode:
        with suppress(OSError):
            kept.parent.mkdir(exist_ok=True)
            own = kept.with_suffix(f".{os.getpid()}")
            own.write_bytes(pickle.dumps((key, document)))
            own.replace(kept)
    return document


def cases(file: Path) -> list[Any]:
    """The cases of a file as parameters of a test: ``{sentence: {field: value}}``."""
    return [pytest.param(case, id=name) for name, case in table(file).items()]


def rows(file: Path, name: str) -> list[Any]:
    """The rows of one table of a file, as parameters of a test; its columns stand above it."""
    found: list[Any] = table(file)[name]
    return found


def fits(seen: str, wanted: str) -> bool:
    """Whether a text is the one that a case wants; ``...`` stands for any."""
    pattern = ".*".join(map(re.escape, wanted.split("...")))
    return re.fullmatch(pattern, seen, re.DOTALL) is not None


def unlike(seen: Any, wanted: Any, at: str = "") -> Iterator[str]:
    """Where a document differs from what a case wants: of a mapping the fields that it names, of
    numbers with a point about one in twenty, and texts as ``fits`` has it."""
    if isinstance(wanted, Mapping) and isinstance(seen, Mapping) and wanted:
        for key, own in wanted.items():
            yield from unlike(seen.get(key), own, f"{at}.{key}".lstrip("."))
        return
    if isinstance(wanted, list) and isinstance(seen, (list, tuple)) and len(seen) == len(wanted):
        for number, own in enumerate(wanted):
            yield from unlike(seen[number], own, f"{at}[{number}]")
        return
    if isinstance(wanted, str) and isinstance(seen, str):
        same = fits(seen, wanted)
    elif isinstance(wanted, float) and isinstance(seen, (int, float)):
        same = seen == pytest.approx(wanted, rel=0.05)
    else:
        same = seen == wanted
    if not same:
        yield f"{at} is {seen!r}, not {wanted!r}"
