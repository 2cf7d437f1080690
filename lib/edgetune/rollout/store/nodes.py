# SPDX-License-Identifier: Apache-2.0
"""What every node of StackStorm has to hold alike to run actions: keys, inventory, tunings, pack.

StackStorm gives an action to whichever action runner is free. Each node leaves digests of what it
holds beside the claims, and the doctor compares them. A digest of passwords is made with the SSH
key, so it tells nobody anything who does not have that; with other keys there are other digests.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Any, Callable, NamedTuple, Union

import edgetune
from edgetune.base import clock
from edgetune.base.documents.reading import check_is, read_document
from edgetune.base.durations import roughly
from edgetune.base.errors import DamagedError
from edgetune.net.databases import SCHEME, open_redis, redis_errors
from edgetune.site.config import Config

FRESH = 3600.0
"""Seconds after which a node that left nothing counts as gone."""
_KEY = "edgetune:nodes"
_DIGITS = 16
_SECRETS = (
    "alertmanager.bearer_token_file",
    "alertmanager.ca_file",
    "alertmanager.certificate_file",
    "alertmanager.key_file",
    "alertmanager.password_file",
    "bmc_ca_file",
    "bmc_credentials_file",
    "coordination_password_file",
    "records_api_key_file",
)
# What StackStorm runs from the disk of a node, or registers from there.
_PACK = ("actions", "aliases", "lib", "policies", "rules", "sensors", "triggers", "workflows")
_ROOT = Path(edgetune.__file__).resolve().parents[2]
_AT_ONCE = 1 << 20
_JUST_NOW = 120.0
_WRONG = ("cannot be", "is not there", "is empty")
_ABSENT = "is not configured"


class Node(NamedTuple):
    """A node by its host name: what it holds, and when it said so, in epoch seconds.

    ``holds`` has a digest, or a problem in words, for each thing.
    """

    name: str
    time: float
    holds: Mapping[str, str]


def open_nodes(config: Config) -> Nodes:
    """Those of a configuration's ``coordination``; a SQLite file has one node, this one."""
    return OneNode() if config.coordination.startswith(SCHEME) else RedisNodes(open_redis(config))


class OneNode:
    """What the node of a local runner left, which has no other."""

    def __init__(self) -> None:
        self._kept: list[Node] = []

    def keep(self, node: Node) -> None:
        """Keep it instead of the one before of this name."""
        self._kept = [node]

    def all(self) -> list[Node]:
        """Those that left something within ``FRESH`` seconds; DamagedError if one is none."""
        return self._kept


class RedisNodes:
    """What nodes left, in a hash of Redis, a field for each; every call raises StoreError when
    Redis fails."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def keep(self, node: Node) -> None:
        document = {"time": node.time, "holds": dict(node.holds)}
        with redis_errors(_KEY):
            self._client.hset(_KEY, node.name, json.dumps(document))
            self._client.expire(_KEY, round(FRESH))
            # Where nodes come and go that never happens, for the key expires as a whole.
            for name, text in self._client.hgetall(_KEY).items():
                with suppress(DamagedError):
                    if not _is_fresh(_node(name, text)):
                        self._client.hdel(_KEY, name)

    def all(self) -> list[Node]:
        with redis_errors(_KEY):
            kept = [_node(name, text) for name, text in self._client.hgetall(_KEY).items()]
        return sorted(filter(_is_fresh, kept))


Nodes = Union[OneNode, RedisNodes]


def _is_fresh(node: Node) -> bool:
    return node.time > clock.wall() - FRESH


def _node(name: str, text: Any) -> Node:
    key = f"{_KEY} {name}"
    kept = read_document(key, text)
    at, holds = kept.get("time"), kept.get("holds")
    check_is(key, "time", type(at) in (int, float), "is no time")
    check_is(key, "holds", isinstance(holds, dict), "is no mapping")
    return Node(
        name, float(str(at)), {str(what): str(value) for what, value in dict(holds or {}).items()}
    )


def this_node(config: Config) -> Node:
    """What this node holds."""
    holds = {
        "pack": f"{edgetune.__version__} {_of_pack()}",
        "inventory": _of_file(config.inventory),
        "ssh_key_file": _of_file(config.ssh_key_file),
        "ssh_known_hosts": _of_file(config.ssh_known_hosts),
    }
    for name in _SECRETS:
        file = attrgetter(name)(config)
        # With an agent the file is the public key, with which anybody could try passwords.
        if file and not config.ssh_agent:
            holds[name] = _of_file(Path(file), key=config.ssh_key_file)
    for name in ("tunings", "metrics", "campaigns"):
        for folder in getattr(config, name):
            holds[f"{name} {folder}"] = _of_folder(folder, lambda file: file.suffix == ".yaml")
    return Node(socket.gethostname(), clock.wall(), holds)


def differences(nodes: Iterable[Node]) -> Iterator[str]:
    """In a sentence each, what nodes hold, or cannot read, as most others do not."""
    known = list(nodes)
    for what in sorted({what for node in known for what in node.holds}):
        for alike in _comparable(what, known):
            yield from _differ(what, alike)


def _comparable(what: str, nodes: Iterable[Node]) -> Iterable[list[Node]]:
    """Nodes by SSH key where digests are made with it."""
    by_key: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        by_key[node.holds.get("ssh_key_file", "") if what in _SECRETS else ""].append(node)
    return by_key.values()


def _differ(what: str, nodes: Iterable[Node]) -> Iterator[str]:
    held = [(node, node.holds.get(what, _ABSENT)) for node in nodes]
    readable = [text for _, text in held if not text.startswith(_WRONG)]
    # What no node can read, the doctor finds on its own.
    usual = Counter(readable or [""]).most_common(1)[0][0]
    others = ", ".join(node.name for node, text in held if text == usual)
    for node, text in held if readable else ():
        if text.startswith(_WRONG):
            yield f"{what} {text} on {_shown(node)}"
        elif text != usual and _ABSENT in (text, usual):
            there, not_there = (_shown(node), others) if usual == _ABSENT else (others, node.name)
            yield f"{what} is configured on {there}, and not on {not_there}"
        elif text != usual:
            yield f"{what} on {_shown(node)} is not that on {others}"


def _shown(node: Node) -> str:
    """Its name; with when it said so, if that was not just now."""
    ago = clock.wall() - node.time
    return node.name if ago < _JUST_NOW else f"{node.name} ({roughly(ago)} ago)"


def _of_pack() -> str:
    parts = (_of_folder(_ROOT / name, lambda file: file.suffix != ".pyc") for name in _PACK)
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:_DIGITS]


def _of_file(file: Path, key: Path | None = None) -> str:
    """Its digest; why there is none, in words."""
    try:
        secret = key.read_bytes() if key else b"edgetune"
        if not secret:
            return f"cannot be told: {key} is empty"
        made = hmac.new(secret, digestmod=hashlib.sha256)
        if not _add(made, file):
            return "is empty"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return made.hexdigest()[:_DIGITS]


def _of_folder(folder: Path, is_wanted: Callable[[Path], bool]) -> str:
    """The digest of its files below and their names; why there is none, in words."""
    made = hashlib.sha256()
    if not folder.is_dir():
        return "is not there"
    try:
        for file in _files(folder):
            if is_wanted(file):
                made.update(f"{file.relative_to(folder)}\0".encode())
                _add(made, file)
    except OSError as error:
        return f"cannot be read ({error.strerror}: {error.filename})"
    return made.hexdigest()[:_DIGITS]


def _files(folder: Path) -> list[Path]:
    """All below a folder; OSError if one cannot be read, of which ``rglob`` says nothing."""

    def refuse(error: OSError) -> None:
        raise error

    folders = os.walk(folder, onerror=refuse)
    return sorted(Path(where, name) for where, _, names in folders for name in names)


def _add(made: Any, file: Path) -> int:
    """Add a file to a digest; how many bytes it has."""
    size = 0
    with file.open("rb") as opened:
        while part := opened.read(_AT_ONCE):
            made.update(part)
            size += len(part)
    return size
