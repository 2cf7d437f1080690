# SPDX-License-Identifier: Apache-2.0
"""What somebody may have meant."""

from typing import Iterable, Optional


def nearest(word: str, choices: Iterable[str]) -> Optional[str]:
    """The one of ``choices`` that a misspelt word is most like; None where none is like it."""
    # Only a mistake needs it, and each action and each agent would import it.
    import difflib

    close = difflib.get_close_matches(word[:100], list(choices), 1)
    return close[0] if close else None
