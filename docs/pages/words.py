# SPDX-License-Identifier: Apache-2.0
"""The words of ``words.yaml``: each subject that code knows has some, and nothing else has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from edgetune.base.errors import InputError
from edgetune.base.files import load_yaml

WORDS = Path(__file__).with_name("words.yaml")


def words(section: str, subjects: Iterable[str] | None = None) -> Mapping[str, Any]:
    """The words of a section; InputError names a subject without words, or words without one.

    Without ``subjects`` it is for a test to compare them, as with the answer of a host.
    """
    found: Mapping[str, Any] = _all()[section]
    known = set(found if subjects is None else subjects)
    for name in sorted(known.symmetric_difference(found)):
        problem = "is missing" if name in known else "is about nothing that there is"
        raise InputError("docs/pages/words.yaml", f"{section}.{name}", problem)
    return found


@cache
def _all() -> Mapping[str, Any]:
    found: Mapping[str, Any] = load_yaml(WORDS)
    return found
