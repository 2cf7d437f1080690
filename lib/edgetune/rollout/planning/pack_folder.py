# SPDX-License-Identifier: Apache-2.0
"""What of a site lies in the folder of the pack: StackStorm removes that with each installation."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path

import edgetune
from edgetune.base.files import load_yaml
from edgetune.net.databases import SCHEME
from edgetune.site.config import PACK_METRICS, PACK_TUNINGS, Config

ROOT = Path(edgetune.__file__).resolve().parents[2]

_OWN = (PACK_METRICS, PACK_TUNINGS)


def site_files(config: Config) -> Iterator[tuple[str, str]]:
    """Fields of the configuration and of the inventory, each with its path below ``ROOT``.

    InputError where the inventory cannot be read.
    """
    for field, text in [
        *_texts("configuration", config),
        *_texts("inventory", load_yaml(config.inventory)),
    ]:
        if _is_inside(text):
            yield field, text


def _texts(name: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        below = [(f"{name}.{key}", own) for key, own in value.items()]
    elif isinstance(value, (list, tuple)):
        below = [(f"{name}[{index}]", own) for index, own in enumerate(value)]
    elif is_dataclass(value):
        below = [(f"{name}.{each.name}", getattr(value, each.name)) for each in fields(value)]
    else:
        yield from [(name, str(value))] if isinstance(value, (str, Path)) else []
        return
    for own, each in below:
        yield from _texts(own, each) if each not in _OWN else ()


def _is_inside(text: str) -> bool:
    """Whether it is a path in there, as it is written or once links are followed."""
    path = text[len(SCHEME) :] if text.startswith(SCHEME) else text
    if not path.startswith("/") or "\0" in path:
        return False
    ways = (os.path.normpath(path), os.path.realpath(path))
    return any(ROOT in (Path(way), *Path(way).parents) for way in ways)
