# SPDX-License-Identifier: Apache-2.0
"""The page that leads to all reports: one line for each rollout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

from edgetune.base.documents.head import Head
from edgetune.report.files import CAMPAIGN, CONGESTION, page_of
from edgetune.report.headline import Headline, effect_of, headline
from edgetune.report.page import render


class _Row(NamedTuple):
    head: Head
    headline: Headline
    effect: str
    page: str


def index_page(heads: Sequence[Head], missing: Sequence[str], files: Set[str], made: float) -> str:
    """Rollouts, the newest first, each linked where ``files`` holds its page.

    ``missing`` says in sentences which rollouts cannot be read.
    """
    newest = sorted(heads, key=lambda head: -head.created)
    pages = {page_of(head.id) for head in heads}
    return render(
        "index.html",
        made,
        rows=[_row(head, files) for head in newest],
        campaigns=_others(CAMPAIGN, sorted(files - pages, reverse=True)),
        congestion=_others(CONGESTION, sorted(files - pages)),
        missing=missing,
    )


def _others(prefix: str, files: Iterable[str]) -> list[tuple[str, str]]:
    """Names and files of the pages that begin so."""
    return [
        (name[len(prefix) : -len(".html")], name)
        for name in files
        if name.startswith(prefix) and name.endswith(".html")
    ]


def _row(head: Head, files: Set[str]) -> _Row:
    page = page_of(head.id)
    return _Row(head, headline(head), effect_of(head), page if page in files else "")
