# SPDX-License-Identifier: Apache-2.0
"""What the doctor looks at besides a rollout. All that is wrong with what a site wrote down, with
file, line and cure: the configuration and the files that it names, the inventory, and tunings,
metrics and campaigns of its own. Certificates that edgetune has at hand, and when they end. What of
a site lies in the folder of the pack, which StackStorm removes when it installs it.

Actions refuse the first mistake that they meet; the doctor lists these.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import timezone
from functools import partial
from pathlib import Path
from typing import Any, Callable, NamedTuple

from cryptography import x509

import edgetune
from edgetune.base import clock
from edgetune.base.documents.diagnosis import Finding
from edgetune.base.durations import roughly, utc
from edgetune.base.errors import EdgetuneError, InputError
from edgetune.base.files import Load, load_yaml, read_file, yaml_files
from edgetune.base.mistakes import line_of, read_on
from edgetune.base.names import listed
from edgetune.base.sanitize import RUN
from edgetune.base.secret_files import read_secret
from edgetune.intent.campaign import load_campaign, pops_by_ring
from edgetune.intent.metrics.catalogue import load_definition
from edgetune.intent.tuning import load_tuning
from edgetune.net.bmc.client import trust
from edgetune.net.databases import SCHEME
from edgetune.net.hosts.ssh_files import load_known_hosts, load_login_key, load_user_certificate
from edgetune.net.inventories import open_inventory, source_of
from edgetune.net.inventories.yaml import YamlInventory
from edgetune.rollout.context import Context
from edgetune.site.config import PACK_METRICS, PACK_TUNINGS, Config, config_file, read_config
from edgetune.site.inventory import Host, Pop

_REGISTER = "register it:\nst2ctl reload --register-configs"
_CORRECT = "correct it"
_CURES = {
    "inventory": "write it, as docs/how-to/inventory.md shows:\nsudo vi {}",
    "ssh_key_file": "make one, and permit it on the hosts:\nsudo ssh-keygen -t ed25519 -N '' -f {}",
    "ssh_known_hosts": "write there which keys the hosts have:\nssh-keyscan HOST ... | sudo tee {}",
    "coordination_password_file": "write the password of Redis there, or take the option away",
}
"""What to do about a file that is not there; a command to type stands in a line of its own."""


class Note(Finding):
    """Is shown, and fails no check."""


def check_configuration(context: Context) -> Iterator[Finding]:
    """Every option is right, and every file that each rollout needs can be used.

    The context goes on with what is right, and with defaults in the place of the rest.
    """
    path, lines = config_file(), dict[str, int]()
    written: Any = None
    with suppress(InputError):  # StackStorm may have it from another node
        written = load_yaml(path, lines)
    read = read_on(context.given, read_config, "configuration")
    if read.mistakes and read.value:
        context.config = read.value
    told = partial(_told, lines=lines, file=path)
    cure = _CORRECT if os.environ.get(RUN) else f"{_CORRECT}, then {_REGISTER}"
    yield from (told(error, cure) for error in read.mistakes)
    given, own = context.given, written if isinstance(written, dict) else {}
    others = [name for name, value in own.items() if given.get(name) != value]
    # What holds an expression is given as StackStorm worked it out.
    if others and "{{" not in str(own):
        yield Note(f"{path} has another {listed(others)} than StackStorm", _REGISTER)
    wrong = {error.field for error in read.mistakes}
    for error in _raised(_uses(context.config)):
        if error.field not in wrong:
            yield told(error, _cure(error, getattr(context.config, str(error.field), "")))


def _uses(config: Config) -> Iterator[Callable[[], object]]:
    """What opens the files of the configuration, as actions do."""
    yield partial(load_login_key, config)
    yield partial(load_known_hosts, config.ssh_known_hosts)
    for name in ("coordination_password_file", "records_api_key_file"):
        yield partial(read_secret, getattr(config, name), name)
    yield partial(config.alertmanager.authorization, "configuration", "alertmanager.")


def check_bmcs(context: Context, hosts: Iterable[Host]) -> Iterator[str]:
    """Certificates and logins for the BMCs of these hosts are there."""
    logins = {host.bmc.credentials for host in hosts if host.bmc}
    uses = [partial(context.credentials, name) for name in sorted(logins)]
    yield from map(str, _raised([partial(trust, context.config), *uses] if uses else []))


def check_source(context: Context) -> Iterator[Finding]:
    """The source of the inventory can be read, and every PoP in it."""
    if not isinstance(context.given.get("inventory"), str):
        return
    if source_of(context.config) is YamlInventory:
        made = YamlInventory.__new__(YamlInventory)
        yield from _of_file("inventory", context.config.inventory, made.read)
    else:
        # What a service tells is asked for once.
        yield from map(_told, _raised([partial(open_inventory, context.config)]))


def check_catalogue(context: Context) -> Iterator[Finding]:
    """Tunings, metrics and campaigns of the site can be read."""
    readers: Mapping[str, Callable[[Path, Load], object]] = {
        "tunings": lambda path, load: load_tuning(path, context.catalogue, load),
        "metrics": lambda path, load: load_definition(path, context.catalogue, load),
        "campaigns": partial(_read_campaign, context),
    }
    found = []
    for option, directory in context.config.own_directories:
        try:
            files = yaml_files(directory)
        except InputError as error:
            found.append(_told(error))
            continue
        for path in files.values():
            found += _of_file(option, path, readers[option])
    yield from (Note(text, "make it, or correct the option") for text in context.config.absent)
    # What several files say is only known once each is read.
    yield from found or map(_told, _raised([context.catalogue.check]))


def _read_campaign(context: Context, path: Path, load: Load) -> None:
    campaign = load_campaign(path, load)
    inventory = None
    with suppress(EdgetuneError):  # its own check tells
        inventory = context.inventory
    if inventory:
        pops_by_ring(campaign, inventory)
    try:
        context.tuning(campaign.tuning)
    except InputError as error:
        # A file that is wrong is told of as that.
        if error.where == "parameter":
            raise InputError(str(path), "tuning", error.problem) from None


def _of_file(option: str, path: Path, read: Callable[[Path, Load], object]) -> Iterator[Finding]:
    lines = dict[str, int]()
    try:
        document = load_yaml(path, lines)
    except InputError as error:
        yield _told(error, _cure(InputError(error.where, option, error.problem), path))
        return
    found = read_on(document, lambda own: read(path, lambda _: own), str(path)).mistakes
    # Those of another file are told of that.
    yield from (_told(error, lines=lines) for error in found if error.where == str(path))


def _told(
    error: InputError, cure: str = _CORRECT, lines: Mapping[str, int] = {}, file: Path | None = None
) -> Finding:
    line = line_of(error.field or "", lines)
    where = f"{file or error.where}, line {line}" if line else error.where
    what = str(InputError(where, error.field, error.problem))
    return Finding(re.sub(r"\[Errno \d+\] ", "", what), cure)


def _raised(uses: Iterable[Callable[[], object]]) -> Iterator[InputError]:
    for use in uses:
        try:
            use()
        except InputError as error:
            yield error


def _cure(error: InputError, path: object) -> str:
    if "No such file" in error.problem:
        return _CURES.get(str(error.field), _CORRECT).format(path)
    return "let the user that runs actions read it" if "denied" in error.problem else _CORRECT


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
    found += _ends_in("bmc_ca_file", bmc, max)
    found += _ends_in("load_balancer.ca_file", fields.get("ca_file", ""), max)
    found += _ends_in("load_balancer.certificate_file", fields.get("certificate_file", ""), min)
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


def _ends_in(field: str, path: str, which: Callable[[Iterable[float]], float]) -> list[Certificate]:
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
