# SPDX-License-Identifier: Apache-2.0
"""What ``doctor_pop`` answers of its checks."""

from __future__ import annotations

from edgetune.base.dataclass import dataclass


@dataclass(frozen=True)
class Group:
    """One thing that was found on ``hosts`` (none: on the PoP), and what a person can do."""

    hosts: list[str]
    what: str
    advice: str


@dataclass(frozen=True)
class Checked:
    """One ``check``, what it ``means`` where nothing is found, and its findings."""

    check: str
    means: str
    findings: list[Group]
