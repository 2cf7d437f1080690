# SPDX-License-Identifier: Apache-2.0
"""Stands in for HAProxy: the part of its runtime API that steers servers, in its formats."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from edgetune.base import clock

BACKEND = "edges"
DRAIN_SECONDS = 0.5  # how long requests under way last
HEAVIEST = 256
ADMIN_STATES = {"ready": 0x00, "maint": 0x01, "drain": 0x08}

STATE_COLUMNS = (
    "be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight"
    " srv_time_since_last_change srv_check_status srv_check_result srv_check_health"
    " srv_check_state srv_agent_state bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord"
    " srv_use_ssl srv_check_port srv_check_addr srv_agent_addr srv_agent_port"
)
STATE_ROW = (
    "3 edges {id} {name} {ip} {op} {admin} {weight} 1 {age} {check} 6 0 0 0 - 80 - 0 0 - - 0"
)
STAT_COLUMNS = (
    "pxname,svname,qcur,qmax,scur,smax,slim,stot,bin,bout,dreq,dresp,ereq,econ,eresp,wretr,wredis,"
    "status,weight,act,bck,chkfail,chkdown,lastchg,downtime,qlimit,pid,iid,sid,throttle,lbtot,"
    "tracked,type,rate,rate_lim,rate_max,check_status,check_code,check_duration,"
)
STAT_ROW = (
    "{px},{name},0,0,{sessions},{sessions},,0,0,0,,0,,0,0,0,0,"
    "{status},{weight},1,0,0,0,{age},0,,1,3,{id},,0,,{type},0,,0,{check},,0,"
)


@dataclass
class Server:
    """A host as the load balancer sees it; `up` is what its health checks say."""

    name: str
    ip: str
    up: bool = False
    state: str = "ready"
    weight: int = 1
    changed: float = field(default_factory=clock.monotonic)

    @property
    def in_service(self) -> bool:
        """Whether requests go to it."""
        return self.up and self.state == "ready" and self.weight > 0

    @property
    def status(self) -> str:
        if self.state == "maint":
            return "MAINT"
        return ("DRAIN" if self.state == "drain" else "UP") if self.up else "DOWN"


class Balancer:
    """`load` is set from outside: the traffic of the PoP against its usual one."""

    def __init__(self, servers: list[Server]) -> None:
        self.servers = {server.name: server for server in servers}
        self.load = 0.0

    def share(self, name: str) -> float:
        """The traffic a server gets against what it gets usually."""
        serving = sum(own.weight for own in self.servers.values() if own.in_service)
        server = self.servers[name]
        if not server.in_service:
            return 0.0
        return self.load * len(self.servers) * server.weight / serving

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One line of commands per connection."""
        try:
            line = (await reader.readline()).decode("utf-8", "replace")
            for command in line.split(";"):
                writer.write(f"{self.answer(command)}\n".encode())
            await writer.drain()
        except (OSError, ValueError):
            pass
        finally:
            writer.close()

    def answer(self, command: str) -> str:
        """The answer to one command, without the empty line that ends it."""
        words = command.split()
        if words[:3] == ["show", "servers", "state"]:
            return self._states() if words[3:] in ([], [BACKEND]) else "Can't find backend.\n"
        if words in (["show", "stat"], ["show", "stat", "-1", "6", "-1"]):
            return self._statistics()
        if words[:2] == ["set", "server"] and words[3:4] == ["state"]:
            return self._set_state(words[2], " ".join(words[4:]))
        if words[:2] == ["set", "server"] and words[3:4] == ["weight"]:
            return self._set_weight(words[2], " ".join(words[4:]))
        return "Unknown command: the simulated load balancer knows few.\n"

    def _set_state(self, target: str, state: str) -> str:
        server = self._found(target)
        if isinstance(server, str):
            return server
        if state not in ADMIN_STATES:
            return "'set server <srv> state' expects 'ready', 'drain' and 'maint'.\n"
        if server.state != state:
            server.state, server.changed = state, clock.monotonic()
        return ""

    def _set_weight(self, target: str, weight: str) -> str:
        """Relative ones are of the weight that each server has in the configuration: 1."""
        server = self._found(target)
        if isinstance(server, str):
            return server
        if not weight.removesuffix("%").isdigit():
            return "Invalid weight.\n"
        number = int(weight.removesuffix("%"))
        if weight.endswith("%"):
            number = number // 100
        if number > HEAVIEST:
            return "Absolute weight must be between 0 and 256 inclusive.\n"
        server.weight = number
        return ""

    def _found(self, target: str) -> Server | str:
        """A server, or why there is none."""
        backend, _, name = target.partition("/")
        if backend != BACKEND:
            return "No such backend.\n"
        return self.servers.get(name, "No such server.\n")

    def _states(self) -> str:
        rows = [f"1\n# {STATE_COLUMNS}\n"]
        for number, server in enumerate(self.servers.values(), 1):
            row = STATE_ROW.format(
                id=number,
                name=server.name,
                ip=server.ip,
                op=2 if server.up and server.state != "maint" else 0,
                admin=ADMIN_STATES[server.state],
                weight=server.weight,
                age=int(clock.monotonic() - server.changed),
                check="15 3 4" if server.up else "8 2 0",
            )
            rows.append(row + "\n")
        return "".join(rows)

    def _statistics(self) -> str:
        rows = [f"# {STAT_COLUMNS}\n"]
        for number, server in enumerate(self.servers.values(), 1):
            rows.append(
                STAT_ROW.format(
                    px=BACKEND,
                    name=server.name,
                    sessions=self._sessions(server),
                    status=server.status,
                    weight=server.weight,
                    age=int(clock.monotonic() - server.changed),
                    id=number,
                    type=2,
                    check="L7OK" if server.up else "L4CON",
                )
                + "\n"
            )
        total = {
            "px": BACKEND,
            "name": "BACKEND",
            "sessions": 0,
            "status": "UP",
            "weight": len(self.servers),
        }
        rows.append(STAT_ROW.format(**total, age=0, id=0, type=1, check="") + "\n")
        return "".join(rows)

    def _sessions(self, server: Server) -> int:
        """Those under way when it was drained end; a host that went down has lost all."""
        if not server.up or not self.load:
            return 0
        ended = not server.in_service and clock.monotonic() - server.changed > DRAIN_SECONDS
        return 0 if ended else 1 + int(4 * self.load)
