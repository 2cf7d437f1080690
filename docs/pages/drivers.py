# SPDX-License-Identifier: Apache-2.0
"""The drivers of load balancers, and what the inventory has for each."""

from __future__ import annotations

from docs.pages.entries import entry
from docs.pages.markdown import page, paragraph
from edgetune.net.traffic import DRIVERS


def drivers_page() -> str:
    return page("load-balancers", drivers="\n\n".join(map(_driver, DRIVERS)))


def _driver(name: str) -> str:
    driver = DRIVERS[name]
    refused = f"Where it refuses changes, a preflight advises: {driver.advice}."
    return "\n\n".join([entry(f"## {name}", driver.__doc__, driver.fields), paragraph(refused)])
