# SPDX-License-Identifier: Apache-2.0
"""The pages on how to add something, followed by the letter in a copy of the repository."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

# A block of a file that is named above it: the whole file, or what comes into one.
BLOCK = re.compile(
    r"^ *(?:(At the end of) |Before `(.+)` in |)\*\*`([\w/.-]+)`\*\*:\n\n( *)```\w+\n(.*?)^\4```$",
    re.MULTILINE | re.DOTALL,
)
PAGES = {
    "add-a-kind": (
        "sysfs",
        "lib/agent/vocabulary/test_kinds.py lib/agent/test_any_tuning.py",
    ),
    "add-a-driver": ("statefile", "lib/net/traffic/test_contract.py"),
    "add-an-action": (
        "count_hosts or role or listed",
        "actions pack/test_metadata.py docs/test_security_page.py",
    ),
}


def follow(page: str, copy: Path) -> list[str]:
    """Write what the page has one write; the files."""
    text = (ROOT / f"docs/how-to/{page}.md").read_text()
    written = []
    for append, before, name, indent, block in BLOCK.findall(text):
        own, file = re.sub(rf"^{indent}", "", block, flags=re.MULTILINE), copy / name
        if append:
            own = file.read_text() + own
        elif before:
            assert file.read_text().count(f"{before}\n") == 1
            own = file.read_text().replace(f"{before}\n", f"{own}{before}\n")
        else:
            assert not file.exists(), f"{name} is taken"
        file.write_text(own)
        written.append(name)
    return written


@pytest.mark.long
@pytest.mark.processes
@pytest.mark.parametrize("page", PAGES)
def test_somebody_who_reads_one_page_alone_adds_what_it_is_about(page: str, tmp_path: Path) -> None:
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout.split("\0")
    for name in filter(None, names):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / name, follow_symlinks=False)
    assert len(follow(page, tmp_path)) >= 2
    named, tests = PAGES[page]
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", named]
    words += [f"tests/{name}" for name in tests.split()]
    programs = [["docs/generate.py"], words]
    for program in programs:
        done = subprocess.run(
            [sys.executable, *program], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) >= 3
    checked = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "lib", "actions", "tests/support"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout
