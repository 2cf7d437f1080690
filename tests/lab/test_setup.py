# SPDX-License-Identifier: Apache-2.0
"""What no test can work with is said in one line, and nothing half made is left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

pytestmark = pytest.mark.processes


def setup(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(ROOT / "lab/setup.sh"), *words]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True)


@pytest.mark.parametrize("zone", ["", "Asia/Tokyo", ":UTC", "EST5EDT", "<+0545>-5:45"])
def test_a_machine_that_is_good_is_told_nothing(zone: str) -> None:
    done = setup("machine", TZ=zone)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("env", "line"),
    [
        ({"TZ": "Mars/Phobos"}, "TZ=Mars/Phobos: this machine knows no such time zone"),
        ({"TMPDIR": "/nowhere"}, "TMPDIR=/nowhere: no folder that"),
        ({"TMPDIR": "/proc"}, "/proc has 0 MiB left and 512 are needed"),
    ],
)
def test_what_is_wrong_with_a_machine_is_one_line(env: dict[str, str], line: str) -> None:
    done = setup("machine", **env)
    assert done.returncode == 1 and done.stdout == ""
    (said,) = done.stderr.splitlines()
    assert said.startswith(f"setup: {line}")


def test_without_a_package_index_no_virtualenv_is_left(tmp_path: Path) -> None:
    """Its pip is the one that is there: to install one takes seconds."""
    place, python = tmp_path / "venv", tmp_path / "python"
    python.write_text(
        f"""#!/bin/sh
[ "$1 $2" = "-m venv" ] || exec {sys.executable} "$@"
mkdir -p "$4/bin"
printf '#!/bin/sh\\nexec {sys.executable} -m pip "$@"\\n' > "$4/bin/pip"
chmod +x "$4/bin/pip"
"""
    )
    python.chmod(0o755)
    without = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "1"}
    done = setup("venv", str(python), str(place), PIP_IGNORE_INSTALLED="1", **without)
    assert done.returncode == 1 and not place.exists()
    assert done.stderr.splitlines() == [
        "setup: pip does not reach its package index",
        f"setup: {place} is taken away: it was not whole",
    ]
