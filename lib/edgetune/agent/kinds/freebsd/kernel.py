# SPDX-License-Identifier: Apache-2.0
"""The boot environment of ZFS that runs, and the one that the next boot is of, by bectl(8)."""

import contextlib
import os
import re
from typing import Iterator, NamedTuple, Sequence, Tuple

from edgetune.agent.host import Host
from edgetune.agent.kinds.base import PYTHON, Handler, texts
from edgetune.agent.protocol import Failed, Unsupported
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.kernel import BOOT_ENVIRONMENT
from edgetune.agent.vocabulary.places import RC_SCRIPT, STATE
from edgetune.agent.vocabulary.values import Target, Value

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


class KernelBootEnvironment(Handler):
    """A boot environment that one boot tries, and that its confirmation makes the default."""

    kind = BOOT_ENVIRONMENT
    live = False
    tried_by_boot = True

    def probe(self, setting: Setting) -> None:
        """Unsupported where a host could not fall back, or would forget what is done to it."""
        known = environments(self.host)
        if setting.value not in known.names:
            raise Unsupported(f"there is no boot environment {setting.value}: create it first")
        if known.once not in ("", setting.value):
            raise Unsupported(f"somebody else asked for {known.once} at the next boot")
        if known.default != known.running != setting.value:
            what = f"{known.default} is the default, and {known.running} runs"
            raise Unsupported(
                f"{what}: reboot, so that it is what runs that the host falls back to"
            )
        # Journal and marker have to be the same in both: else nobody takes the new one back.
        place = os.path.dirname(STATE)
        if is_part(self.host, place):
            root = dataset_of(self.host, "/")
            raise Unsupported(
                f"{place} is part of the boot environment {root}: give it a dataset of its own, "
                "so that the new one knows that the host is not ready"
            )

    def probe_stored(self, setting: Setting, tuning: str) -> None:
        self.probe(setting)

    def runtime(self, target: Target) -> Value:
        return environments(self.host).running

    def persistent(self, target: Target) -> Value:
        return environments(self.host).next

    def snapshot(self, target: Target) -> object:
        return {"default": environments(self.host).default}

    def apply(self, target: Target, value: Value) -> None:
        """Give it our boot hook, and have the next boot try it."""
        self._give_hook(str(value))
        self.host.run("bectl", "activate", "-t", str(value))

    def _give_hook(self, name: str) -> None:
        script = self.host.read(RC_SCRIPT)
        with mounted(self.host, name) as place:
            self._refuse_without_python(name, place)
            directory = place + os.path.dirname(RC_SCRIPT)
            self.host.make_directory(directory)
            self.host.replace(place + RC_SCRIPT, script, 0o755)

    def _refuse_without_python(self, name: str, place: str) -> None:
        """A boot that cannot run the hook would never fall back, nor answer anybody over SSH."""
        if not is_part(self.host, PYTHON):
            return
        top = os.path.realpath(self.host.path(place))
        # Followed by its links, it has to stay in there: what runs now will not be what runs then.
        found = os.path.realpath(top + PYTHON)
        if not found.startswith(top + "/") or not os.path.isfile(found):
            raise Unsupported(
                f"the boot environment {name} has no {PYTHON}, which runs the agent: install it "
                "there, so that the host can fall back"
            )

    def commit(self, setting: Setting) -> None:
        self.host.run("bectl", "activate", str(setting.value))

    def restore(self, target: Target, snapshot: object) -> None:
        known, default = environments(self.host), texts(snapshot)["default"]
        if known.once:
            self.host.run("bectl", "activate", "-T")
        if known.default != default:
            self.host.run("bectl", "activate", default)
