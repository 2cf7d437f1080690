# SPDX-License-Identifier: Apache-2.0
"""Boot environments of ZFS, by bectl(8)."""

import contextlib
import re
from typing import Iterator, NamedTuple, Sequence, Tuple

from edgetune.agent.host import Host
from edgetune.agent.protocol import Failed, Unsupported
from edgetune.agent.vocabulary.places import STATE

PLACE = STATE + "/boot_environment"
"""Where one is mounted."""


class Environments(NamedTuple):
    """All there are, with the one that runs, the default, and ("" for none) that booted once."""

    names: Tuple[str, ...]
    running: str
    default: str
    once: str

    @property
    def next(self) -> str:
        """The one that the next boot is of."""
        return self.once or self.default


def environments(host: Host) -> Environments:
    """Those of a host; Unsupported where it has none, or does not tell them all."""
    rows = _rows(host)
    running, default, once = (_flagged(rows, flag) for flag in "NRT")
    if not running or not default:
        raise Unsupported("bectl list -H tells no boot environment that runs, or no default")
    return Environments(tuple(row[0] for row in rows), running, default, once)


def _rows(host: Host) -> Sequence[Sequence[str]]:
    """Name, flags, mount point, space and date of each."""
    try:
        output = host.run("bectl", "list", "-H")
    except Failed as why:
        raise Unsupported(f"it has no boot environments: {why}") from None
    rows = [line.split("\t") for line in output.splitlines()]
    if not rows or not all(len(row) == 5 and re.fullmatch("-|N?R?T?", row[1]) for row in rows):
        raise Unsupported("bectl list -H tells no table of boot environments")
    return rows


def _flagged(rows: Sequence[Sequence[str]], flag: str) -> str:
    found = [name for name, flags, *_ in rows if flag in flags]
    if len(found) > 1:
        raise Unsupported(f"bectl list -H has {flag} of several boot environments")
    return found[0] if found else ""


@contextlib.contextmanager
def mounted(host: Host, name: str) -> Iterator[str]:
    """The directory where one is mounted for a while, by its name on the host.

    By itself bectl(8) mounts below /tmp, where others than root can make and rename things. What an
    agent left mounted that was killed is unmounted.
    """
    host.make_directory(PLACE, 0o700)
    for left in (row[0] for row in _rows(host) if row[2] == PLACE):
        host.run("bectl", "umount", left)
    host.run("bectl", "mount", name, PLACE)
    try:
        yield PLACE
    finally:
        host.run("bectl", "umount", name)
        host.remove_directory(PLACE)


def is_part(host: Host, path: str) -> bool:
    """Whether a path is another one in each boot environment: in its dataset, or in one below."""
    return f"{dataset_of(host, path)}/".startswith(f"{dataset_of(host, '/')}/")


def dataset_of(host: Host, path: str) -> str:
    """The dataset of ZFS that a path is in; Unsupported where it is in none."""
    try:
        found = host.run("zfs", "list", "-H", "-o", "name", path).strip()
    except Failed as why:
        raise Unsupported(f"{path} is in no dataset of ZFS: {why}") from None
    if not found or "\n" in found:
        raise Unsupported(f"zfs list tells no dataset of {path}")
    return found
