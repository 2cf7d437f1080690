# SPDX-License-Identifier: Apache-2.0
"""The index of all rollouts, the newest first, one line each, linked where there is a page; and the
picture of a headline: a browser draws it, and nothing fails for want of one."""

from __future__ import annotations

import os
import re
import shutil
import struct
import time
from pathlib import Path

import pytest

from edgetune.report import files
from edgetune.report.files import index_page, png_of
from tests.lib.report.test_headline import concluded, head
from tests.lib.report.test_report import TAGS, Reader, said
from tests.support.hostile import HOSTILE
from tests.support.waiting import wait_until


def test_the_newest_is_the_first() -> None:
    found = concluded("improved", "so", ratio=0.3, metric="listen_drops")
    old, new = head("complete", verdict=found), head("changing")
    old.id, new.id, new.created = "lab1-1", "lab1-2", 60.0
    html = index_page([old, new], [], {"lab1-1.html"}, 120.0)
    text = said(html)
    assert "2 rollouts that have not ended, or did so in the last day, the newest first" in text
    changing = "lab1-2 accept_queue on lab1 changing no verdict yet not known"
    complete = "lab1-1 accept_queue on lab1 complete improved connections dropped by full accept"
    assert re.search(f"{changing}.*{complete} queues: −70 %", text)
    assert re.findall(r'href="([^"]+)"', html) == ["lab1-1.html"]


def test_pages_of_archived_rollouts_are_linked_and_so_many_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(files, "EARLIER", 2)
    earlier = [f"{pop}-2026010{day}T000000-7a54" for day, pop in enumerate(("b1", "lab1", "a1"), 1)]
    html = index_page([], [], {f"{name}.{end}" for name in earlier for end in ("html", "png")}, 1.0)
    assert re.findall(r'href="([^"]+).html"', html) == earlier[:0:-1]
    assert "1 older pages are in the same folder." in said(html)


def test_campaigns_are_those_with_a_page() -> None:
    name = "queue-20260101T000000-7a54"
    page = f"campaign-{name}.html"
    html = index_page([], [], {page, f"campaign-{name}.png", "index.html"}, 1.0)
    assert re.findall(r'<a href="([^"]+)">([^<]+)', html) == [(page, name)]
    assert "There is no rollout." in said(html)


def test_what_cannot_be_read_is_named() -> None:
    assert "its record is damaged" in said(index_page([], ["its record is damaged"], set(), 1.0))


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_texts_are_only_shown(text: str) -> None:
    own = head("rolled_back", ("rolling_back", text), verdict=concluded("degraded", text))
    own.id = own.pop = own.tuning = text
    read = Reader(index_page([own], [text], {f"{text}.html", f"campaign-{text}.html"}, 1.0))
    assert read.tags <= TAGS
    assert not [name for name, _ in read.attributes if name.startswith("on")]


DRAWS = """
for word; do case "$word" in --screenshot=*) to="${word#--screenshot=}";; esac; page="$word"; done
{ printf '\\211PNG\\r\\n\\032\\n'; cat "${page#file://}"; env; } > "$to"
"""


def browser(folder: Path, body: str) -> str:
    """A program that is run in place of Chromium."""
    path = folder / "browser"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.processes
def test_a_picture_is_what_the_browser_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ST2_ACTION_AUTH_TOKEN", "secret")
    drawn = png_of("<p>proven</p>", browser(tmp_path, DRAWS))
    assert drawn.startswith(b"\x89PNG\r\n\x1a\n<p>proven</p>")
    assert b"secret" not in drawn


@pytest.mark.processes
def test_a_real_chromium_draws_the_whole_card(monkeypatch: pytest.MonkeyPatch) -> None:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no chromium is installed")
    monkeypatch.setattr(files, "SECONDS", 120.0)
    empty, full = (png_of(f"<body>{text}</body>", program) for text in ("", "proven " * 400))
    width, height = struct.unpack(">II", empty[16:24])
    assert (width, height) == (1000, 620)
    assert len(full) > 3 * len(empty) > 0


@pytest.mark.processes
@pytest.mark.parametrize("body", ["exit 1", "exit 0", "kill -9 $$", DRAWS.replace("PNG", "GIF")])
def test_a_browser_that_draws_nothing_is_no_failure(tmp_path: Path, body: str) -> None:
    assert png_of("<p>", browser(tmp_path, body)) == b""
    for program in ("", "no-such-browser", str(tmp_path / "gone")):
        assert png_of("<p>", program) == b""


@pytest.mark.processes
def test_a_browser_that_hangs_is_ended_with_all_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SECONDS", 0.2)
    told = tmp_path / "child"
    program = browser(tmp_path, f'sleep 60 & echo $! > "{told}"; wait')
    began = time.monotonic()
    assert png_of("<p>", program) == b""
    assert time.monotonic() - began < 30
    child = int(told.read_text())
    wait_until(lambda: not _lives(child))


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    # One that nobody has waited for yet is dead all the same.
    return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
