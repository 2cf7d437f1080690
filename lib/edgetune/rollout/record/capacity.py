# SPDX-License-Identifier: Apache-2.0
"""The record of a measurement of capacity, and plans of one (see ``documents.capacity``).

Only the owner of the rollout's claim writes the measurement.
"""

from __future__ import annotations

from edgetune.base.documents.capacity import (
    Capacity,
    CapacityPlan,
    capacity_key,
    plan_key,
    read_capacity,
    read_capacity_plan,
)
from edgetune.rollout.context import Context


def save_capacity_plan(context: Context, plan: CapacityPlan) -> None:
    """Keep a plan under its digest."""
    context.store.put(plan_key(plan.digest), plan.document())


def load_capacity_plan(context: Context, digest: str) -> CapacityPlan:
    """A kept plan; RefusedError if there is none, DamagedError if it cannot be read."""
    return read_capacity_plan(digest, context.store.get(plan_key(digest)))


def load_capacity(context: Context, rollout: str) -> Capacity | None:
    """The last measurement during a rollout; None if there never was one."""
    text = context.store.get(capacity_key(rollout))
    return None if text is None else read_capacity(rollout, text)


def save_capacity(context: Context, measured: Capacity) -> None:
    """Write a measurement down."""
    context.store.put(capacity_key(measured.plan.rollout), measured.document())
