# SPDX-License-Identifier: Apache-2.0
"""The text of each document with which a step answers: actions show it instead of the document."""

from __future__ import annotations

from typing import Any, Callable

from edgetune.base.documents.capacity import Capacity, CapacityPlan
from edgetune.base.documents.diagnosis import Checkup, Diagnosis
from edgetune.base.documents.inventory import Differences
from edgetune.base.documents.look import Judged
from edgetune.base.documents.plan import ShownPlan
from edgetune.base.documents.sample import Drift
from edgetune.intent.campaign import ShownCampaign
from edgetune.report.campaign import definition_text
from edgetune.report.capacity import capacity_plan_text, capacity_text
from edgetune.report.findings import diagnosis_text, differences_text, doctor_text
from edgetune.report.text import drift_text, shown_plan_text, verdict_text

TEXTS: dict[type, Callable[[Any], str]] = {
    Capacity: capacity_text,
    CapacityPlan: capacity_plan_text,
    Checkup: doctor_text,
    Diagnosis: diagnosis_text,
    Differences: differences_text,
    Drift: drift_text,
    Judged: lambda own: verdict_text(own.look, own.plan),
    ShownCampaign: definition_text,
    ShownPlan: shown_plan_text,
}


def text_of(document: object) -> str:
    """A document as people read it; a text is one already. KeyError of any other type."""
    return document if isinstance(document, str) else TEXTS[type(document)](document)
