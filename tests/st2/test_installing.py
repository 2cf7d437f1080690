# SPDX-License-Identifier: Apache-2.0
"""The README and the page on installing, followed by the letter on a running StackStorm, until a
rollout is planned.

``st2 pack install`` builds the pack's virtualenv from a package index, which the lab's namespace
does not reach: it is typed only where ``ST2_PACK`` says what to install.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from edgetune.base.files import load_yaml
from tests.st2.stackstorm import HOME, call, needs_stackstorm, run, shown, st2, until
from tests.st2.test_by_itself import one_pop
from tests.support.installing import HOME as PLACE
from tests.support.installing import PAGES, Newcomer, typed

pytestmark = [*needs_stackstorm, one_pop]

PACK = os.environ.get("ST2_PACK", "")
KEPT = ("coordination", "coordination_password_file", "records_api_key_file")
"""Options without which this StackStorm would not do, where they are set."""


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    """Somebody before a StackStorm with nothing of a site in it; all is as it was in the end."""
    base = Path(call("GET", "/packs/edgetune")["path"]).parents[1]
    own, kept = base / "edgetune", tmp_path / "kept"
    values = call("GET", "/configs/edgetune")["values"]
    if own.exists():
        own.rename(kept)
    try:
        yield Newcomer(tmp_path, base, HOME / "lab")
    finally:
        rmtree(own, ignore_errors=True)
        if kept.exists():
            kept.rename(own)
        call("PUT", "/configs/edgetune", json=values)
        run("accept_inventory")


def register(newcomer: Newcomer, values: dict[str, Any]) -> None:
    """What ``st2ctl reload --register-configs`` does, which not every StackStorm has."""
    file = newcomer.base / "configs/edgetune.yaml"
    text = file.read_text(encoding="utf-8").replace(PLACE, str(newcomer.base))
    kept = (f"{name}: {values[name]}\n" for name in KEPT if values.get(name))
    file.write_text("".join([text, *kept]), encoding="utf-8")
    call("POST", "/packs/register", json={"types": ["configs"], "packs": ["edgetune"]})
    registered = call("GET", "/configs/edgetune")["values"]
    assert registered.items() >= dict(load_yaml(file)).items()


@pytest.mark.parametrize("page", PAGES)
def test_a_newcomer_who_types_what_a_page_says_plans_a_rollout(
    newcomer: Newcomer, page: str
) -> None:
    values, seen = call("GET", "/configs/edgetune")["values"], {}
    for line in typed(page):
        if line.startswith("st2 pack install"):
            if PACK:
                done = st2("pack", "install", PACK)
                assert done.returncode == 0, done.stdout + done.stderr
        elif line.startswith("st2ctl reload --register-configs"):
            register(newcomer, values)
        elif line.startswith("st2 run "):
            _, _, action, *parameters = line.split()
            execution = shown(st2("run", "--json", action, *parameters))
            seen[action] = execution
            assert execution["status"] == "succeeded", execution["result"]
        else:
            newcomer.types(line)
    doctor = seen["edgetune.doctor_pop"]["result"]["result"]
    assert doctor["failed"] == [], doctor["text"]
    text = seen["edgetune.rollout_pop"]["result"]["output"]["text"]
    assert text.startswith("Plan sha256:"), text


def test_a_sensor_that_cannot_read_the_configuration_is_told_from_one_that_is_off(
    newcomer: Newcomer,
) -> None:
    """Whether it ever looked or not: it leaves what keeps it from looking."""
    values = call("GET", "/configs/edgetune")["values"]
    call("PUT", "/configs/edgetune", json={**values, "foo": 1})

    def left() -> Any:
        keys = {own["name"]: own["value"] for own in call("GET", "/keys?prefix=edgetune.guard")}
        return "configuration: foo: is not known here" in keys.get("edgetune.guard_problem", "")

    # What kept it from looking before may stand there still.
    until(left, 120)
    doctor = run("doctor_pop", pop="lab1")["result"]["result"]
    assert doctor["failed"] == ["configuration"], doctor["text"]
    assert "foo: is not known here" in doctor["text"]
