# SPDX-License-Identifier: Apache-2.0
"""What StackStorm accepts in the files of a pack, as JSON Schema (draft 4), and a little stricter.

Stricter: `enabled` and `description` are required, and everything is spelt out. The facts are
those of StackStorm 3.10dev: st2common/models/api, st2common/util/schema, st2common/constants.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string", "minLength": 1}
SENTENCE: Schema = {"type": "string", "pattern": r"^(\(inner\) )?[A-Z0-9][\s\S]*\.$"}
# A parameter or result may begin with one of its values, such as `wait`.
PHRASE: Schema = {"type": "string", "pattern": r"^\S[\s\S]*\.$"}
FLAG: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}
OBJECT: Schema = {"type": "object"}
TEXTS: Schema = {"type": "array", "items": TEXT}
NESTED: Schema = {"$ref": "#/definitions/parameter"}
NESTED_BY_NAME: Schema = {"type": "object", "additionalProperties": NESTED}


def closed(must_have: str, **properties: Schema) -> Schema:
    """An object with these properties and no others; ``must_have`` is words, the required ones."""
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": must_have.split()} if must_have else schema


# Of draft 4 what the pack uses, plus position, immutable and secret, and a boolean `required`.
PARAMETER: Schema = closed(
    "",
    type={"enum": ["array", "boolean", "integer", "null", "number", "object", "string"]},
    description=PHRASE,
    default={},
    enum={"type": "array", "minItems": 1, "uniqueItems": True},
    pattern=TEXT,
    items=NESTED,
    properties=NESTED_BY_NAME,
    additionalProperties={"anyOf": [FLAG, NESTED]},
    anyOf={"type": "array", "minItems": 1, "items": NESTED},
    **dict.fromkeys(("required", "secret", "immutable", "uniqueItems"), FLAG),
    **dict.fromkeys(("position", "minLength", "maxLength", "minItems", "maxItems"), COUNT),
    **dict.fromkeys(("minimum", "maximum"), NUMBER),
)
PARAMETERS: Schema = {
    "type": "object",
    "patternProperties": {r"^\w+$": PARAMETER},
    "additionalProperties": False,
}
# Full: a bare mapping of properties has not been enough since StackStorm 3.8.
FULL_OUTPUT: Schema = closed(
    "type properties additionalProperties",
    type={"enum": ["object"]},
    properties={
        "type": "object",
        "minProperties": 1,
        "patternProperties": {
            r"^\w+$": {"allOf": [PARAMETER], "required": ["type", "description"]}
        },
        "additionalProperties": False,
    },
    additionalProperties={"enum": [False]},
)

ACTION = closed(
    "name description enabled runner_type entry_point parameters output_schema",
    name={"type": "string", "pattern": r"^[a-z][a-z0-9_]*$"},
    pack=TEXT,
    description=SENTENCE,
    enabled=FLAG,
    runner_type=TEXT,
    entry_point={"type": "string"},
    parameters=PARAMETERS,
    output_schema=FULL_OUTPUT,
    tags={"type": "array", "items": OBJECT},
    notify=closed("", **{"on-complete": OBJECT, "on-failure": OBJECT, "on-success": OBJECT}),
)
RULE = closed(
    "name description enabled trigger action",
    name=TEXT,
    pack=TEXT,
    description=SENTENCE,
    enabled=FLAG,
    trigger=closed("type", type=TEXT, parameters=OBJECT),
    criteria=OBJECT,
    action=closed("ref", ref=TEXT, parameters=OBJECT),
    context=OBJECT,
    tags={"type": "array", "items": OBJECT},
)
POLICY = closed(
    "name description enabled resource_ref policy_type parameters",
    # StackStorm puts the pack before it; one was named otherwise before, and is switched off by it.
    name={"type": "string", "pattern": r"^(edgetune\.one_rollout_per_pop|[a-z][a-z0-9_]*)$"},
    pack=TEXT,
    description=SENTENCE,
    enabled=FLAG,
    resource_ref=TEXT,
    policy_type=TEXT,
    parameters=OBJECT,
)
ALIAS = closed(
    "name description enabled action_ref formats",
    name={"type": "string", "pattern": r"^edgetune_[a-z][a-z0-9_]*$"},
    pack=TEXT,
    description=SENTENCE,
    enabled=FLAG,
    action_ref=TEXT,
    formats={
        "type": "array",
        "minItems": 1,
        "items": closed("display representation", display=TEXT, representation=TEXTS),
    },
    ack=closed("", enabled=FLAG, format=TEXT, extra=OBJECT, append_url=FLAG),
    result=closed("", enabled=FLAG, format=TEXT, extra=OBJECT),
    extra=OBJECT,
    immutable_parameters=OBJECT,
)
SENSOR = closed(
    "class_name entry_point description enabled",
    class_name=TEXT,
    pack=TEXT,
    description=SENTENCE,
    entry_point={"type": "string", "pattern": r"^[a-z][a-z0-9_]*\.py$"},
    enabled=FLAG,
    poll_interval={"type": "number", "minimum": 1},
    trigger_types={"type": "array", "items": OBJECT},
)
TRIGGER = closed(
    "name description payload_schema",
    name={"type": "string", "pattern": r"^[a-z][a-z0-9_]*$"},
    pack=TEXT,
    description=SENTENCE,
    payload_schema=FULL_OUTPUT,
    parameters_schema=OBJECT,
    tags={"type": "array", "items": OBJECT},
)
PACK = closed(
    "ref name description version author email python_versions stackstorm_version",
    ref={"type": "string", "pattern": r"^[a-z0-9_]+$"},
    name=TEXT,
    description=SENTENCE,
    keywords=TEXTS,
    version={"type": "string", "pattern": r"^(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}(-[\da-z.-]+)?$"},
    author=TEXT,
    email={"type": "string", "pattern": r"^[^@\s]+@[^@\s]+\.[^@\s]+$"},
    contributors={"type": "array", "items": {"type": "string", "maxLength": 100}},
    python_versions={"type": "array", "minItems": 1, "items": {"enum": ["2", "3"]}},
    stackstorm_version={
        "type": "string",
        "pattern": r"^((>?>|>=|=|<=|<?<)\s*[0-9]+\.[0-9]+\.[0-9]+?(\s*,)?\s*)+$",
    },
    dependencies=TEXTS,
    system=OBJECT,
)
