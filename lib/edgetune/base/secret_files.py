# SPDX-License-Identifier: Apache-2.0
"""Passwords, tokens and keys, each in a separate file on the action runners.

A file is read whenever it is needed: it may have been renewed. No error shows what it holds.
"""

from __future__ import annotations

import re
import stat
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

from edgetune.base.dataclass import dataclass
from edgetune.base.errors import InputError
from edgetune.base.fields import Field
from edgetune.base.files import read_file

_MOST_BYTES = 65_536


def read_secret(file: str, field: str) -> str | None:
    """What the file of a field of the configuration holds, or None where that is empty."""
    try:
        return Path(file).read_text(encoding="utf-8").strip() if file else None
    except (OSError, UnicodeError) as error:
        raise InputError("configuration", field, f"cannot be read: {error}") from None


def read_private(file: str, field: str, where: str = "configuration") -> str:
    """The line that a file holds, or "" where none is named.

    InputError names the field and shows nothing of the line: others can read the file, or it holds
    more than a line of ASCII, which no header can carry.
    """
    try:
        path = Path(file)
        if file and path.stat().st_mode & stat.S_IRWXO:
            raise InputError(where, field, f"others can read {file}; chmod o= it")
        text = read_file(path, _MOST_BYTES).decode("ascii").strip() if file else ""
    except UnicodeDecodeError:
        raise InputError(where, field, "holds no secret in one line") from None
    except (OSError, ValueError) as error:
        raise InputError(where, field, f"cannot be read: {error}") from None
    if file and not re.fullmatch(r"[ -~]+", text):
        raise InputError(where, field, "holds no secret in one line")
    return text


@dataclass(frozen=True)
class Authorization:
    """The ``headers`` by which HTTP logs in, if any, and what of them nobody may see."""

    headers: Mapping[str, str]
    secrets: tuple[str, ...] = ()


_PATH = r"(/[^\0-\x1f\x7f]*)?"
LOGIN_FIELDS: Mapping[str, Field] = {
    name: Field(meaning, example, pattern, "", identifies=False)
    for name, meaning, example, pattern in (
        ("bearer_token_file", "file with a token to log in with", "/etc/edgetune/token", _PATH),
        ("username", "name to log in with", "edgetune", r"[^:\0-\x1f\x7f]*"),
        ("password_file", "file with the password of `username`", "/etc/edgetune/password", _PATH),
        (
            "ca_file",
            "file with the certificates that its own is verified with, those of the system unless "
            "given",
            "/etc/edgetune/ca.pem",
            _PATH,
        ),
        (
            "certificate_file",
            "file with a client certificate",
            "/etc/edgetune/client.pem",
            _PATH,
        ),
        ("key_file", "file with the key of the certificate", "/etc/edgetune/key.pem", _PATH),
    )
}
"""What the inventory has for an `HttpLogin`."""


@dataclass(frozen=True)
class HttpLogin:
    """How one logs in over HTTP, by files of the action runner; each is empty for none.

    The key of a certificate may be in its file. A file is read when it is needed, for it may be
    renewed.
    """

    bearer_token_file: str = ""
    username: str = ""
    password_file: str = ""
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""

    def authorization(self, where: str, inside: str = "") -> Authorization:
        """By a token, or by a name and a password (RFC 6750, RFC 7617); none where no file is
        named.

        InputError names the field, with ``inside`` before it.
        """
        if self.bearer_token_file:
            token = read_private(self.bearer_token_file, f"{inside}bearer_token_file", where)
            return Authorization({"Authorization": f"Bearer {token}"}, (token,))
        if self.username:
            password = read_private(self.password_file, f"{inside}password_file", where)
            pair = b64encode(f"{self.username}:{password}".encode()).decode()
            return Authorization({"Authorization": f"Basic {pair}"}, (pair, password))
        return Authorization({})
