# SPDX-License-Identifier: Apache-2.0
"""Where reports are written, and the index that is written beside each of them."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from edgetune.config import Config
from edgetune.errors import InputError
from edgetune.report.files import INDEX
from edgetune.rollout.context import Context
from edgetune.rollout.heads import read_heads


def report_folder(config: Config) -> Path:
    """The directory of all pages; InputError if the configuration names none."""
    if not config.report_dir:
        raise InputError("configuration", "report_dir", "is not set; reports are written there")
    return Path(config.report_dir)


def address_of(config: Config, path: Path) -> str:
    """The address under which a web server shows a file of the folder; empty without one."""
    return f"{config.report_url.rstrip('/')}/{path.name}" if config.report_url else ""


def write_file(path: Path, content: bytes) -> None:
    """Put a file in the place of an earlier one; InputError if ``report_dir`` does not permit it.

    Whoever reads it meanwhile sees the old one or the new one.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
        try:
            with open(descriptor, "wb") as file:
                os.fchmod(descriptor, 0o644)
                file.write(content)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink()
            raise
    except OSError as error:
        raise InputError("configuration", "report_dir", f"cannot be written: {error}") from None


def write_page(context: Context, path: Path, html: str) -> None:
    """Write a page, and the index of all rollouts beside it."""
    from edgetune.report.index import index_page

    write_file(path, html.encode("utf-8"))
    heads, unreadable = read_heads(context)
    missing = [f"The record of {each.id} cannot be read: {each.why}." for each in unreadable]
    files = {each.name for each in path.parent.iterdir()}
    index = index_page(heads, missing, files, time.time())
    write_file(path.parent / INDEX, index.encode("utf-8"))


def write_picture(config: Config, path: Path, html: str) -> str:
    """Write a page as a PNG where the configuration names a browser; its path, or nothing.

    A picture that cannot be drawn is no failure, but the one of an earlier state has to go.
    """
    from edgetune.report.png import png_of

    image = png_of(html, config.report_renderer)
    with suppress(InputError, OSError):
        if image:
            write_file(path, image)
            return str(path)
        path.unlink(missing_ok=True)
    return ""
