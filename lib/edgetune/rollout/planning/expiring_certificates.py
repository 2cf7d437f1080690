# SPDX-License-Identifier: Apache-2.0
"""Certificates that edgetune has at hand for a PoP, and when they end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import timezone
from pathlib import Path
from typing import Callable, NamedTuple

from cryptography import x509

from edgetune.base import clock
from edgetune.base.durations import roughly, utc
from edgetune.base.errors import EdgetuneError
from edgetune.base.files import read_file
from edgetune.net.hosts.ssh_files import load_user_certificate
from edgetune.rollout.context import Context
from edgetune.rollout.planning.preflight import Finding
from edgetune.site.inventory import Pop

_MOST_BYTES = 1 << 20
_FOREVER = 1 << 62
"""OpenSSH's certificates without an end have the largest number of 64 bits."""


class Certificate(NamedTuple):
    """What it is for people, and when it ends, in epoch seconds."""

    what: str
    ends: float


def certificates(context: Context, pop: Pop) -> list[Certificate]:
    """Of the user, of files that configuration and inventory name, and those that load balancers
    show. What cannot be read, or does not answer, is left out: the check of who needs it tells.
    """
    config = context.config
    found: list[Certificate] = []
    with suppress(EdgetuneError):
        for path, own in load_user_certificate(config):
            ends = float(own.valid_before)
            found += [Certificate(f"the user certificate {path}", ends)] if ends < _FOREVER else []
    bmc = config.bmc_ca_file if any(host.bmc for host in pop.hosts) else ""
    fields = pop.load_balancer.fields
    # The first that ends stops a login; of authorities the last one may do for all.
    found += _of_file("bmc_ca_file", bmc, max)
    found += _of_file("load_balancer.ca_file", fields.get("ca_file", ""), max)
    found += _of_file("load_balancer.certificate_file", fields.get("certificate_file", ""), min)
    with suppress(EdgetuneError):
        for place, data in context.load_balancer(pop).certificates().items():
            ends = _end(x509.load_der_x509_certificate(data))
            found.append(Certificate(f"the certificate that {place} shows", ends))
    return found


def check_certificates(found: Iterable[Certificate], within: float) -> Iterator[Finding]:
    """Those that end within so many seconds."""
    now = clock.wall()
    for own in found:
        left = own.ends - now
        if left > within:
            continue
        when = f"in {roughly(left)}, at {utc(own.ends)}" if left > 0 else f"at {utc(own.ends)}"
        what = f"{own.what} {'expires' if left > 0 else 'has expired'} {when}"
        yield Finding(what, "renew it", refuses=False)


def _of_file(field: str, path: str, which: Callable[[Iterable[float]], float]) -> list[Certificate]:
    try:
        read = x509.load_pem_x509_certificates(read_file(Path(path), _MOST_BYTES)) if path else []
    except (OSError, ValueError):
        return []
    ends = [_end(own) for own in read]
    return [Certificate(f"the certificate of {field} {path}", which(ends))] if ends else []


def _end(found: x509.Certificate) -> float:
    # cryptography before 42 tells it without a time zone.
    if hasattr(found, "not_valid_after_utc"):
        return found.not_valid_after_utc.timestamp()
    return found.not_valid_after.replace(tzinfo=timezone.utc).timestamp()
