# SPDX-License-Identifier: Apache-2.0
"""edgetune: roll performance tunings over the PoPs of an edge network."""

__version__ = "0.10.0"

PACK = "edgetune"
RECORD_SCHEMA = 4
CAMPAIGN_SCHEMA = 1
PLAN_SCHEMA = 1
AGENT_PROTOCOL = 1
SAMPLE_SCHEMA = 2
