# SPDX-License-Identifier: Apache-2.0
"""Where records live: StackStorm's datastore, or a SQLite file in the local runner.

"No record" is None; "store unreachable" is StoreError, and stops everything. StackStorm's
own ``get_value`` answers None for both, so its API is asked instead.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import quote

from edgetune.backends import SCHEME, Database, read_secret
from edgetune.config import Config
from edgetune.errors import StoreError

TIMEOUT = 15
PAGE = 100


class Store(Protocol):
    """Small texts under string keys, kept until they are deleted."""

    def get(self, key: str) -> str | None:
        """The value, or None if there is none."""

    def put(self, key: str, value: str) -> None:
        """Write the value, new or over the old one."""

    def list(self, prefix: str) -> Mapping[str, str]:
        """All keys that begin with ``prefix``, with their values."""

    def secret(self, key: str) -> str | None:
        """The decrypted value of a key, or None if there is none or secrets are not kept here."""

    def refuses_changes(self) -> str:
        """Why ``put`` would be refused, or "" as far as that shows; writes nothing."""


def open_store(config: Config) -> Store:
    """The store of a configuration's ``records``: ``st2`` or ``sqlite:///PATH``."""
    if config.records.startswith(SCHEME):
        return SqliteStore(Database(config.records))
    key = read_secret(config.records_api_key_file, "records_api_key_file")
    return St2Store(os.environ, key)


class SqliteStore:
    """Records in a SQLite file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, key: str) -> str | None:
        """The value, or None if there is none."""
        with self._database.transaction() as db:
            row = db.execute("SELECT value FROM records WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def put(self, key: str, value: str) -> None:
        """Write the value, new or over the old one."""
        with self._database.transaction() as db:
            db.execute("INSERT OR REPLACE INTO records VALUES (?, ?)", (key, value))

    def list(self, prefix: str) -> Mapping[str, str]:
        """All keys that begin with ``prefix``, with their values, sorted."""
        with self._database.transaction() as db:
            rows = db.execute(
                "SELECT key, value FROM records WHERE substr(key, 1, ?) = ? ORDER BY key",
                (len(prefix), prefix),
            ).fetchall()
        return dict(rows)

    def secret(self, key: str) -> str | None:
        """None: a file that nothing encrypts keeps no secrets."""
        return None

    def refuses_changes(self) -> str:
        """Takes the lock for writing: StoreError where the file is read-only."""
        with self._database.transaction():
            return ""


class SensorStore:
    """StackStorm's datastore as a sensor may read it, through its ``sensor_service``.

    ``get_value`` answers nothing both when there is nothing and when it failed: good enough to
    look, never to act.
    """

    def __init__(self, service: Any) -> None:
        self._service = service

    def get(self, key: str) -> str | None:
        """The value, or None."""
        value = self._ask("get_value", key)
        return None if value is None else str(value)

    def put(self, key: str, value: str) -> None:
        """Sensors do not write."""
        raise StoreError(f"a sensor does not write {key}")

    def list(self, prefix: str) -> Mapping[str, str]:
        """All keys that begin with ``prefix``, with their values, page by page."""
        found: dict[str, str] = {}
        while True:
            query = {"prefix": prefix, "limit": PAGE, "offset": len(found)}
            page = self._ask("list_values", **query) or []
            found.update((item.name, str(item.value)) for item in page)
            if len(page) < PAGE:
                return found

    def secret(self, key: str) -> str | None:
        """Sensors need no secrets."""
        raise StoreError(f"a sensor does not read {key}")

    def refuses_changes(self) -> str:
        """Sensors do not write."""
        return "a sensor does not write"

    def _ask(self, method: str, *key: str, **query: Any) -> Any:
        try:
            return getattr(self._service, method)(*key, local=False, **query)
        except Exception as error:  # noqa: BLE001 - its client raises what its transport raises
            raise StoreError(f"StackStorm's datastore: {error}") from None


class St2Store:
    """StackStorm's datastore (system scope) through its API.

    With an API key, or with the action's own token, which is of the user of its execution.
    """

    def __init__(self, environment: Mapping[str, str], api_key: str | None = None) -> None:
        import requests

        url = environment.get("ST2_ACTION_API_URL") or environment.get("ST2_API_URL")
        if not url:
            raise StoreError("records: st2 is configured, but ST2_ACTION_API_URL is not set")
        self._base = url.rstrip("/")
        if not self._base.endswith("/v1"):
            self._base += "/v1"
        self._session = requests.Session()
        # A proxy of the environment is not for the API beside us.
        self._session.trust_env = False
        token = environment.get("ST2_ACTION_AUTH_TOKEN") or environment.get("ST2_AUTH_TOKEN")
        if api_key:
            self._session.headers["St2-Api-Key"] = api_key
        elif token:
            self._session.headers["X-Auth-Token"] = token

    def get(self, key: str) -> str | None:
        """The value, or None if there is none."""
        answer = self._call("GET", f"/keys/{quote(key, safe='')}", (404,))
        return None if answer is None else str(answer["value"])

    def put(self, key: str, value: str) -> None:
        """Write the value, new or over the old one."""
        body = {"name": key, "value": value, "scope": "st2kv.system"}
        self._call("PUT", f"/keys/{quote(key, safe='')}", json=body)

    def list(self, prefix: str) -> Mapping[str, str]:
        """All keys that begin with ``prefix``, with their values, page by page."""
        found: dict[str, str] = {}
        while True:
            query = {"prefix": prefix, "limit": str(PAGE), "offset": str(len(found))}
            page = self._call("GET", "/keys", params=query)
            # With RBAC that is what a user without a system role gets: the keys granted to it.
            if not all(item["name"].startswith(prefix) for item in page):
                text = f"its user may not list {prefix}*: give it records_api_key_file"
                raise StoreError(f"StackStorm's datastore: {text}")
            found.update((item["name"], item["value"]) for item in page)
            if len(page) < PAGE:
                return dict(sorted(found.items()))

    def secret(self, key: str) -> str | None:
        """The decrypted value, or None; with RBAC also where the user may not view the key."""
        path, query = f"/keys/{quote(key, safe='')}", {"decrypt": "true"}
        answer = self._call("GET", path, (404, 403), params=query)
        return None if answer is None else str(answer["value"])

    def refuses_changes(self) -> str:
        """Asks who the user is: with RBAC nobody but an administrator may write keys that are new.

        Only a write would prove that the database takes it. A dry run, which keeps its plan, does.
        """
        # Without authentication StackStorm has no user to tell of, and answers 500.
        user = self._call("GET", "/user", (404, 500)) or {}
        rbac = user.get("rbac") or {}
        if not rbac.get("enabled") or rbac.get("is_admin"):
            return ""
        name = user.get("username")
        return f"RBAC lets user {name} write no records: give it records_api_key_file"

    def close(self) -> None:
        """Close the connections to the API."""
        self._session.close()

    def _call(self, method: str, path: str, none: Sequence[int] = (), **more: Any) -> Any:
        import requests

        try:
            answer = self._session.request(method, self._base + path, timeout=TIMEOUT, **more)
            if answer.status_code in none:
                return None
            answer.raise_for_status()
            return answer.json()
        except (requests.RequestException, ValueError) as error:
            raise StoreError(f"StackStorm's datastore: {method} {path}: {error}") from None
