# SPDX-License-Identifier: Apache-2.0
"""Where reports are written, and the index that is written beside each of them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from edgetune.base import clock
from edgetune.base.errors import InputError
from edgetune.base.files import write_file
from edgetune.report.files import INDEX
from edgetune.rollout.context import Context
from edgetune.rollout.record.heads import read_all_heads
from edgetune.site.config import Config


def report_folder(config: Config) -> Path:
    """The directory of all pages; InputError if the configuration names none."""
    if not config.report_dir:
        raise InputError("configuration", "report_dir", "is not set; reports are written there")
    return Path(config.report_dir)


def address_of(config: Config, path: Path) -> str:
    """The address under which a web server shows a file of the folder; empty without one."""
    return f"{config.report_url.rstrip('/')}/{path.name}" if config.report_url else ""


def write_page(context: Context, path: Path, html: str) -> None:
    """Write a page, and the index of all rollouts beside it."""
    from edgetune.report.index import index_page

    _write(path, html.encode("utf-8"))
    heads, unreadable = read_all_heads(context)
    missing = [f"The record of {each.id} cannot be read: {each.why}." for each in unreadable]
    files = {each.name for each in path.parent.iterdir()}
    index = index_page(heads, missing, files, clock.wall())
    _write(path.parent / INDEX, index.encode("utf-8"))


def write_picture(config: Config, path: Path, html: str) -> str:
    """Write a page as a PNG where the configuration names a browser; its path, or nothing.

    A picture that cannot be drawn is no failure, but the one of an earlier state has to go.
    """
    from edgetune.report.png import png_of

    image = png_of(html, config.report_renderer)
    with suppress(InputError, OSError):
        if image:
            _write(path, image)
            return str(path)
        path.unlink(missing_ok=True)
    return ""


def _write(path: Path, content: bytes) -> None:
    write_file(path, content, "report_dir")
