# SPDX-License-Identifier: Apache-2.0
"""What tells one vendor's BMC from another's, read from `personalities/NAME.json`."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).parent / "personalities"
PERSONALITIES = ("dell", "hpe", "lenovo", "ami")


@dataclass(frozen=True, eq=False)
class Personality:
    """One vendor and generation; `source` in its file says where names and shapes come from.

    paths: resource -> path, as this vendor spells it.
    attributes: name -> {type, value (the one a new machine has), display, menu, and as the type
        asks: values [[name, display], ...], min, max, read_only}.
    dependencies: [{if: [attribute, "EQU" or "NEQ", value], then: attribute, is: property}]; with
        CurrentValue for a property {to: the value that the attribute is given}.
    snoop_modes: [[mode, {attribute: value}], ...]; the first that fits is the mode.
    messages: our name of an error -> {status, id, text} where this vendor differs (messages.py).
    overlay: resource -> what is merged over its plain body; null takes away.
    """

    name: str
    source: list[str]
    manufacturer: str
    model: str
    bios_version: str
    manager_model: str
    registry: str
    paths: Mapping[str, str]
    resets: list[str]
    snoop_modes: list[tuple[str, dict[str, str]]]
    attributes: Mapping[str, Mapping[str, Any]]
    dependencies: list[Mapping[str, Any]] = field(default_factory=list)
    messages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    overlay: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    apply_times: list[str] = field(default_factory=list)  # none: cannot be chosen
    flat: bool = False  # attributes lie beside the resource's own properties
    delta: bool = False  # the settings object lists only what is pending
    jobs: bool = False  # what is pending is applied by a job, and only by a job
    checks_at_boot: bool = False  # the BMC takes any value; POST refuses it
    needs_etag: bool = False  # a PATCH without If-Match is refused
    action_info: bool = False  # reset types are a resource of their own
    gzip_registry: bool = False
    terse: bool = False  # messages have an id and arguments, but no text
    weak_etags: bool = False
    newest_first: bool = False  # entries of the event log
    slashes: bool = False  # paths end with one; a GET without it is redirected
    absolute_locations: bool = False  # of what was made; otherwise without the host
    name_key: str = "AttributeName"
    patch_status: int = 200
    reset_status: int = 204
    session_limit: int = 8
    session_seconds: float = 1800.0


@functools.cache
def load(name: str) -> Personality:
    """One of PERSONALITIES; LookupError for any other name."""
    if name not in PERSONALITIES:
        raise LookupError(f"no such personality: {name}")
    return Personality(name=name, **json.loads((DIRECTORY / f"{name}.json").read_text()))
