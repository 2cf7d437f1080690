# SPDX-License-Identifier: Apache-2.0
"""Who logs in when, so that a wrong password meets few BMCs, once each, and locks no account."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Callable

from edgetune.base.durations import duration
from edgetune.base.errors import InputError
from edgetune.net.bmc.credentials import Login
from edgetune.net.bmc.payload import BmcError
from edgetune.site.inventory import Bmc

# As many BMCs as took a login prove that the password is right.
_PROOF = 2


class Logins:
    """What to log in with in one call, for all threads; nobody waits longer than ``patience`` s.

    With each name of credentials one BMC at a time is tried until a login was taken, and all at
    once from then on. As many as ``refusals`` stop a name, unless two BMCs took its login: then
    one that refuses it has its own reason. Where there are no credentials, none is tried.
    """

    def __init__(
        self, credentials: Callable[[str], Login], patience: float, refusals: int = 1
    ) -> None:
        self._credentials, self._patience, self._refusals = credentials, patience, refusals
        self._known: dict[str, Login] = {}
        self._unknown: dict[str, str] = {}
        self._trying: defaultdict[str, list[str]] = defaultdict(list)
        self._took: defaultdict[str, set[str]] = defaultdict(set)
        self._refused: defaultdict[str, list[str]] = defaultdict(list)
        self._changed = threading.Condition()

    def of(self, bmc: Bmc) -> Login:
        """User and password; BmcError ``auth`` where there are none, or they were refused."""
        name = bmc.credentials
        with self._changed:
            if name not in self._known and name not in self._unknown:
                try:
                    self._known[name] = self._credentials(name)
                except InputError as error:
                    self._unknown[name] = str(error)
            self._refuse_useless(name)
            return self._known[name]

    @contextmanager
    def turn(self, bmc: Bmc) -> Iterator[None]:
        """Log in inside of it; what a BmcError ``auth`` from there means for others is known.

        BmcError ``auth`` if they were refused meanwhile, ``busy`` if it never was the turn.
        """
        name, address = bmc.credentials, bmc.address
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_free(name), self._patience):
                waited = f"no BMC answered a login of {name!r} within {duration(self._patience)}"
                raise BmcError("busy", f"not asked: {waited}")
            self._refuse_useless(name)
            self._trying[name].append(address)
        try:
            yield
        except BmcError as error:
            if error.reason == "auth":
                self._refused[name].append(address)
                self._took[name].discard(address)
            raise
        else:
            self._took[name].add(address)
        finally:
            with self._changed:
                self._trying[name].remove(address)
                self._changed.notify_all()

    def _is_free(self, name: str) -> bool:
        """Whether to try, or to give up; not while one that is tried may prove a refused login."""
        return not self._trying[name] or bool(self._took[name] and not self._is_stopped(name))

    def _is_stopped(self, name: str) -> bool:
        return len(self._refused[name]) >= self._refusals and len(self._took[name]) < _PROOF

    def _refuse_useless(self, name: str) -> None:
        if name in self._unknown:
            raise BmcError("auth", self._unknown[name])
        if self._is_stopped(name) and not self._trying[name]:
            who = ", ".join(self._refused[name])
            raise BmcError("auth", f"not asked: {who} refused {name!r}")
