# SPDX-License-Identifier: Apache-2.0
"""What edgetune makes of machines whose BMCs others recorded."""

from __future__ import annotations

from dataclasses import astuple

from docs.pages.markdown import code, page, table
from tests.support.recorded import NAMES, abilities

HEADINGS = (
    "file, machine, BMC, BIOS shown, BIOS set, in force by, restarts, snoop modes, boot, events"
)


def machines_page() -> str:
    rows = [(code(name), *astuple(abilities(name))) for name in NAMES]
    return page("bmc-machines", machines=table(HEADINGS, rows))
