# SPDX-License-Identifier: Apache-2.0
"""What the doctor looks at besides a rollout: certificates that edgetune has at hand, and when they
end; what of a site lies in the folder of the pack, which StackStorm removes when it installs it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import timezone
from pathlib import Path
from typing import Callable, NamedTuple

from cryptography import x509

import edgetune
from edgetune.base import clock
from edgetune.base.documents.diagnosis import Finding
from edgetune.base.durations import roughly, utc
from edgetune.base.errors import EdgetuneError
from edgetune.base.files import load_yaml, read_file
from edgetune.net.databases import SCHEME
from edgetune.net.hosts.ssh_files import load_user_certificate
from edgetune.rollout.context import Context
from edgetune.site.config import PACK_METRICS, PACK_TUNINGS, Config
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


ROOT = Path(edgetune.__file__).resolve().parents[2]

_OWN = (PACK_METRICS, PACK_TUNINGS)


def site_files(config: Config) -> Iterator[tuple[str, str]]:
    """Fields of the configuration and of the inventory, each with its path below ``ROOT``.

    InputError where the inventory cannot be read.
    """
    for field, text in [
        *_texts("configuration", config),
        *_texts("inventory", load_yaml(config.inventory)),
    ]:
        if _is_inside(text):
            yield field, text


def _texts(name: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        below = [(f"{name}.{key}", own) for key, own in value.items()]
    elif isinstance(value, (list, tuple)):
        below = [(f"{name}[{index}]", own) for index, own in enumerate(value)]
    elif is_dataclass(value):
        below = [(f"{name}.{each.name}", getattr(value, each.name)) for each in fields(value)]
    else:
        yield from [(name, str(value))] if isinstance(value, (str, Path)) else []
        return
    for own, each in below:
        yield from _texts(own, each) if each not in _OWN else ()


def _is_inside(text: str) -> bool:
    """Whether it is a path in there, as it is written or once links are followed."""
    path = text[len(SCHEME) :] if text.startswith(SCHEME) else text
    if not path.startswith("/") or "\0" in path:
        return False
    ways = (os.path.normpath(path), os.path.realpath(path))
    return any(ROOT in (Path(way), *Path(way).parents) for way in ways)
