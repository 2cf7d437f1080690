# SPDX-License-Identifier: Apache-2.0
"""The kinds of settings, in the order of application."""

from typing import Dict, Tuple, Type

from edgetune.hosts.agent.kinds.base import Kind
from edgetune.hosts.agent.kinds.cpu_service_affinity import CpuServiceAffinity
from edgetune.hosts.agent.kinds.file import File
from edgetune.hosts.agent.kinds.memory_numa_policy import MemoryNumaPolicy
from edgetune.hosts.agent.kinds.memory_thp import MemoryThp
from edgetune.hosts.agent.kinds.memory_tmpfs_policy import MemoryTmpfsPolicy
from edgetune.hosts.agent.kinds.memory_watermarks import MemoryWatermarks
from edgetune.hosts.agent.kinds.nic_channels import NicChannels
from edgetune.hosts.agent.kinds.nic_coalesce import NicCoalesce
from edgetune.hosts.agent.kinds.nic_features import NicFeatures
from edgetune.hosts.agent.kinds.nic_irq_affinity import NicIrqAffinity
from edgetune.hosts.agent.kinds.nic_rfs import NicRfs
from edgetune.hosts.agent.kinds.nic_ring import NicRing
from edgetune.hosts.agent.kinds.nic_rps import NicRps
from edgetune.hosts.agent.kinds.nic_rss import NicRss
from edgetune.hosts.agent.kinds.nic_xps import NicXps
from edgetune.hosts.agent.kinds.route_metric import RouteMetric
from edgetune.hosts.agent.kinds.sched_migration_cost import SchedMigrationCost
from edgetune.hosts.agent.kinds.service_property import ServiceProperty
from edgetune.hosts.agent.kinds.sysctl import Sysctl
from edgetune.hosts.agent.kinds.unit import Unit

ORDER: Tuple[Type[Kind], ...] = (
    Unit,
    NicChannels,
    NicRing,
    NicRss,
    NicFeatures,
    NicCoalesce,
    NicIrqAffinity,
    NicXps,
    NicRps,
    NicRfs,
    RouteMetric,
    MemoryThp,
    MemoryWatermarks,
    MemoryTmpfsPolicy,
    SchedMigrationCost,
    Sysctl,
    File,
    ServiceProperty,
    MemoryNumaPolicy,
    CpuServiceAffinity,
)
"""Every kind in the order of application: what resets others comes first.

They are taken back in the reverse order.
"""

KINDS: Dict[str, Type[Kind]] = {kind.name: kind for kind in ORDER}
"""The same by name."""
