# SPDX-License-Identifier: Apache-2.0
"""What the tests need of a StackStorm, and which of that it lacks."""

from __future__ import annotations

from collections.abc import Iterator

from tests.st2.stackstorm import ask, call
from tests.support import ROOT
from tests.support.metadata.values import documents

PACKS = ("core", "chatops", "edgetune")
RULES = [name for name, rule in documents(ROOT, "rules").items() if rule["enabled"]]
_KEY = "edgetune.tests.environment"


def missing() -> list[str]:
    """A sentence for each thing, with what to do."""
    lacking = [pack for pack in PACKS if ask("GET", f"/packs/{pack}").status_code == 404]
    found = [
        f"The pack {pack} is not registered: st2 run packs.load packs={pack}" for pack in lacking
    ]
    return [*found, *_settings()] if "edgetune" not in lacking else found


def _settings() -> Iterator[str]:
    on = {row["name"] for row in call("GET", "/rules?pack=edgetune&limit=100") if row["enabled"]}
    yield from (
        f"The rule {rule} is off: st2 rule enable edgetune.{rule}"
        for rule in RULES
        if rule not in on
    )
    config = call("GET", "/configs/edgetune")["values"]
    if config.get("records") != "st2":
        yield f"The configuration has records: {config.get('records')}, and the tests want st2"
    if not str(config.get("coordination", "")).startswith("redis://"):
        yield f"The configuration has coordination: {config.get('coordination')}, and no Redis"
    system = _system_user()
    if system and config.get("system_user", "stanley") != system:
        yield f"The configuration lacks system_user: {system}, as which rules run"
    if not call("GET", "/actionalias?pack=edgetune&limit=1"):
        yield "No alias is registered: st2 run packs.load packs=edgetune register=all"
    if _keys_written_twice() != 1:
        yield "A key that is written twice stands there twice: the database has no index on keys"


def _system_user() -> str:
    """The user of what the timer began last, if it did."""
    newest = call("GET", "/executions?action=edgetune.recover_orphans&limit=1")
    return str(newest[0]["context"].get("user", "")) if newest else ""


def _keys_written_twice() -> int:
    row = {"name": _KEY, "value": "1", "scope": "st2kv.system"}
    for _ in range(2):
        call("PUT", f"/keys/{_KEY}", json=row)
    try:
        return len(call("GET", f"/keys?prefix={_KEY}"))
    finally:
        ask("DELETE", f"/keys/{_KEY}")
