# SPDX-License-Identifier: Apache-2.0
"""What BMCs are logged in with, by name: configuration and inventory hold no secret.

Looked for in this order: the encrypted key ``edgetune.bmc.NAME`` of StackStorm's datastore
(JSON with username and password), the file of ``bmc_credentials_file``, the environment variable
``EDGETUNE_BMC_NAME`` (``USERNAME:PASSWORD``; in the name what is no letter or digit is ``_``).
"""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Callable

from edgetune import PACK
from edgetune.base.dataclass import dataclass
from edgetune.base.errors import InputError
from edgetune.base.fields import Fields
from edgetune.base.files import load_json, load_yaml


@dataclass(frozen=True)
class Login:
    """A user of a BMC."""

    username: str
    password: str = field(repr=False)


class Credentials:
    """Logins by name; ``secret`` gives the decrypted value of a key of the datastore, or None."""

    def __init__(
        self, secret: Callable[[str], str | None], file: str, environment: Mapping[str, str]
    ) -> None:
        self._secret, self._file, self._environment = secret, file, environment

    def __call__(self, name: str) -> Login:
        """The login of that name; InputError says where it was looked for, and shows no value."""
        for look in (self._in_datastore, self._in_file, self._in_environment):
            login = look(name)
            if login is not None:
                return login
        places = [f"the encrypted key {_key(name)}", f"the environment variable {_variable(name)}"]
        places[1:1] = [self._file] if self._file else []
        raise InputError("credentials", name, f"found in none of: {', '.join(places)}")

    def _in_datastore(self, name: str) -> Login | None:
        text = self._secret(_key(name))
        if text is None:
            return None
        try:
            return _read(Fields(load_json(text), _key(name)))
        except ValueError:
            raise InputError(_key(name), None, "is no JSON with username and password") from None

    def _in_file(self, name: str) -> Login | None:
        if not self._file:
            return None
        path = Path(self._file)
        _refuse_readable_by_others(path)
        named = dict(Fields(_load(path), str(path)).named())
        return _read(named[name]) if name in named else None

    def _in_environment(self, name: str) -> Login | None:
        text = self._environment.get(_variable(name))
        if text is None:
            return None
        username, colon, password = text.partition(":")
        if not colon:
            raise InputError(_variable(name), None, "must be USERNAME:PASSWORD")
        return Login(username, password)


def _load(path: Path) -> object:
    try:
        return load_yaml(path)
    except InputError as error:
        # What YAML complains about may be a piece of a password.
        text = "is not YAML (put what is secret in quotes)"
        raise InputError(str(path), error.field, text) from None


def _read(fields: Fields) -> Login:
    login = Login(_read_text(fields, "username"), _read_text(fields, "password"))
    fields.done()
    return login


def _read_text(fields: Fields, name: str) -> str:
    value = fields.raw(name)
    # A complaint of the reader of texts would show it.
    if not isinstance(value, str):
        raise fields.wrong(name, "must be text (put it in quotes)")
    return value


def _refuse_readable_by_others(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        field = "bmc_credentials_file"
        raise InputError("configuration", field, f"cannot be read: {error}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InputError(str(path), None, "others can read it; chmod 600 it")


def _key(name: str) -> str:
    return f"{PACK}.bmc.{name}"


def _variable(name: str) -> str:
    return f"{PACK}_bmc_{re.sub(r'[^A-Za-z0-9]', '_', name)}".upper()
