# SPDX-License-Identifier: Apache-2.0
"""The README and the page on installing, followed by the letter until a rollout is planned.

What StackStorm itself does is left to ``tests/st2/test_installing.py``: here the local runner runs
the actions, on a simulated lab.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import simulated
from tests.support import ROOT
from tests.support.installing import PAGES, Newcomer, typed

pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("installing")
    try:
        simulated.up(home)
        yield home / "lab"
    finally:
        simulated.down(home)


class Site(Newcomer):
    """A StackStorm of which only the folders are there, and a newcomer before it."""

    def __init__(self, folder: Path, lab: Path) -> None:
        base = folder / "stackstorm"
        super().__init__(folder, base, lab)
        self._folder = folder
        for name in ("configs", "packs/edgetune"):
            (base / name).mkdir(parents=True)
        self.config = base / "configs/edgetune.yaml"

    def installs(self) -> None:
        """The part of ``st2 pack install`` that the pages rely on."""
        example = self.base / "packs/edgetune/edgetune.yaml.example"
        shutil.copy(ROOT / example.name, example)

    def registers(self) -> None:
        """The local runner has neither StackStorm's datastore nor its Redis, and reads the file."""
        text = self.config.read_text(encoding="utf-8").replace("/opt/stackstorm", str(self.base))
        state = f"sqlite:///{self._folder}/state.sqlite"
        self.config.write_text(f"{text}records: {state}\ncoordination: {state}\n", encoding="utf-8")

    def run(self, line: str) -> tuple[int, dict[str, Any]]:
        """``st2 run edgetune.ACTION ...`` by the local runner."""
        words = line.removeprefix("st2 run edgetune.").split()
        done = subprocess.run(
            [sys.executable, "-m", "lab.cli", "run", *words, "--json"],
            cwd=ROOT,
            env={
                **os.environ,
                "EDGETUNE_HOME": str(self._folder),
                "EDGETUNE_CONFIG": str(self.config),
                "PYTHONPATH": f"{ROOT}:{ROOT / 'lib'}",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        result = json.loads(done.stdout)["result"]
        return done.returncode, result.get("output") or result["result"]


@pytest.mark.parametrize("page", PAGES)
def test_a_newcomer_who_types_what_a_page_says_plans_a_rollout(
    tmp_path: Path, lab: Path, page: str
) -> None:
    site, seen = Site(tmp_path, lab), []
    for line in typed(page):
        if line.startswith("st2 pack install"):
            site.installs()
        elif line.startswith("st2ctl reload --register-configs"):
            site.registers()
        elif line.startswith("st2 run edgetune."):
            code, result = site.run(line)
            assert code == 0, result
            seen.append((line.split()[2], result))
        else:
            site.types(line)
    doctor, planned = dict(seen)["edgetune.doctor_pop"], dict(seen)["edgetune.rollout_pop"]
    assert doctor["message"] == "ams1: all 17 checks are well"
    assert [row["check"] for row in doctor["checks"] if row["notes"]] == []
    assert planned["text"].startswith(f"Plan {planned['plan']}: accept_queue")


def test_whoever_copies_the_example_alone_gets_three_commands_in_one_run(
    tmp_path: Path, lab: Path
) -> None:
    """Typed, they leave the doctor with nothing to say of what the site wrote down."""
    site = Site(tmp_path, lab)
    site.installs()
    lines = [line for line in typed("README.md") if "edgetune.yaml" in line or "mkdir" in line]
    for line in lines:
        site.types(line)
    site.registers()
    code, result = site.run("st2 run edgetune.doctor_pop pop=ams1")
    assert (code, result["failed"]) == (3, ["configuration", "source"])
    commands = [
        row["advice"].partition("\n")[2] for check in result["checks"] for row in check["findings"]
    ]
    assert len(commands) == 3 and all(f"\n      {own}" in result["text"] for own in commands)
    for own in commands:
        site.types(own.replace("ssh-keyscan HOST ...", "cat ~/.ssh/known_hosts"))
    _, result = site.run("st2 run edgetune.doctor_pop pop=ams1")
    # The new key is permitted on no host.
    assert result["failed"][0] == "hosts", result["text"]
