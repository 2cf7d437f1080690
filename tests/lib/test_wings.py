# SPDX-License-Identifier: Apache-2.0
"""A fleet may do without wings: everything else of the library loads and works without them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support import ROOT
from tests.support.builders import inventory_document

LIB = ROOT / "lib"
ALONE = """
import sys
sys.path.insert(0, sys.argv[1])
sys.modules["edgetune.wings"] = None
"""
READ = """
import json
from edgetune.base.errors import InputError
from edgetune.net.inventories._reading import WholeInventory
document = json.loads(sys.argv[2])["pops"]
WholeInventory("pops.yaml", document)
document["lab1"]["congestion"] = {}
try:
    WholeInventory("pops.yaml", document)
except InputError as error:
    print(error)
"""


def run(code: str) -> str:
    words = [
        sys.executable,
        "-I",
        "-c",
        ALONE + code,
        str(LIB),
        json.dumps(inventory_document(hosts=2)),
    ]
    return subprocess.run(words, capture_output=True, check=True, text=True).stdout


@pytest.mark.processes
def test_all_else_loads_without_wings() -> None:
    modules = [
        ".".join(path.relative_to(LIB).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted((LIB / "edgetune").rglob("*.py"))
        if path.name != "__main__.py" and "wings" not in path.parts
    ]
    assert len(modules) > 300
    # The worker and the agent's copy run as they are loaded.
    programs = {"edgetune.net.hosts.worker", "edgetune.agent.kept_copy"}
    assert run("\n".join(f"import {name}" for name in modules if name not in programs)) == ""


@pytest.mark.processes
def test_an_entry_of_a_wing_that_is_not_there_is_named() -> None:
    told = "pops.yaml: pops.lab1.congestion: the wing of that name is not installed here\n"
    assert run(READ) == told


@pytest.mark.processes
def test_a_wing_that_lacks_something_else_is_not_taken_for_one_that_is_not_there() -> None:
    broken = 'del sys.modules["edgetune.wings"]\nsys.modules["edgetune.base.options"] = None\n'
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run("import edgetune.net.inventories._reading\n" + broken + READ)
    assert "edgetune.base.options" in failed.value.stderr
