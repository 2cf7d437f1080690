# SPDX-License-Identifier: Apache-2.0
"""What every node of StackStorm has to hold alike to run actions: keys, inventory, tunings, pack.

StackStorm gives an action to whichever action runner is free. Each node leaves digests of what it
holds beside the claims, and the doctor compares them. A digest of the BMCs' passwords is made with
the SSH key, so it tells nobody anything who does not have that.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import edgetune
from edgetune.backends import SCHEME, open_redis, redis_errors
from edgetune.config import Config
from edgetune.documents import check_is, read_document

FRESH = 3600.0
"""Seconds after which a node that left nothing counts as gone."""
_KEY = "edgetune:nodes"
_DIGITS = 16
_SECRETS = (
    "bmc_ca_file",
    "bmc_credentials_file",
    "coordination_password_file",
    "records_api_key_file",
)
_MOST = 10_000_000


class Node(NamedTuple):
    """A node by its host name: what it holds, and when it said so, in epoch seconds.

    ``holds`` has a digest, or a problem in words, for each thing.
    """

    name: str
    time: float
    holds: Mapping[str, str]


class Nodes(Protocol):
    """What nodes left; every call raises StoreError when the backend fails."""

    def keep(self, node: Node) -> None:
        """Keep it instead of the one before of this name."""

    def all(self) -> list[Node]:
        """Those that left something within ``FRESH`` seconds; DamagedError if one is none."""


def open_nodes(config: Config) -> Nodes:
    """Those of a configuration's ``coordination``; a SQLite file has one node, this one."""
    return OneNode() if config.coordination.startswith(SCHEME) else RedisNodes(open_redis(config))


class OneNode:
    """Of a local runner, which has no other."""

    def __init__(self) -> None:
        self._kept: list[Node] = []

    def keep(self, node: Node) -> None:
        """Keep it instead of the one before."""
        self._kept = [node]

    def all(self) -> list[Node]:
        """The one."""
        return self._kept


class RedisNodes:
    """In a hash of Redis, a field for each."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def keep(self, node: Node) -> None:
        """Keep it instead of the one before of this name."""
        document = {"time": node.time, "holds": dict(node.holds)}
        with redis_errors(_KEY):
            self._client.hset(_KEY, node.name, json.dumps(document))
            self._client.expire(_KEY, round(FRESH))

    def all(self) -> list[Node]:
        """The fresh ones."""
        with redis_errors(_KEY):
            kept = [_node(name, text) for name, text in self._client.hgetall(_KEY).items()]
        return sorted(node for node in kept if node.time > time.time() - FRESH)


def _node(name: str, text: Any) -> Node:
    key = f"{_KEY} {name}"
    kept = read_document(key, text)
    at, holds = kept.get("time"), kept.get("holds")
    check_is(key, "time", type(at) in (int, float), "is no time")
    check_is(key, "holds", isinstance(holds, dict), "is no mapping")
    return Node(
        name, float(str(at)), {str(what): str(own) for what, own in dict(holds or {}).items()}
    )


def this_node(config: Config) -> Node:
    """What this node holds."""
    holds = {
        "pack": f"{edgetune.__version__} {_digest(Path(edgetune.__file__).parent, '*.py')}",
        "inventory": _digest(config.inventory),
        "ssh_key_file": _digest(config.ssh_key_file),
        "ssh_known_hosts": _digest(config.ssh_known_hosts),
    }
    for name in _SECRETS:
        if getattr(config, name):
            holds[name] = _digest(Path(getattr(config, name)), key=config.ssh_key_file)
    for name, folders in (("tunings", config.tunings), ("campaigns", config.campaigns)):
        for folder in folders:
            holds[f"{name} {folder}"] = _digest(folder, "*.yaml")
    return Node(socket.gethostname(), time.time(), holds)


def differences(nodes: Iterable[Node]) -> Iterator[str]:
    """In a sentence each, what nodes hold that most others do not, and what they cannot read."""
    known = list(nodes)
    for what in sorted({what for node in known for what in node.holds}):
        held = {node.name: node.holds.get(what, "is not configured") for node in known}
        usual, _ = Counter(held.values()).most_common(1)[0]
        for name, own in held.items():
            if own.startswith(("cannot", "is not")):
                yield f"{what} {own} on {name}"
            elif own != usual:
                others = ", ".join(other for other, theirs in held.items() if theirs == usual)
                yield f"{what} on {name} is not that on {others}"


def _digest(place: Path, pattern: str = "", key: Path | None = None) -> str:
    """Of a file, or of the files below a folder with their names; why there is none, in words."""
    try:
        secret = key.read_bytes() if key else b"edgetune"
        made = hmac.new(secret, digestmod=hashlib.sha256)
        for file in sorted(place.rglob(pattern)) if pattern else [place]:
            made.update(str(file.relative_to(place)).encode() if pattern else b"")
            with file.open("rb") as opened:
                made.update(opened.read(_MOST))
        if pattern and not place.is_dir():
            return "is not there"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return made.hexdigest()[:_DIGITS]
