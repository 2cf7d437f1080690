# SPDX-License-Identifier: Apache-2.0
"""The drivers of load balancers, and what the inventory has for each."""

from __future__ import annotations

import inspect

from docs.pages.markdown import code, page, paragraph, table
from edgetune.traffic import DRIVERS, Field, driver_class


def drivers_page() -> str:
    return page("load-balancers", drivers="\n\n".join(map(_driver, DRIVERS)))


def _driver(name: str) -> str:
    driver = driver_class(name)
    rows = [
        (code(own), its.meaning, _usual(its), code(its.example))
        for own, its in driver.fields.items()
    ]
    told = inspect.cleandoc(driver.__doc__ or "").replace("``", "`")
    refused = f"Where it refuses changes, a preflight advises: {driver.advice}."
    parts = [paragraph(told), table("field, meaning, usual, example", rows), paragraph(refused)]
    return "\n\n".join([f"## {name}", *parts])


def _usual(field: Field) -> str:
    return "required" if field.default is None else code(field.default)
