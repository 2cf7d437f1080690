# SPDX-License-Identifier: Apache-2.0
"""The quick tests in other surroundings: days, time zones, languages, users, folders, machines.

    python -m tests.anywhere                  in all of them
    python -m tests.anywhere saturday umask   in these
    python -m tests.anywhere --pick COMMIT    in three, which the hash of the commit chooses

Nothing of this machine is changed: whatever differs is in the environment, in a namespace or in a
copy of the checkout. The exit status is 0 only if all tests passed wherever they ran.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench._mutation import copy_checkout
from tests.support import ROOT

MARKS = "not (lab or machines or processes or slow or quiet or long)"
PICKED = 3
FAKED_TIME = ROOT / "tests/support/faked_time"
CORES = "/sys/devices/system/cpu/online"
NO_IPV6 = "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 && ip link set lo up"


@dataclass(frozen=True)
class Surroundings:
    """`says` ends the sentence "the tests run ..."; `command` goes before that of pytest.

    A variable whose value is None is taken out of the environment. `place` is the folder of a copy
    of the checkout, where the tests do not run in the checkout itself, and `cloned` says that the
    copy is a clone of its last commit. A command with ``unshare`` needs root.
    """

    says: str
    command: tuple[str, ...] = ()
    env: Mapping[str, str | None] = field(default_factory=dict)
    place: str = ""
    cloned: bool = False

    def lacks(self) -> str:
        """What keeps the tests from running there on this machine; empty for nothing."""
        if self.cloned and not (ROOT / ".git").exists():
            return "this is no checkout of git"
        if not self.command:
            return ""
        if not shutil.which(self.command[0]):
            return f"{self.command[0]} is not installed"
        probe = subprocess.run([*self.command, "true"], capture_output=True, text=True)
        return (probe.stderr.strip() or "refused").splitlines()[-1] if probe.returncode else ""


def _at(moment: str, zone: str = "UTC") -> Surroundings:
    command = ("faketime", "-f", f"@{moment}")
    env = {"TZ": zone, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "PYTHONPATH": str(FAKED_TIME)}
    return Surroundings(f"from {moment} on, in {zone}", command, env)


def _in_zone(zone: str) -> Surroundings:
    return Surroundings(f"in the time zone {zone}", env={"TZ": zone})


def _as_root_of_namespaces(kinds: str, first: str) -> tuple[str, ...]:
    return ("unshare", *kinds.split(), "sh", "-c", f'{first} && exec "$@"', "sh")


def _with_cores(number: int) -> Surroundings:
    shown = f"echo 0-{number - 1} > /run/cores && mount --bind /run/cores {CORES}"
    own = "mount -t tmpfs none /run"
    command = _as_root_of_namespaces("--mount", f"{own} && {shown}")
    return Surroundings(f"on a machine that reports {number} cores", command)


# Its owner has no right beyond the modes of files.
PLAIN_USER = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
READ_ONLY_HOME = "h=$(mktemp -d) && chmod 555 $h && export HOME=$h && trap 'rmdir $h' EXIT"
# Debian has the sources of a language alone, until it is made.
GERMAN = (
    "l=$(mktemp -d) && trap 'rm -r $l' EXIT && localedef -i de_DE -f UTF-8 $l/de_DE.UTF-8 && "
    "export LOCPATH=$l"
)

SURROUNDINGS: Mapping[str, Surroundings] = {
    "saturday": _at("2026-11-28 11:00:00"),
    "sunday": _at("2027-05-30 23:59:00"),
    "spring-forward": _at("2027-03-14 01:59:30", "America/New_York"),
    "fall-back": _at("2027-11-07 01:59:30", "America/New_York"),
    "leap-day": _at("2028-02-29 23:59:30"),
    "year-end": _at("2026-12-31 23:59:30"),
    "tokyo": _in_zone("Asia/Tokyo"),
    "kathmandu": _in_zone("Asia/Kathmandu"),
    "new-york": _in_zone("America/New_York"),
    "apia": _in_zone("Pacific/Apia"),
    "language-c": Surroundings("with LANG=C", env={"LANG": "C", "LC_ALL": "C"}),
    "language-de": Surroundings(
        "with LANG=de_DE.UTF-8",
        ("sh", "-c", f'{GERMAN} && "$@"', "sh"),
        {"LANG": "de_DE.UTF-8", "LC_ALL": None, "LANGUAGE": "de"},
    ),
    "umask": Surroundings("with umask 077", ("sh", "-c", 'umask 077 && exec "$@"', "sh")),
    "plain-user": Surroundings("without root", PLAIN_USER),
    "home-read-only": Surroundings(
        "with a HOME that cannot be written",
        (*PLAIN_USER, "sh", "-c", f'{READ_ONLY_HOME} && "$@"', "sh"),
    ),
    "home-absent": Surroundings("without HOME", env={"HOME": None}),
    "two-cores": _with_cores(2),
    "sixteen-cores": _with_cores(16),
    "no-ipv6": Surroundings("without IPv6", _as_root_of_namespaces("--net", NO_IPV6)),
    "space": Surroundings("in a folder whose name has a space", place="a folder with spaces"),
    "shallow-clone": Surroundings("in a clone of depth 1", place="clone", cloned=True),
}


def picked(commit: str) -> list[str]:
    """Three surroundings by the hash of a commit."""
    return random.Random(commit).sample(list(SURROUNDINGS), PICKED)


def run_in(name: str, pytest_words: Sequence[str]) -> bool:
    """Run the tests there, and print what came of it; whether all passed."""
    there = SURROUNDINGS[name]
    if lacking := there.lacks():
        print(f"{name:15} not run: {lacking}", flush=True)
        return True
    env = {**os.environ, **there.env}
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="anywhere-") as folder:
        checkout = _checkout(there, Path(folder))
        done = subprocess.run(
            [*there.command, sys.executable, "-m", "pytest", *pytest_words],
            cwd=checkout,
            env={key: value for key, value in env.items() if value is not None},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
    lines = done.stdout.strip().splitlines()
    end = re.sub(r" in [\d.]+s.*|^=+ | =+$", "", lines[-1]) if lines else "no word of pytest"
    print(f"{name:15} {end}, {there.says} ({time.monotonic() - began:.0f} s)", flush=True)
    if done.returncode:
        print("\n".join(lines[-60:]), flush=True)
    return done.returncode == 0


def _checkout(there: Surroundings, folder: Path) -> Path:
    if not there.place:
        return ROOT
    place = folder / there.place
    if there.cloned:
        command = ["git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", str(place)]
        subprocess.run(command, check=True)
        return place
    return copy_checkout(place)


def main(words: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.anywhere", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SURROUNDINGS))
    parser.add_argument("--pick", metavar="COMMIT", help="three of them, by this hash")
    parser.add_argument(
        "--of", action="append", default=[], metavar="PATH", help="tests there alone"
    )
    given = parser.parse_args(words)
    if unknown := [name for name in given.names if name not in SURROUNDINGS]:
        parser.error(f"NAME: {', '.join(unknown)}: there is {', '.join(SURROUNDINGS)}")
    if given.pick and not re.fullmatch(r"[0-9a-f]{12,40}", given.pick):
        parser.error(f"COMMIT: {given.pick}: 12 to 40 hexadecimal digits of a commit's hash")
    names = picked(given.pick) if given.pick else given.names or list(SURROUNDINGS)
    quick = ["-n", "2", "--dist", "worksteal", "-q", "-p", "no:cacheprovider", "-m", MARKS]
    passed = [run_in(name, [*quick, "--hypothesis-profile=quick", *given.of]) for name in names]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
