# SPDX-License-Identifier: Apache-2.0
"""What is told of a machine by its BMC, and of its BIOS."""

from __future__ import annotations

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.settings import SettingRow


@dataclass(frozen=True)
class BmcFacts:
    """The machine of a BMC, ``system`` being its UUID, and the ``resets`` that it takes."""

    system: str
    serial: str
    sku: str
    resets: list[str]


@dataclass(frozen=True)
class BiosPlan(BmcFacts):
    """What settings would change in the BIOS, which has this version and these ``attributes``."""

    bios_version: str
    attributes: dict[str, object]
    settings: list[SettingRow]


@dataclass(frozen=True)
class BiosState:
    """Whether attributes of a BIOS are as they should be: ``state`` and ``reason`` as
    ``bmc.checking`` says, what is ``current`` and ``pending`` of them, and what else is pending."""

    state: str
    reason: str
    current: dict[str, object]
    pending: dict[str, object]
    foreign: list[str]


@dataclass(frozen=True)
class BiosSet:
    """Attributes were set: by which ``job`` ("" for none), and whether that needs a ``boot``."""

    job: str = ""
    boot: bool = False
