# SPDX-License-Identifier: Apache-2.0
"""All that is wrong with what a site wrote down is listed by the doctor in one run, with file, line
and cure."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgetune.report.answers import text_of
from edgetune.rollout.context import Context
from edgetune.rollout.steps.doctor_pop import doctor_pop
from tests.support.builders import inventory_document, write_yaml
from tests.support.cases import cases, unlike
from tests.support.world import EmptyWorld

CASES = cases(Path(__file__).with_name("site_mistakes.yaml"))


@pytest.mark.parametrize("case", CASES)
def test_each_mistake_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: dict[str, Any]
) -> None:
    case = yaml.safe_load(yaml.safe_dump(case).replace("FOLDER", str(tmp_path)))
    world = EmptyWorld(tmp_path)
    options = {**world.config, **case.get("options", {})}
    given = {name: value for name, value in options.items() if value is not None}
    (tmp_path / "edgetune.yaml").write_text(yaml.safe_dump(case.get("written", given)))
    monkeypatch.setenv("EDGETUNE_CONFIG", f"{tmp_path}/edgetune.yaml")
    write_inventory(tmp_path, case)
    write_files(tmp_path, case.get("files", {}))
    deny(monkeypatch, {f"{tmp_path}/{name}" for name in case.get("denied", [])})

    context: Any = Context(given)
    context.fleet, context.load_balancer = world.hosts, world.context.load_balancer
    result: Any = doctor_pop(context, "lab1")
    rows = {row["check"]: row for row in result["checks"]}
    found, notes = (
        {name: [own["what"] for own in row[kind]] for name, row in rows.items() if row[kind]}
        for kind in ("findings", "notes")
    )
    assert list(unlike([found, notes], [case["found"], case.get("notes", {})])) == []
    assert {*found} == {*case["found"]} and [*found] == result["failed"]
    # What hosts are asked with has to be right.
    stops = {"configuration", "source"} & {*found}
    assert bool(stops) == (not world.hosts.asked) == ("the other checks wait" in result["message"])
    advice = [own["advice"] for row in rows.values() for own in row["findings"]]
    assert all(advice) and {case.get("advice", advice[0] if advice else "")} <= {*advice, ""}
    typed = [own.partition("\n")[2] for own in advice if "\n" in own]
    assert typed == case.get("typed", typed)
    assert all(f"\n      {line}" in text_of(result["text"]) for line in typed)


def write_inventory(folder: Path, case: dict[str, Any]) -> None:
    document: Any = inventory_document()
    document["pops"]["lab1"].update(case.get("pop", {}))
    for name, own in case.get("hosts", {}).items():
        document["pops"]["lab1"]["hosts"][name].update(own)
    write_yaml(folder / "inventory.yaml", document)


def write_files(folder: Path, files: dict[str, Any]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        if text is None:
            path.mkdir()
        elif text:
            path.write_text(text, encoding="utf-8")
        else:
            path.unlink()


def deny(monkeypatch: pytest.MonkeyPatch, paths: set[str]) -> None:
    """Root may read everything: the kernel's answer to anybody else is made up."""
    opened = os.open

    def refuse(path: Any, *more: Any, **named: Any) -> int:
        if str(path) in paths:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *more, **named)

    monkeypatch.setattr(os, "open", refuse)
