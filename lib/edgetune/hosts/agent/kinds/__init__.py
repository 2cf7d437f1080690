# SPDX-License-Identifier: Apache-2.0
"""The kinds of settings, in the order of application."""

from importlib import import_module
from typing import Iterator, Mapping, Type, cast

from edgetune.hosts.agent.kinds.base import Kind

ORDER = (
    "unit",
    "nic.channels",
    "nic.ring",
    "nic.rss",
    "nic.features",
    "nic.coalesce",
    "nic.irq_affinity",
    "nic.xps",
    "nic.rps",
    "nic.rfs",
    "route.metric",
    "memory.thp",
    "memory.watermarks",
    "memory.tmpfs_policy",
    "sched.migration_cost",
    "sysctl",
    "file",
    "service.property",
    "memory.numa_policy",
    "cpu.service_affinity",
)
"""Every kind in the order of application: what resets others comes first.

They are taken back in the reverse order.
"""


class Kinds(Mapping[str, Type[Kind]]):
    """The classes by name: ``nic.irq_affinity`` is NicIrqAffinity in nic_irq_affinity.py.

    Imported when it is asked for: each round trip pays for what it compiles.
    """

    def __getitem__(self, name: str) -> Type[Kind]:
        if name not in ORDER:
            raise KeyError(name)
        module = import_module(f"{__name__}.{name.replace('.', '_')}")
        return cast(Type[Kind], getattr(module, name.title().replace(".", "").replace("_", "")))

    def __contains__(self, name: object) -> bool:
        return name in ORDER

    def __iter__(self) -> Iterator[str]:
        return iter(ORDER)

    def __len__(self) -> int:
        return len(ORDER)


KINDS = Kinds()
