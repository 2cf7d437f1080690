# SPDX-License-Identifier: Apache-2.0
"""Policies: of a known type, over an action that exists, by parameters it is always given."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.metadata.schemas import POLICY, POLICY_PARAMETERS
from tests.support.metadata.values import Document, own_parameters, shape


def policy_problems(policy: Document, actions: Mapping[str, Document]) -> list[str]:
    """A policy registers and counts what it says it counts."""
    found = shape(policy, POLICY)
    if found:
        return found
    kind, ref = policy["policy_type"], policy["resource_ref"]
    if kind not in POLICY_PARAMETERS:
        return [f"policy_type: {kind!r} is none of {', '.join(POLICY_PARAMETERS)}"]
    if ref not in actions:
        return [f"resource_ref: there is no action {ref!r}"]
    found = shape(policy["parameters"], POLICY_PARAMETERS[kind], "parameters")
    return found or attribute_problems(policy, actions[ref])


def attribute_problems(policy: Document, action: Document) -> list[str]:
    """StackStorm counts by what was given: with nothing given, everything counts.

    Of several attributes one is enough, such as a PoP for a new rollout, an id for one carried on.
    """
    parameters = own_parameters(action)
    names = policy["parameters"].get("attributes", [])
    problems = [
        f"parameters.attributes: {name} is no parameter of the action"
        for name in names
        if name not in parameters
    ]
    if len(names) == 1 and not problems and not parameters[names[0]].get("required"):
        problems.append(
            f"parameters.attributes: {names[0]} can be left out, "
            f"and then every {policy['resource_ref']} counts, whatever its {names[0]}"
        )
    return problems
