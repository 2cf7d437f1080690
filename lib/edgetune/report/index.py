# SPDX-License-Identifier: Apache-2.0
"""The page that leads to all reports: one line for each rollout."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from edgetune.documents.head import Head
from edgetune.report.files import CAMPAIGN, page_of
from edgetune.report.headline import Headline, effect_of, headline
from edgetune.report.page import render


class _Row(NamedTuple):
    head: Head
    headline: Headline
    effect: str
    page: str


def index_page(
    heads: Sequence[Head], missing: Sequence[str], files: Collection[str], made: float
) -> str:
    """Rollouts, the newest first, each linked where ``files`` holds its page.

    ``missing`` says in sentences which rollouts cannot be read.
    """
    newest = sorted(heads, key=lambda head: -head.created)
    pages = {page_of(head.id) for head in heads}
    campaigns = [name for name in sorted(files, reverse=True) if name.startswith(CAMPAIGN)]
    return render(
        "index.html",
        made,
        rows=[_row(head, files) for head in newest],
        campaigns=[
            (name[len(CAMPAIGN) : -len(".html")], name)
            for name in campaigns
            if name.endswith(".html") and name not in pages
        ],
        missing=missing,
    )


def _row(head: Head, files: Collection[str]) -> _Row:
    page = page_of(head.id)
    return _Row(head, headline(head), effect_of(head), page if page in files else "")
