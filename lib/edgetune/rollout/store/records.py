# SPDX-License-Identifier: Apache-2.0
"""Where records live: StackStorm's datastore, or a SQLite file in the local runner.

"No record" is None; "store unreachable" is StoreError, and stops everything. StackStorm's
own ``get_value`` answers None for both, so its API is asked instead.

edgetune.strays    ids of rollouts whose keys tell no PoP

Strays lie among those of no PoP, and may be on any: a step of a PoP, which lists its own alone,
knows them from there. The sweep, which lists all, writes them down.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Callable, Union
from urllib.parse import quote

from edgetune import PACK
from edgetune.base import clock
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.head import ID, head_key
from edgetune.base.documents.reading import decoded, read_document
from edgetune.base.documents.stackstorm import KeyValue, User
from edgetune.base.errors import DamagedError, NoAnswerError, StoreError
from edgetune.base.secret_files import read_secret
from edgetune.net.databases import SCHEME, Database
from edgetune.rollout.store.stackstorm import StackStorm, entries, entry
from edgetune.rollout.store.texts import SqliteTexts
from edgetune.site.config import Config

PAGE = 100
WITNESS = f"{PACK}.records"
"""A key of StackStorm's datastore that every whole list shows.

A user without rights gets an empty list, not a refusal, also where RBAC is installed and switched
off: https://github.com/StackStorm/st2, ``KeyValuePairController.get_all``.
"""
_PAUSES = (0.2, 1.0, 4.0)
"""Seconds before a write is tried again; less than any claim lasts."""
_STEPS_BACK = 5
"""How often in a row a list is read on from half a page further back."""
# A range, which the index of the keys finds. No text has the byte FF, so that all follow the prefix
# in it that begin with it.
_LIST = """
SELECT key, value FROM records WHERE key >= ? AND key < ? || CAST(x'ff' AS TEXT) ORDER BY key
"""


def value_of(store: Store, key: str) -> str | None:
    """The value of a key that mostly is not there, or None.

    StackStorm writes a warning into its log for each key that is asked for by name and not there.
    """
    return store.list(key).get(key)


def open_store(config: Config) -> Store:
    """The store of a configuration's ``records``: ``st2`` or ``sqlite:///PATH``."""
    if config.records.startswith(SCHEME):
        return SqliteStore(Database(config.records))
    return St2Store(open_stackstorm(config))


def open_stackstorm(config: Config) -> StackStorm:
    """The API of the StackStorm around this process; StoreError if there is none."""
    key = read_secret(config.records_api_key_file, "records_api_key_file")
    return StackStorm(os.environ, key)


class SqliteStore(SqliteTexts):
    """Records in a SQLite file: small texts under string keys, kept until they are deleted."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, "records", "key")

    def delete(self, key: str) -> None:
        """Forget the key, be it there or not."""
        with self._database.transaction() as db:
            db.execute("DELETE FROM records WHERE key = ?", (key,))

    def list(self, prefix: str) -> Mapping[str, str]:
        """All keys that begin with ``prefix``, with their values."""
        with self._database.transaction() as db:
            return dict(db.execute(_LIST, (prefix, prefix)).fetchall())

    def secret(self, key: str) -> str | None:
        """The decrypted value of a key: None, as a file that nothing encrypts keeps no secrets."""
        return None

    def refuses_changes(self) -> str:
        """Why ``put`` would be refused, or "" as far as that shows; writes nothing.

        It takes the lock for writing: StoreError where the file is read-only.
        """
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
        value = self._ask("get_value", key)
        return None if value is None else str(value)

    def put(self, key: str, value: str) -> None:
        """Sensors do not write."""
        raise StoreError(f"a sensor does not write {key}")

    def delete(self, key: str) -> None:
        """Nor do they delete."""
        raise StoreError(f"a sensor does not delete {key}")

    def list(self, prefix: str) -> Mapping[str, str]:
        """All keys that begin with ``prefix``, with their values, page by page."""
        values = self._listed(prefix)
        if not values and not self._listed(WITNESS):
            text = "no key of edgetune is there yet, or its user may not list them"
            raise StoreError(f"StackStorm's datastore: {text}: with RBAC it needs a system role")
        return values

    def _listed(self, prefix: str) -> dict[str, str]:
        def page(offset: int) -> Sequence[Any]:
            return self._ask("list_values", prefix=prefix, limit=PAGE, offset=offset) or []

        return _all_pages(prefix, page)

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
    """StackStorm's datastore (system scope) through its API."""

    def __init__(self, api: StackStorm) -> None:
        self._api = api
        self._seen: dict[str, str | None] = {}
        self._lists_are_whole = False

    def get(self, key: str) -> str | None:
        answer = self._call("GET", _path(key), (404,))
        return self._note(key, None if answer is None else entry(KeyValue, answer).value)

    def put(self, key: str, value: str) -> None:
        """Write the value, new or over the old one.

        An answer that is lost leaves open whether the value is written. Then StackStorm is asked,
        and the value is written again if the key still has the value that this process saw last.
        """
        before = self._seen.get(key)
        for pause in (*_PAUSES, None):
            try:
                self._write(key, value)
            except NoAnswerError:
                if pause is None:
                    raise
                clock.sleep(pause)
                if not self._is_to_be_written(key, value, before):
                    break
            else:
                break
        self._note(key, value)

    def delete(self, key: str) -> None:
        """Forget the key, be it there or not; one whose answer is lost may be there still."""
        self._call("DELETE", _path(key), (404,))
        self._note(key, None)

    def list(self, prefix: str) -> Mapping[str, str]:
        """All keys that begin with ``prefix``, with their values, page by page."""
        values = self._listed(prefix)
        if not values and not self._lists_are_whole:
            self._prove_whole_lists(prefix)
        return values

    def _listed(self, prefix: str) -> dict[str, str]:
        def page(offset: int) -> Sequence[KeyValue]:
            query = {"prefix": prefix, "limit": str(PAGE), "offset": str(offset)}
            items = entries(KeyValue, self._call("GET", "/keys", params=query))
            # With RBAC that is what a user without a system role gets: the keys granted to it.
            if not all(item.name.startswith(prefix) for item in items):
                raise _may_not_list(prefix)
            return items

        whole = _all_pages(prefix, page)
        for key, value in whole.items():
            self._note(key, value)
        return dict(sorted(whole.items()))

    def _prove_whole_lists(self, prefix: str) -> None:
        """StoreError unless a list shows the witness, which is written where there is none."""
        if WITNESS not in self._listed(WITNESS):
            if self.get(WITNESS) is None:
                self.put(WITNESS, "shown by every list that is whole")
            if WITNESS not in self._listed(WITNESS):
                raise _may_not_list(prefix)
        self._lists_are_whole = True

    def secret(self, key: str) -> str | None:
        """The decrypted value, or None; with RBAC also where the user may not view the key."""
        answer = self._call("GET", _path(key), (404, 403), params={"decrypt": "true"})
        return None if answer is None else entry(KeyValue, answer).value

    def refuses_changes(self) -> str:
        """Asks who the user is: with RBAC nobody but an administrator may write keys that are new.

        Only a write would prove that the database takes it. A dry run, which keeps its plan, does.
        """
        # 500: without authentication there is no user.
        user = entry(User, self._call("GET", "/user", (404, 500)) or {})
        if not user.rbac or not user.rbac.enabled or user.rbac.is_admin:
            return ""
        return f"RBAC lets user {user.username} write no records: give it records_api_key_file"

    def close(self) -> None:
        """Close the connections to the API."""
        self._api.close()

    def _write(self, key: str, value: str) -> None:
        body = {"name": key, "value": value, "scope": "st2kv.system"}
        self._call("PUT", _path(key), document=body)

    def _is_to_be_written(self, key: str, value: str, before: str | None) -> bool:
        """StoreError if somebody else has written the key meanwhile."""
        now = self.get(key)
        if now == value:
            return False
        if _digest(now) != before:
            raise StoreError(
                f"StackStorm's datastore: {key} was written by somebody else meanwhile"
            )
        return True

    def _note(self, key: str, value: str | None) -> str | None:
        self._seen[key] = _digest(value)
        return value

    def _call(self, method: str, path: str, none: Sequence[int] = (), **more: Any) -> Any:
        try:
            return self._api.call(method, path, none, **more)
        except StoreError as error:
            raise type(error)(f"StackStorm's datastore: {error}") from None


Store = Union[SqliteStore, SensorStore, St2Store]


def _all_pages(prefix: str, page: Callable[[int], Sequence[Any]]) -> dict[str, str]:
    """What all pages of a list hold; StoreError where its keys go faster than they are read.

    A page begins with the last key of the one before. Where keys went meanwhile it does not, and
    lacks as many: then one is read that begins further back.
    """
    values: dict[str, str] = {}
    begin, back = 0, 0
    while back <= _STEPS_BACK:
        items = page(begin)
        if begin and not (items and items[0].name in values):
            begin, back = max(0, begin - PAGE // 2), back + 1
            continue
        values.update({item.name: str(item.value) for item in items})
        if len(items) < PAGE:
            return values
        begin, back = begin + PAGE - 1, 0
    raise StoreError(f"StackStorm's datastore: {prefix}* changes faster than it is listed")


def _may_not_list(prefix: str) -> StoreError:
    text = f"its user may not list {prefix}*: give it records_api_key_file"
    return StoreError(f"StackStorm's datastore: {text}")


def _path(key: str) -> str:
    return f"/keys/{quote(key, safe='')}"


def _digest(value: str | None) -> str | None:
    return None if value is None else sha256(value.encode()).hexdigest()


KEY = f"{PACK}.strays"


@dataclass(frozen=True)
class _Strays:
    """Their ids, in order."""

    ids: list[str]


def strays_among(rollouts: Iterable[str]) -> list[str]:
    """The ids that tell no PoP, in order."""
    return sorted(name for name in rollouts if not ID.fullmatch(name))


def known_strays(store: Store) -> list[str]:
    """Those that the sweep saw last."""
    text = value_of(store, KEY)
    try:
        return [] if text is None else decoded(KEY, _Strays, read_document(KEY, text)).ids
    except DamagedError:
        prefix = head_key("")
        return strays_among(key[len(prefix) :] for key in store.list(prefix))


def keep_strays(store: Store, ids: list[str]) -> None:
    """Write them down, where that is news."""
    text = json.dumps({"ids": ids})
    known = value_of(store, KEY)
    if text != known and (ids or known is not None):
        store.put(KEY, text)
