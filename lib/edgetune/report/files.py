# SPDX-License-Identifier: Apache-2.0
"""How the pages are called that stand in one folder and lead to each other."""

from __future__ import annotations

INDEX = "index.html"
CAMPAIGN = "campaign-"
"""What the pages of campaigns begin with."""
CONGESTION = "congestion-"
"""What the pages of PoPs begin with whose congestion control is tuned."""


def page_of(rollout: str) -> str:
    """The page of a rollout."""
    return f"{rollout}.html"


def page_of_campaign(campaign: str) -> str:
    """The page of a campaign."""
    return f"{CAMPAIGN}{campaign}.html"


def page_of_congestion(pop: str) -> str:
    """The page of the congestion control of a PoP."""
    return f"{CONGESTION}{pop}.html"
