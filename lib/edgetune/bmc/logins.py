# SPDX-License-Identifier: Apache-2.0
"""Who logs in when, so that a wrong password meets one BMC, once, and locks no account."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Callable

from edgetune.bmc.credentials import Login
from edgetune.bmc.payload import BmcError
from edgetune.durations import duration
from edgetune.errors import InputError
from edgetune.inventory import Bmc


class Logins:
    """What to log in with in one call, for all threads; nobody waits longer than ``patience`` s.

    With each name of credentials one BMC at a time is tried until a login was taken, and all at
    once from then on. After a refusal, and where there are no credentials, none is tried.
    """

    def __init__(self, credentials: Callable[[str], Login], patience: float) -> None:
        self._credentials, self._patience = credentials, patience
        self._known: dict[str, Login] = {}
        self._useless: dict[str, str] = {}
        self._trying: set[str] = set()
        self._proven: set[str] = set()
        self._changed = threading.Condition()

    def of(self, bmc: Bmc) -> Login:
        """User and password; BmcError ``auth`` where there are none, or they were refused."""
        name = bmc.credentials
        with self._changed:
            if name not in self._known and name not in self._useless:
                try:
                    self._known[name] = self._credentials(name)
                except InputError as error:
                    self._useless[name] = str(error)
            self._refuse_useless(name)
            return self._known[name]

    @contextmanager
    def turn(self, bmc: Bmc) -> Iterator[None]:
        """Log in inside of it; what a BmcError ``auth`` from there means for others is known.

        BmcError ``auth`` if they were refused meanwhile, ``busy`` if it never was the turn.
        """
        name = bmc.credentials
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_free(name), self._patience):
                waited = f"no BMC answered a login of {name!r} within {duration(self._patience)}"
                raise BmcError("busy", f"not asked: {waited}")
            self._refuse_useless(name)
            self._trying.add(name)
        try:
            yield
        except BmcError as error:
            if error.reason == "auth":
                self._useless.setdefault(name, f"not asked: {bmc.address} refused {name!r}")
            raise
        else:
            self._proven.add(name)
        finally:
            with self._changed:
                self._trying.discard(name)
                self._changed.notify_all()

    def _is_free(self, name: str) -> bool:
        return name in self._proven or name in self._useless or name not in self._trying

    def _refuse_useless(self, name: str) -> None:
        if name in self._useless:
            raise BmcError("auth", self._useless[name])
