# SPDX-License-Identifier: Apache-2.0
"""Pages are no longer than people read, and their sentences are easy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.test_docs import FENCE, NAMES
from tests.support import ROOT

BESIDE = sorted({path for folder in ("bench", "tests") for path in (ROOT / folder).rglob("*.md")})
EVERY = sorted({*NAMES, *(path.relative_to(ROOT).as_posix() for path in BESIDE)})
"""All pages, those beside fixtures as well."""
MOST = 1_350
"""Words of a page, as ``wc -w`` counts them, unless it has a limit of its own."""
LIMITS = {
    "CHANGES.md": 5_500,
    "README.md": 1_450,
    "docs/design.md": 5_100,
    "docs/how-to/campaigns.md": 1_450,
    "docs/how-to/lab.md": 1_600,
    "docs/judge.md": 7_650,
    "docs/performance.md": 3_050,
    "docs/reference/actions.md": 3_500,
    "docs/reference/configuration.md": 1_500,
    "docs/reference/exported-metrics.md": 1_500,
    "docs/reference/kinds.md": 1_950,
    "docs/reference/metrics.md": 2_400,
    "docs/reference/tunings.md": 3_400,
    "docs/runbook.md": 7_050,
    "docs/security.md": 2_400,
    "docs/waits.md": 1_450,
}
TOTAL = 94_500
"""Words of all pages."""
DECISION = 380
"""Words of a decision: its result and its reason."""
WRITTEN = [name for name in NAMES if not re.search("docs/reference/|index.md$", name)]
"""Pages of prose; the others are tables and lists of names."""
EASY = 65.0
"""Least ease of reading by Flesch's formula, in which 60 to 70 is plain English."""
SCORED = 100
"""Words of prose from which on a score says something."""
NOT_PROSE = re.compile(r"^(?: *\||#|\[\w+\]:|<!--).*$|\]\([^)]*\)", re.MULTILINE)
"""Tables, headings and the targets of links."""
SENTENCE = re.compile(r"[.!?:](?:\*\*)?(?=\s|$)|\n\s*\n|\n\s*(?:\*|\d+\.) ")
SILENT = re.compile(r"(?<=[^aeiouyl])e$|(?<=[^td])ed$|(?<=[^aeiouysxz])es$")
NAMELESS = re.compile(r"(?:(?<=[.:;] )|(?<=\* ))(?:Who|Whoever|What|Whatever)\b[^.?]*\.")
"""A sentence whose subject has no name; a question may begin so."""
MOST_NAMELESS = 4
"""Such sentences in all pages: none is better."""
PLAIN = "The host is drained. Then it boots. The balancer sends it no requests until it is well. "
HEAVY = "Administrative configuration considerations necessitate organisational validation. "


@pytest.mark.parametrize("name", EVERY)
def test_a_page_is_no_longer_than_its_limit(name: str) -> None:
    assert len((ROOT / name).read_text().split()) <= limit_of(name)


def test_all_pages_are_no_longer_than_their_limit() -> None:
    assert sum(len((ROOT / name).read_text().split()) for name in EVERY) <= TOTAL


def test_each_limit_is_of_a_page_that_needs_it() -> None:
    needless = [name for name, most in LIMITS.items() if name not in EVERY or most <= MOST]
    assert needless == []


@pytest.mark.parametrize("name", WRITTEN)
def test_the_prose_of_a_page_is_easy_to_read(name: str) -> None:
    text = prose_of((ROOT / name).read_text())
    assert len(text.split()) < SCORED or ease_of(text) >= EASY


def test_few_sentences_have_a_subject_without_a_name() -> None:
    found = [f"{name}: {text}" for name in WRITTEN for text in nameless(name)]
    assert len(found) <= MOST_NAMELESS, found


def test_a_subject_without_a_name_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("It ends. What stands there\nis told. What is it? Nobody says what it is.\n")
    assert nameless(page) == ["What stands there is told."]


def test_the_score_tells_plain_words_from_heavy_ones() -> None:
    assert ease_of(PLAIN * 9) > 85 > EASY > 0 > ease_of(HEAVY * 9)
    long = PLAIN.replace(". ", " and ") * 9
    assert ease_of(long) < EASY < ease_of(PLAIN * 9)


def test_tables_code_and_addresses_are_no_prose() -> None:
    code = "```\nConfiguration considerations.\n```\n"
    text = f"# Heading\n\n{code}\n| a | table |\n\nRead [it](https://example.org/x) of `a b c`.\n"
    assert prose_of(text).split() == ["Read", "[it", "of", "code."]


def limit_of(name: str) -> int:
    most = DECISION if re.match(r"docs/decisions/\d", name) else MOST
    return LIMITS.get(name, most)


def nameless(page: str | Path) -> list[str]:
    return NAMELESS.findall(" ".join(prose_of((ROOT / page).read_text()).split()))


def prose_of(text: str) -> str:
    """The sentences of a page, with one word for each piece of code."""
    return re.sub(r"`[^`]*`", "code", NOT_PROSE.sub("", FENCE.sub("", text)))


def ease_of(text: str) -> float:
    """Flesch's ease of reading; each group of vowels is a syllable, but for silent endings."""
    words = re.findall(r"[A-Za-z][A-Za-z']*", text)
    sentences = [part for part in SENTENCE.split(text) if re.search(r"[A-Za-z]{2}", part)]
    groups = (re.findall(r"[aeiouy]+", SILENT.sub("", word.lower())) for word in words)
    syllables = sum(max(1, len(found)) for found in groups)
    return 206.835 - 1.015 * len(words) / len(sentences) - 84.6 * syllables / len(words)
