# SPDX-License-Identifier: Apache-2.0
"""Parameters of FreeBSD's kernel, by sysctl(8), and of its environment, by kenv(1)."""

from typing import Dict, Optional, Sequence

from edgetune.agent.host import Host
from edgetune.agent.protocol import Failed, Unsupported


def is_there(host: Host, name: str) -> bool:
    """Whether there is a parameter of that name; a node, which holds several, is none."""
    return _named(host, "-N", name)


def is_writable(host: Host, name: str) -> bool:
    """Whether it can be set while the kernel runs; counters that can be reset do not count."""
    return _named(host, "-NW", name)


def is_tunable(host: Host, name: str) -> bool:
    """Whether the kernel takes it from the boot loader."""
    return _named(host, "-NT", name)


def _named(host: Host, options: str, name: str) -> bool:
    status, output, _ = host.attempt("sysctl", options, name)
    return status == 0 and output.strip() == name


def value_of(host: Host, name: str) -> str:
    """The value of a parameter, white space normalised; Unsupported where there is none."""
    status, output, _ = host.attempt("sysctl", name)
    told, _, value = output.partition(": ")
    # Of a node it tells what is below; of one that has no format, nothing.
    if status != 0 or told != name:
        raise Unsupported(f"{name}: this kernel has no such parameter")
    return " ".join(value.split())


def told(host: Host, name: str) -> Optional[str]:
    """The same; None where there is none, or it cannot be asked for."""
    try:
        return value_of(host, name)
    except (Failed, Unsupported):
        return None


def all_told(host: Host, names: Sequence[str]) -> Dict[str, str]:
    """The values of those that are there, each of one line; one sysctl(8) is asked for all.

    A last line without its end may be a part of one, and counts for nothing.
    """
    try:
        status, output, _ = host.attempt("sysctl", "-i", *names)
    except Failed:
        return {}
    lines = output.rpartition("\n")[0].splitlines() if status == 0 else []
    rows = [line.partition(": ") for line in lines]
    return {name: " ".join(value.split()) for name, _, value in rows if name in names}


def whole(text: Optional[str]) -> Optional[int]:
    """A whole number; None for anything else."""
    return int(text) if text and text.isdigit() else None


def number(host: Host, name: str) -> Optional[int]:
    """The value of a parameter that is one."""
    return whole(told(host, name))


def environment(host: Host, name: str) -> str:
    """What the boot loader, or the firmware, gave the kernel by that name; "" for nothing."""
    try:
        status, output, _ = host.attempt("kenv", "-q", name)
    except Failed:
        return ""
    return output.strip() if status == 0 else ""
