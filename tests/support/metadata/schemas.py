# SPDX-License-Identifier: Apache-2.0
"""What StackStorm accepts, and what it knows before any pack is installed: ``stackstorm.yaml``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.cases import table

Schema = dict[str, Any]
_FILE: Schema = table(Path(__file__).with_name("stackstorm.yaml"))


def _meant(given: Any) -> Any:
    """What is written there, with what names stand for, and objects as JSON Schema has them."""
    if isinstance(given, list):
        return [_meant(each) for each in given]
    if not isinstance(given, dict):
        return _meant(_FILE[given]) if isinstance(given, str) and given in _FILE else given
    if "may" not in given:
        return {name: _meant(each) for name, each in given.items()}
    schema = {"type": "object", "properties": _meant(given["may"]), "additionalProperties": False}
    return {**schema, "required": given["must"].split()} if "must" in given else schema


ACTION, ALIAS, PACK, PARAMETER, PARAMETERS = map(
    _meant, ("ACTION", "ALIAS", "PACK", "PARAMETER", "PARAMETERS")
)
POLICY, RULE, SENSOR, TRIGGER = map(_meant, ("POLICY", "RULE", "SENSOR", "TRIGGER"))
NO_PARAMETERS, POLICY_PARAMETERS = map(_meant, ("NO_PARAMETERS", "POLICY_PARAMETERS"))
RUNNERS, TRIGGER_PARAMETERS = map(_meant, ("RUNNERS", "TRIGGER_PARAMETERS"))
TRIGGER_PAYLOADS = {name: {*payload} for name, payload in _FILE["TRIGGER_PAYLOADS"].items()}
OVERRIDABLE, SENSOR_METHODS = {*_FILE["OVERRIDABLE"]}, {*_FILE["SENSOR_METHODS"]}
OPERATORS = {*_FILE["OPERATORS"].split()}
