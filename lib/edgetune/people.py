# SPDX-License-Identifier: Apache-2.0
"""Names of people, compared so that no second spelling of one makes two of them."""

from __future__ import annotations

import unicodedata

from edgetune.errors import RefusedError

# Written with several scripts as a matter of course.
_EAST_ASIAN = frozenset(("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"))
# Small letters that look like those of the Latin alphabet, after NFKC and casefold.
_LIKE_LATIN = str.maketrans(
    "аеорсухіјѕһԁԛԝкмтвнгӏьαονρτυικηχγεωօոսցհıɑɡɩʋɪʏȷ",
    "aeopcyxijshdqwkmtbhrlbaovptuiknxyewonughiagiviyj",
)


def same_person(one: str, other: str) -> bool:
    """Whether two names are one, or look like one; nobody is a stranger to a name that is unknown.

    RefusedError if a name cannot be compared.
    """
    names = [comparable(name) for name in (one, other)]
    if not all(names) or names[0] == names[1]:
        return True
    return not "".join(names).isascii() and _looks(names[0]) == _looks(names[1])


def comparable(name: str) -> str:
    """A name without differences that nobody sees; RefusedError if it hides or mixes letters."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    words = " ".join(folded.split())
    if any(unicodedata.category(char)[0] == "C" for char in words):
        raise RefusedError(f"{name!r} is no name to compare: it holds characters that do not show")
    scripts = {_script(char) for char in words if char.isalpha()}
    if len(scripts) > 1:
        mixed = " and ".join(sorted(scripts))
        raise RefusedError(f"{name!r} is no name to compare: it mixes {mixed} letters")
    return words


def _script(char: str) -> str:
    word = unicodedata.name(char, "UNKNOWN").split(maxsplit=1)[0]
    return "CJK" if word in _EAST_ASIAN else word


def _looks(name: str) -> str:
    parts = unicodedata.normalize("NFKD", name)
    bare = (char for char in parts if unicodedata.category(char)[0] != "M")
    return "".join(bare).translate(_LIKE_LATIN)
