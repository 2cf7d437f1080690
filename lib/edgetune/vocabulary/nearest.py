# SPDX-License-Identifier: Apache-2.0
"""What somebody may have meant."""

import difflib
from typing import Iterable, Optional


def nearest(word: str, choices: Iterable[str]) -> Optional[str]:
    """The one of ``choices`` that a misspelt word is most like; None where none is like it."""
    close = difflib.get_close_matches(word[:100], list(choices), 1)
    return close[0] if close else None
