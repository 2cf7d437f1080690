# SPDX-License-Identifier: Apache-2.0
"""Memory policies: a word, and the NUMA nodes that it is about."""

from typing import Set

from edgetune.agent.host import Host
from edgetune.agent.protocol import Unsupported
from edgetune.agent.topology import memory_of
from edgetune.agent.vocabulary.values import format_cpus, parse_cpus


def memory_nodes(host: Host) -> Set[int]:
    """The nodes that have memory."""
    return {int(node) for node in memory_of(host).nodes}


def named(host: Host, word: str, nodes: str) -> str:
    """``bind:0-1``, or the bare word without nodes; ``interleave`` alone is over all of them."""
    chosen = memory_nodes(host) if nodes == "all" else parse_cpus(nodes)
    if not chosen or (word == "interleave" and chosen >= memory_nodes(host)):
        return word
    return f"{word}:{format_cpus(chosen)}"


def refuse_nodes(host: Host, policy: str) -> None:
    """Unsupported when a policy names nodes that have no memory here."""
    have = memory_nodes(host)
    missing = parse_cpus(policy.partition(":")[2]) - have
    if missing:
        lacking, there = format_cpus(missing), format_cpus(have)
        raise Unsupported(f"the host has memory on NUMA nodes {there}, not on {lacking}")
