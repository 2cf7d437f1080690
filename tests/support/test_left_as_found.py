# SPDX-License-Identifier: Apache-2.0
"""What the tests of a running StackStorm change there is afterwards as they found it."""

from __future__ import annotations

from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest

from tests.st2 import stackstorm
from tests.st2.stackstorm import as_found, key, rule

KINDS = ("actions", "actionalias", "policies", "rules", "sensortypes")
TIMER = {"type": "core.st2.IntervalTimer", "parameters": {"unit": "seconds", "delta": 60}}


class Api:
    """StackStorm's, as far as the tests put things back by it."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {
            kind: {f"edgetune.{name}": self.row(name, kind) for name in ("first", "second")}
            for kind in KINDS
        }
        self.keys: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []

    @staticmethod
    def row(name: str, kind: str) -> dict[str, Any]:
        row = {"id": f"64f1-{name}", "ref": f"edgetune.{name}", "enabled": name == "first"}
        timer = {**deepcopy(TIMER), "ref": "core.4711"}
        return {**row, "trigger": timer} if kind == "rules" else row

    def ask(self, method: str, path: str, json: Any = None) -> Any:
        kind, _, name = path.partition("?")[0].strip("/").partition("/")
        if method != "GET":
            self.asked.append(f"{method} {path}")
        if kind == "keys":
            return self._key(method, name, json)
        rows = self.rows[kind]
        if method == "PUT":
            (ref,) = (ref for ref, row in rows.items() if row["id"] == name)
            rows[ref] = deepcopy(json)
            return answer(200, json)
        return answer(200, deepcopy(rows[name] if name else list(rows.values())))

    def _key(self, method: str, name: str, json: Any) -> Any:
        if method == "PUT":
            self.keys[name] = json
        if name not in self.keys:
            return answer(404, {})
        return answer(200, self.keys.pop(name) if method == "DELETE" else self.keys[name])


def answer(status: int, document: Any) -> Any:
    return SimpleNamespace(
        ok=status == 200, status_code=status, text=str(document), json=lambda: document
    )


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    made = Api()
    monkeypatch.setattr(stackstorm, "ask", made.ask)
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_switched_is_as_before(api: Api, kind: str) -> None:
    """Registering switches things off that were on, and on that were off."""
    before = deepcopy(api.rows)
    with pytest.raises(ZeroDivisionError), as_found():
        for row in api.rows[kind].values():
            row["enabled"] = not row["enabled"]
        raise ZeroDivisionError
    assert {ref: row["enabled"] for ref, row in api.rows[kind].items()} == {
        ref: row["enabled"] for ref, row in before[kind].items()
    }


def test_a_timer_that_ticks_faster_ticks_as_before(api: Api) -> None:
    with as_found():
        api.rows["rules"]["edgetune.second"]["trigger"]["parameters"]["delta"] = 5
    assert api.rows["rules"]["edgetune.second"]["trigger"] == TIMER


def test_what_nobody_touched_is_not_written(api: Api) -> None:
    with as_found():
        pass
    assert api.asked == []


def test_what_is_new_stays(api: Api) -> None:
    with as_found():
        api.rows["rules"]["edgetune.third"] = api.row("third", "rules")
    assert api.asked == [] and "edgetune.third" in api.rows["rules"]


def test_a_rule_is_on_for_a_while(api: Api) -> None:
    before = deepcopy(api.rows)
    with rule("second", delta=5):
        own = api.rows["rules"]["edgetune.second"]
        assert own["enabled"] and own["trigger"]["parameters"] == {"unit": "seconds", "delta": 5}
    assert api.rows == before


@pytest.mark.parametrize("before", [None, {"value": "theirs", "secret": True}])
def test_a_key_is_set_for_a_while(api: Api, before: Any) -> None:
    if before:
        api.keys["edgetune.bmc.lab"] = before
    with pytest.raises(ZeroDivisionError), key("edgetune.bmc.lab", "ours", secret=True):
        assert api.keys["edgetune.bmc.lab"]["value"] == "ours"
        raise ZeroDivisionError
    kept = api.keys.get("edgetune.bmc.lab")
    assert kept is None if before is None else kept and before.items() <= kept.items()
