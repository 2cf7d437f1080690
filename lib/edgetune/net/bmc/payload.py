# SPDX-License-Identifier: Apache-2.0
"""What a BMC says, taken with care: it may have any shape, and its texts are a stranger's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from edgetune.base.errors import EdgetuneError

MAX_TEXT = 200
MAX_ERROR = 2000
_MOST_ARGUMENTS = 20
_ARGUMENT = re.compile(r"%([1-9]\d?)")
# Bytes in hexadecimal, four or more, or a number.
_RAW = re.compile(r"((0x)?[0-9a-fA-F]{2}[ ,:]*){4,}|0x[0-9a-fA-F]+")
_GOOD = ("Success", "NoOperation", "SystemResetRequired", "ResetRequired")


class BmcError(EdgetuneError):
    """A BMC did not do what was asked; ``reason`` is one of those of a HostResult: ``refused``,
    ``failed``, ``unreachable``, ``auth``, ``tls``, ``garbage``, ``busy``..."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.word = reason


def text_of(value: object) -> str:
    """A value of an attribute as a tuning would write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def said(value: object, most: int = MAX_TEXT) -> str:
    """A value as text that can be shown: nothing unprintable, at most ``most`` characters."""
    # An iDRAC puts spaces that do not break between words.
    spaced = (" " if one.isspace() else one for one in text_of(value)[: 2 * most])
    return "".join(filter(str.isprintable, spaced))[:most]


def is_secret(attribute: str) -> bool:
    """Whether an attribute is a password, by its name; some BIOSes show one that is pending."""
    # A Supermicro numbers its attributes.
    return re.search(r"password(_[0-9a-f]{4})?$", attribute, re.IGNORECASE) is not None


def same(one: object, other: object) -> bool:
    """Whether two values are the same setting: ``10`` and ``"10"`` are, ``True`` and ``"true"``."""
    return (one is None) == (other is None) and text_of(one) == text_of(other)


def at(data: object, *names: str) -> object:
    """What stands below these names; None where the way ends."""
    for name in names:
        data = data.get(name) if isinstance(data, Mapping) else None
    return data


def text_at(data: object, *names: str) -> str:
    """The text that stands there, fit to be shown, or ""."""
    value = at(data, *names)
    return said(value) if isinstance(value, str) else ""


def list_at(data: object, *names: str) -> list[object]:
    """The list that stands there, or an empty one."""
    value = at(data, *names)
    return value if isinstance(value, list) else []


def link_at(data: object, *names: str) -> str:
    """Where a link leads, or ""; an iLO 4 spells it ``href``, that of a registry ``extref``."""
    value = at(data, *names)
    link = at(value, "@odata.id") or at(value, "href") or at(value, "extref") or value
    return link if isinstance(link, str) else ""


def last_part(link: str) -> str:
    """The name that a link ends with."""
    return link.split("?")[0].rstrip("/").rpartition("/")[2]


class Message(NamedTuple):
    """What a BMC says; ``about`` are the properties and arguments that it names."""

    id: str
    severity: str
    text: str
    about: set[str]


def messages_of(data: object) -> list[Message]:
    """Messages of an error or of a resource.

    An iLO 4 spells ``MessageID``, and
    gives neither severity nor text (HewlettPackard/ilo-rest-api-docs, ``_ilo4_errors.md``). An
    iDRAC 8 gives one message instead of a list (openstack/sushy, ``exceptions.py``), and some
    BMCs nothing but the ``code`` and the ``message`` of the error.
    """
    messages = []
    for message in _listed(data):
        name = text_at(message, "MessageId") or text_at(message, "MessageID")
        about = list_at(message, "RelatedProperties") + list_at(message, "MessageArgs")
        severity = text_at(message, "Severity") or text_at(message, "MessageSeverity")
        named = {last_part(said(part).lstrip("#")) for part in about}
        messages.append(Message(name, severity, message_text(message) or name, named))
    return messages


def message_text(message: object) -> str:
    """Its ``Message``, with the arguments that it leaves to its reader (DSP0266, "Message object").

    What is no text for people, as the bytes of a system event log, is called raw.
    """
    text = text_at(message, "Message")
    arguments = dict(enumerate(map(said, list_at(message, "MessageArgs")[:_MOST_ARGUMENTS]), 1))
    text = _ARGUMENT.sub(lambda match: arguments.get(int(match[1]), match[0]), text)
    return said(f"raw: {text}" if _RAW.fullmatch(text) else text)


def is_bad(message: Message) -> bool:
    """Whether it tells of something that was not done."""
    if message.id.replace(":", ".").rpartition(".")[2] in _GOOD:
        return False
    # "Informational" is of an iDRAC.
    return message.severity not in ("OK", "Informational")


def errors_of(data: object) -> list[Message]:
    """The messages of an ``error`` that tell of something that was not done.

    HPE puts what succeeded into an ``error``, too: "SystemResetRequired".
    """
    return [message for message in messages_of(at(data, "error")) if is_bad(message)]


def _listed(data: object) -> list[object]:
    info = at(data, "@Message.ExtendedInfo")
    if isinstance(info, Mapping):
        return [info]
    alone = {"MessageId": at(data, "code"), "Message": at(data, "message")}
    return (
        list_at(data, "@Message.ExtendedInfo")
        or list_at(data, "Messages")
        or [alone] * bool(text_at(data, "message"))
    )
