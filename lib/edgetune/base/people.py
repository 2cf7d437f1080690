# SPDX-License-Identifier: Apache-2.0
"""Names of people, compared so that no second spelling of one makes two of them; and how records
are signed: by a person, by a ``rule PACK.NAME``, or by a ``recovery`` of either."""

from __future__ import annotations

import itertools
import re
import unicodedata

from edgetune.base.dataclass import dataclass
from edgetune.base.errors import RefusedError

# How Slack and Discord write that somebody is meant, with what they show for it: <@U012AB|ana>.
_MENTION = re.compile(r"<(?:@[!&]?|mailto:)([^<>|]*)(?:\|([^<>]*))?>")
# Accounts: of Slack (U012AB), of Teams (29:1...), of Discord and Telegram, of Mattermost, UUIDs.
_ACCOUNT = re.compile(
    r"[UW](?=[A-Z]*[0-9])[0-9A-Z]{5,}|29:\S+|[0-9]{5,}|(?=[a-z]*[0-9])[0-9a-z]{26}|"
    r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
)
# Written with several scripts as a matter of course.
_EAST_ASIAN = frozenset(("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"))
# Small letters that look like those of the Latin alphabet, after NFKC and casefold.
_LIKE_LATIN = str.maketrans(
    "аеорсухіјѕһԁԛԝкмтвнгӏьαονρτυικηχγεωօոսցհıɑɡɩʋɪʏȷ",
    "aeopcyxijshdqwkmtbhrlbaovptuiknxyewonughiagiviyj",
)


@dataclass(frozen=True)
class Person:
    """What a text tells of somebody, as it is compared: ``names``, and the id of an ``account``.

    Either may be empty; with both empty nobody is meant.
    """

    names: frozenset[str] = frozenset()
    account: str = ""

    def __bool__(self) -> bool:
        return bool(self.names or self.account)

    def __str__(self) -> str:
        return " or ".join([*sorted(self.names), *filter(None, [self.account])])


def same_person(one: str, other: str) -> bool:
    """Whether two texts mean one person, or look so; nobody is a stranger to an unknown one.

    RefusedError if they cannot be compared.
    """
    first, second = person(one), person(other)
    if not (first and second) or _all_of(first) & _all_of(second):
        return True
    if first.names and second.names:
        pairs = itertools.product(first.names, second.names)
        return any(not f"{a}{b}".isascii() and _looks(a) == _looks(b) for a, b in pairs)
    if first.account and second.account:
        return False
    raise RefusedError(
        f"{one} and {other} cannot be compared: one is the id of an account, the other a name. Let "
        "both ask in chat, or both with st2, or let somebody approve with a name of the same kind"
    )


def person(text: str) -> Person:
    """Whom a text means, without what chats and directories add to a name.

    ``@ana``, ``<@ana>``, ``ana@corp``, ``CORP\\ana`` and ``Ana`` are one: nobody knows here which
    domains are of one company. RefusedError if it hides or mixes letters.
    """
    shown = unicodedata.normalize("NFKC", text).strip()
    mention = _MENTION.fullmatch(shown)
    parts = [part for part in (mention.groups("") if mention else [shown]) if part]
    accounts = {part: _account(part) for part in parts}
    names = {comparable(part) for part, account in accounts.items() if not account}
    account = next(filter(None, accounts.values()), "")
    return Person(frozenset(names - {""}), account.casefold())


def signed(given: str, caller: str, system: str) -> str:
    """Who did it, for records: what is ``given``, and whom StackStorm or the chat knows as the
    ``caller``. As the ``system`` user rules act, which give their names."""
    if not caller or caller == system or given == caller or given.endswith(f" of {caller}"):
        return given
    return f"{caller} as {given}" if given else caller


ACTORS = ("person", "rule", "recovery")
# Earlier versions signed with the name of the workflow, or with nothing.
_RECOVERIES = re.compile(
    r"recovery .*|rule (?:\w+\.)?recover_\w+|recover_orphans|rollout_pop|promote_rollout|"
    r"advance_rollout|"
)


def actor(by: str) -> str:
    """Which of ``ACTORS`` signed so."""
    if _RECOVERIES.fullmatch(by):
        return "recovery"
    return "rule" if by.startswith("rule ") else "person"


def _account(text: str) -> str:
    """Of U012AB, and of UUID@ISSUER, as OpenID Connect has it; "" where it is none."""
    account = _bare(text).split("@")[0]
    return account if _ACCOUNT.fullmatch(account) else ""


def _all_of(whom: Person) -> frozenset[str]:
    return whom.names | frozenset(filter(None, [whom.account]))


def comparable(name: str) -> str:
    """A name without differences that nobody sees; RefusedError if it hides or mixes letters."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    if any(unicodedata.category(char)[0] == "C" for char in "".join(folded.split())):
        raise RefusedError(f"{name!r} is no name to compare: it holds characters that do not show")
    # An account without its domain: of ana+x@corp, ana/admin@CORP, ana:corp and corp\ana.
    account = re.split(r"[@:/+]", _bare(folded).rpartition("\\")[2], maxsplit=1)[0]
    words = " ".join(_bare(account).split())
    scripts = {_script(char) for char in words if char.isalpha()}
    if len(scripts) > 1:
        mixed = " and ".join(sorted(scripts))
        raise RefusedError(f"{name!r} is no name to compare: it mixes {mixed} letters")
    return words


def _bare(text: str) -> str:
    """Without what is no letter, no digit and no mark at either end."""
    kept = [place for place, char in enumerate(text) if unicodedata.category(char)[0] in "LNM"]
    return text[kept[0] : kept[-1] + 1] if kept else ""


def _script(char: str) -> str:
    word = unicodedata.name(char, "UNKNOWN").split(maxsplit=1)[0]
    return "CJK" if word in _EAST_ASIAN else word


def _looks(name: str) -> str:
    parts = unicodedata.normalize("NFKD", name)
    bare = (char for char in parts if unicodedata.category(char)[0] != "M")
    return "".join(bare).translate(_LIKE_LATIN)
