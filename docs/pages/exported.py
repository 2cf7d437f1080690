# SPDX-License-Identifier: Apache-2.0
"""What edgetune exports to Prometheus, and the alerts that rest on it."""

from __future__ import annotations

from pathlib import Path

from docs.pages.markdown import code, items, page, table
from edgetune.base.files import load_yaml
from edgetune.fleet.export.families import FAMILIES

RULES = "deploy/prometheus/edgetune.rules.yaml"


def exported_page(root: Path) -> str:
    families = (
        f"{code(own.name)} ({', '.join([own.type, *map(code, own.labels)])}): {own.help}"
        for own in FAMILIES
    )
    return page("exported-metrics", families=items(families), alerts=_alerts(root))


def _alerts(root: Path) -> str:
    rules = [rule for group in load_yaml(root / RULES)["groups"] for rule in group["rules"]]
    rows = [
        (
            code(rule["alert"]),
            rule["labels"]["severity"],
            rule["for"],
            rule["annotations"]["summary"].replace("{{ $labels.pop }}", "POP"),
            _linked(rule["annotations"]["runbook_url"]),
        )
        for rule in rules
        if "alert" in rule
    ]
    return table("alert, severity, after, what it says, what to do", rows)


def _linked(url: str) -> str:
    """A section of the runbook, seen from docs/reference."""
    return f"[runbook]({url.replace('docs/', '../')})"
