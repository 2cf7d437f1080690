# SPDX-License-Identifier: Apache-2.0
"""Mistakes that would take another number than the one that a person wrote."""

from __future__ import annotations

from tests.mutants.mutation import mutations_of

OPTIONS = mutations_of(
    "lib/edgetune",
    ["lib/test_options", "lib/test_durations"],
    (
        "an option below its bound is taken",
        "options.py",
        "        if not value >= least:\n",
        "        if False:\n",
    ),
    (
        "an option above its bound is taken",
        "options.py",
        "        if self.most is not None and value > self.most:\n",
        "        if False:\n",
    ),
    (
        "an option need not be as long as others ask for",
        "options.py",
        " if self.multiples else []\n        least, why",
        " if False else []\n        least, why",
    ),
    ("a minute is an hour", "durations.py", '"m": 60}', '"m": 3600}'),
    (
        "minutes without their unit are seconds",
        "durations.py",
        "(?:{_SECONDS}s)?|{_SECONDS}",
        "(?:{_SECONDS}s?)?|{_SECONDS}",
    ),
    (
        "a negative duration is taken",
        "durations.py",
        "if not 0 <= seconds",
        "if not -1e9 <= seconds",
    ),
)
