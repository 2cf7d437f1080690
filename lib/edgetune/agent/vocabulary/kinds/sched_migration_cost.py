# SPDX-License-Identifier: Apache-2.0
"""How long the scheduler leaves a task where its memory is cached."""

from edgetune.agent.vocabulary.grammar import Text
from edgetune.agent.vocabulary.kind import Kind
from edgetune.agent.vocabulary.values import whole_number

# Up to Linux 5.12 a sysctl; from 5.13 on in debugfs, which a host may not mount or lock down.
OLD = "/proc/sys/kernel/sched_migration_cost_ns"
NEW = "/sys/kernel/debug/sched/migration_cost_ns"

KIND = Kind(
    name="sched.migration_cost",
    target={},
    value=Text(r"[0-9]{1,9}"),
    tidy=whole_number,
    touches=lambda target: [OLD, NEW],
    disruption="live",
    order=155,
    ordered=True,
    summary="For how many nanoseconds after it ran a task counts as too costly to move to another "
    "CPU.",
    takes="A number of nanoseconds.",
    example={"value": 500000},
)
