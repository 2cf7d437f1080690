# SPDX-License-Identifier: Apache-2.0
"""Where reports are written, how they are called, the index with a line for each rollout, and pages
as PNGs, drawn by a Chromium where the configuration names one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from pathlib import Path

from edgetune.base import clock
from edgetune.base.documents.head import ID, Head
from edgetune.base.errors import InputError
from edgetune.base.files import write_file
from edgetune.report.headline import effect_of, headline
from edgetune.report.page import render
from edgetune.rollout.context import Context
from edgetune.rollout.record.heads import read_living_heads
from edgetune.site.config import Config

INDEX = "index.html"
CAMPAIGN = "campaign-"
"""What the pages of campaigns begin with."""
CONGESTION = "congestion-"
"""What the pages of PoPs begin with whose congestion control is tuned."""

EARLIER = 1000
"""How many pages of archived rollouts the index links."""

SECONDS = 20.0
"""The longest that a browser may take."""
_SIZE = "1000,620"
_PNG = b"\x89PNG\r\n\x1a\n"
_FLAGS = (
    *("--headless", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
    *("--disable-extensions", "--disable-background-networking", f"--window-size={_SIZE}"),
)


def page_of(name: str, prefix: str = "") -> str:
    """The page of a rollout, or of a campaign or a PoP with its prefix."""
    return f"{prefix}{name}.html"


def report_folder(config: Config) -> Path:
    """The directory of all pages; InputError if the configuration names none."""
    if not config.report_dir:
        raise InputError("configuration", "report_dir", "is not set; reports are written there")
    return Path(config.report_dir)


def address_of(config: Config, path: Path) -> str:
    """The address under which a web server shows a file of the folder; empty without one."""
    return f"{config.report_url.rstrip('/')}/{path.name}" if config.report_url else ""


def write_page(context: Context, path: Path, html: str) -> None:
    """Write a page, and the index of all pages beside it; no archived rollout is read for it."""
    _write(path, html.encode("utf-8"))
    heads, unreadable = read_living_heads(context)
    missing = [f"The record of {each.id} cannot be read: {each.why}." for each in unreadable]
    files = {each.name for each in path.parent.iterdir()}
    index = index_page(heads, missing, files, clock.wall())
    _write(path.parent / INDEX, index.encode("utf-8"))


def write_picture(config: Config, path: Path, html: str) -> str:
    """Write a page as a PNG where the configuration names a browser; its path, or nothing.

    A picture that cannot be drawn is no failure, but the one of an earlier state has to go.
    """
    image = png_of(html, config.report_renderer)
    with suppress(InputError, OSError):
        if image:
            _write(path, image)
            return str(path)
        path.unlink(missing_ok=True)
    return ""


def _write(path: Path, content: bytes) -> None:
    write_file(path, content, "report_dir")


def png_of(html: str, program: str) -> bytes:
    """The picture of a page; nothing if there is no such program, or it fails or takes too long.

    The page is our own and runs no script. The browser gets neither our environment nor a home.
    """
    found = shutil.which(program) if program else None
    if found is None:
        return b""
    folder = tempfile.mkdtemp(prefix="edgetune-")
    try:
        return _drawn(found, html, Path(folder))
    except OSError:
        return b""
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _drawn(program: str, html: str, folder: Path) -> bytes:
    page, drawn = folder / "page.html", folder / "page.png"
    page.write_text(html, encoding="utf-8")
    # Chromium refuses its sandbox to root.
    flags = [*_FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    _draw([program, *flags, f"--screenshot={drawn}", page.as_uri()], str(folder))
    image = drawn.read_bytes() if drawn.is_file() else b""
    return image if image.startswith(_PNG) else b""


def _draw(command: list[str], home: str) -> None:
    """Run it in a session of its own, and end all of that: a browser has many processes."""
    environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": home, "TMPDIR": home}
    quiet = subprocess.DEVNULL
    with suppress(OSError, subprocess.SubprocessError):
        browser = subprocess.Popen(
            command,
            env=environment,
            stdin=quiet,
            stdout=quiet,
            stderr=quiet,
            start_new_session=True,
        )
        try:
            browser.wait(SECONDS)
        finally:
            with suppress(OSError):
                os.killpg(browser.pid, signal.SIGKILL)
            browser.wait()


def index_page(heads: Sequence[Head], missing: Sequence[str], files: Set[str], made: float) -> str:
    """Rollouts, the newest first, each linked where ``files`` holds its page.

    Below them are the newest pages of other rollouts, ``EARLIER`` of them at most. ``missing`` says
    in sentences which rollouts cannot be read.
    """
    newest = sorted(heads, key=lambda head: -head.created)
    pages = {page_of(head.id) for head in heads}
    named = {name: ID.fullmatch(name[: -len(".html")]) for name in files - pages}
    # A campaign's id is as that of a rollout.
    found = [(own[2], name) for name, own in named.items() if own and not name.startswith(CAMPAIGN)]
    earlier = sorted(found, reverse=True)
    return render(
        "index.html",
        made,
        rows=[
            {
                "head": head,
                "headline": headline(head),
                "effect": effect_of(head),
                "page": page if page in files else "",
            }
            for head in newest
            for page in [page_of(head.id)]
        ],
        earlier=_others("", [name for _, name in earlier[:EARLIER]]),
        left_out=max(0, len(earlier) - EARLIER),
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
