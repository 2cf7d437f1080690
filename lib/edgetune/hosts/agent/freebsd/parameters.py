# SPDX-License-Identifier: Apache-2.0
"""Parameters of FreeBSD's kernel, by sysctl(8), and of its environment, by kenv(1)."""

from typing import Optional

from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.protocol import Failed, Unsupported


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
    if not is_there(host, name):
        raise Unsupported(f"{name}: this kernel has no such parameter")
    return " ".join(host.run("sysctl", "-n", name).split())


def told(host: Host, name: str) -> Optional[str]:
    """The same; None where there is none, or it cannot be asked for."""
    try:
        return value_of(host, name)
    except (Failed, Unsupported):
        return None


def number(host: Host, name: str) -> Optional[int]:
    """The same of a whole number."""
    text = told(host, name)
    return int(text) if text and text.isdigit() else None


def environment(host: Host, name: str) -> str:
    """What the boot loader, or the firmware, gave the kernel by that name; "" for nothing."""
    try:
        status, output, _ = host.attempt("kenv", "-q", name)
    except Failed:
        return ""
    return output.strip() if status == 0 else ""
