# SPDX-License-Identifier: Apache-2.0
"""Services: their state, and their restart; and which programs run."""

import time
from typing import Dict, List, Sequence

from edgetune.agent.host import Host
from edgetune.agent.protocol import Failed, Unsupported

RESTART_WAIT = 30.0
START_WAIT = 10.0


def running_programs(host: Host) -> Dict[str, str]:
    """A process of each program that runs, by its comm."""
    processes = [name for name in host.names("/proc") if name.isdigit()]
    return {host.text(f"/proc/{process}/comm"): process for process in processes}


def probe_restart(host: Host, service: str) -> None:
    manager = "service" if host.system == "freebsd" else "systemctl"
    if not host.program(manager):
        raise Unsupported(f"without {manager} {service} cannot be restarted")
    if not is_active(host, service):
        raise Unsupported(f"the service {service} is {service_state(host, service)}")


def service_state(host: Host, service: str) -> str:
    """``active``, ``inactive``, ``failed``, ...; ``unknown`` without an answer."""
    try:
        if host.system == "freebsd":
            # It tells of one that is not enabled, too.
            runs = host.attempt("service", service, "onestatus")[0] == 0
            return "active" if runs else "inactive"
        return host.attempt("systemctl", "is-active", service)[1].strip() or "unknown"
    except Failed:
        return "unknown"


def is_active(host: Host, service: str) -> bool:
    """Whether a service runs."""
    return service_state(host, service) == "active"


def started(host: Host, services: Sequence[str]) -> List[str]:
    """Those that have been started, and so keep what they began with; at a boot none is yet."""
    if not host.booting:
        return list(services)
    up = ("active", "activating", "reloading")
    return [name for name in services if host.late and service_state(host, name) in up]


def awaited_state(host: Host, service: str, seconds: float) -> str:
    """The state of a service, which is given some time to start unless it failed."""
    deadline = time.monotonic() + seconds
    state = service_state(host, service)
    while state not in ("active", "failed") and time.monotonic() < deadline:
        time.sleep(0.1)
        state = service_state(host, service)
    return state


def restart(host: Host, services: Sequence[str]) -> None:
    """Restart services one by one; Failed when one does not come up again in time."""
    for service in services:
        if host.system == "freebsd":
            host.run("service", service, "restart")
        else:
            host.run("systemctl", "restart", service)
        state = awaited_state(host, service, RESTART_WAIT)
        if state != "active":
            raise Failed(f"{service} is {state} after its restart")
