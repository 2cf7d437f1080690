# SPDX-License-Identifier: Apache-2.0
"""The index of all rollouts: the newest first, one line each, linked where there is a page."""

from __future__ import annotations

import re

import pytest

from edgetune.report.files import index_page
from tests.lib.report.test_headline import concluded, head
from tests.lib.report.test_report import TAGS, Reader, said
from tests.support.hostile import HOSTILE


def test_the_newest_is_the_first() -> None:
    found = concluded("improved", "so", ratio=0.3, metric="listen_drops")
    old, new = head("complete", verdict=found), head("changing")
    old.id, new.id, new.created = "lab1-1", "lab1-2", 60.0
    html = index_page([old, new], [], {"lab1-1.html"}, 120.0)
    text = said(html)
    assert "2 rollouts, the newest first" in text
    changing = "lab1-2 accept_queue on lab1 changing no verdict yet not known"
    complete = "lab1-1 accept_queue on lab1 complete improved connections dropped by full accept"
    assert re.search(f"{changing}.*{complete} queues: −70 %", text)
    assert re.findall(r'href="([^"]+)"', html) == ["lab1-1.html"]


def test_campaigns_are_those_with_a_page() -> None:
    html = index_page([], [], {"campaign-queue-1.html", "campaign-queue-1.png", "index.html"}, 1.0)
    assert re.findall(r'<a href="([^"]+)">([^<]+)', html) == [("campaign-queue-1.html", "queue-1")]
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
