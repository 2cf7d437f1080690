# SPDX-License-Identifier: Apache-2.0
"""Which hosts of a PoP a rollout is about: those of its option ``only``, without ``exclude``."""

from __future__ import annotations

from edgetune.agent.vocabulary.grammar import nearest
from edgetune.base.documents.options import Options
from edgetune.base.errors import InputError, RefusedError
from edgetune.base.names import listed
from edgetune.site.inventory import Host, Pop


def chosen_hosts(pop: Pop, options: Options) -> list[Host]:
    """In the order of the inventory; all of the PoP where neither option is given.

    InputError names a word that means no host, or two things. RefusedError if no host is left.
    """
    left_out = {pop.host(name).name for name in options.exclude}
    kept = {name for word in options.only for name in _named(pop, word)}
    named = [host for host in pop.hosts if not options.only or host.name in kept]
    hosts = [host for host in named if host.name not in left_out]
    if not hosts:
        raise RefusedError(f"exclude= leaves no host of {pop.name}: take some names out of it")
    return hosts


def _named(pop: Pop, word: str) -> list[str]:
    """Names of the hosts that a word of ``only`` means."""
    host = [host.name for host in pop.hosts if host.name == word]
    rack = [host.name for host in pop.hosts if host.rack and host.rack == word]
    if host and rack and host != rack:
        text = f"{word!r} is a host and a rack of {pop.name}: give the names of the hosts"
        raise InputError("parameter", "only", text)
    if not host and not rack:
        text = f"{word!r} is no host and no rack of {pop.name}{_known(pop, word)}"
        raise InputError("parameter", "only", text)
    return host or rack


def _known(pop: Pop, word: str) -> str:
    racks = sorted({host.rack for host in pop.hosts if host.rack})
    close = nearest(word, [*(host.name for host in pop.hosts), *racks])
    if close:
        return f" (did you mean {close}?)"
    return f"; its racks: {listed(racks)}" if racks else "; the inventory names no rack there"
