# SPDX-License-Identifier: Apache-2.0
"""Routes of our own for prefixes of clients, each a copy of the route that it would have without.

They have a protocol of their own, so ``ip route flush proto 219`` removes them all, in each family.
Nothing is ever done to a route of another protocol.
"""

import ipaddress
import re
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from edgetune.agent.appliers import Applier, Configuration, Wanted
from edgetune.agent.host import Host
from edgetune.agent.kinds.route_metric import Route, route_lines
from edgetune.agent.protocol import Failed, Refused, Unsupported

OURS = "219"
"""Of rtnetlink's protocols: none that iproute2, FRR or BIRD knows."""

PROGRAMS = {
    "bird": "BIRD, by krt_congctl,",
    "boot": "a person or a script",
    "static": "systemd-networkd, by TCPCongestionControlAlgorithm=, or a person",
}
"""These set congctl on routes of a protocol. FRR and NetworkManager have no word for it."""

MOST_ROUTES = 20000
"""Of the main table: more are those of a whole BGP table, which we would read time and again."""

_EXPIRES = re.compile(r" expires \d+sec")
_USUAL_TABLES = frozenset(("local", "main", "default"))
_BITS = {4: 32, 6: 128}


class Table(NamedTuple):
    """The main table of one family: the lines of ``others``, and our routes by their prefix."""

    others: List[str]
    ours: Dict[str, List[Route]]


Plan = Tuple[Dict[str, Route], Dict[str, str]]
"""The routes that should be there by their prefix, and why others cannot be."""


class Routes(Applier):
    """Routes with ``congctl``, by which the kernel chooses for each new connection."""

    name = "routes"

    def probe(self, configuration: Configuration) -> None:
        """``set`` refuses what only the routing of the host can tell."""

    def refuse_strangers(self) -> None:
        if any(read_table(self.host, family).ours for family in families(self.host)):
            raise Refused("somebody else has routes of our protocol, and would lose them")

    def state(self) -> str:
        """The main table, in which next hops may have moved."""
        texts = (_shown(self.host, family) for family in families(self.host))
        return _EXPIRES.sub("", "\n".join(texts))

    def set(self, configuration: Configuration) -> Dict[str, str]:
        """Have a route for each prefix, as the main table leads there now, and no other of ours.

        It moves next hops where they moved. Failed when the routes that are there in the end are
        others.
        """
        host, skipped = self.host, {}  # type: Tuple[Host, Dict[str, str]]
        by_family: Dict[str, List[Wanted]] = {family: [] for family in families(host)}
        for wanted in configuration.prefixes:
            family = "-6" if ":" in wanted.prefix else "-4"
            if family in by_family:
                by_family[family].append(wanted)
            else:
                skipped[wanted.prefix] = "this host has no IPv6"
        for family, own_wanted in by_family.items():
            table = read_table(host, family)
            if own_wanted:
                _refuse_other_tables(host, family)
            routes, problems = plan_routes(table.others, own_wanted, configuration.algorithm)
            problems.update(_change(host, family, table.ours, routes))
            skipped.update(problems)
            _refuse_other_routes(host, family, routes, problems)
        return skipped

    def flush(self) -> None:
        for family in families(self.host):
            self.host.run("ip", family, "route", "flush", "table", "main", "proto", OURS)
            left = read_table(self.host, family).ours
            if left:
                raise Failed(f"{len(left)} routes of protocol {OURS} are still there")


def families(host: Host) -> Sequence[str]:
    """Those of IP that the kernel speaks, as ip(8) has them."""
    return ("-4", "-6") if host.exists("/proc/net/if_inet6") else ("-4",)


def _shown(host: Host, family: str) -> str:
    return host.run("ip", family, "-d", "-o", "route", "show", "table", "main")


def read_table(host: Host, family: str) -> Table:
    """Refused for a table that is too large to be read again and again."""
    lines = route_lines(_shown(host, family))
    if len(lines) > MOST_ROUTES:
        raise Refused(f"the main table has {len(lines)} routes, more than {MOST_ROUTES}")
    others, ours = [], {}  # type: Tuple[List[str], Dict[str, List[Route]]]
    for line in lines:
        words = line.split()
        if "proto" in words and words[words.index("proto") + 1] == OURS:
            ours.setdefault(words[1], []).append(Route(line))
        else:
            others.append(line)
    return Table(others, ours)


def plan_routes(others: List[str], wanted: Iterable[Wanted], algorithm: str) -> Plan:
    """A copy of the most exact route to each prefix, from lines of ``ip -d -o route show``."""
    index = _index(others)
    routes: Dict[str, Route] = {}
    problems: Dict[str, str] = {}
    for each in wanted:
        network = ipaddress.ip_network(each.prefix)
        try:
            routes[each.prefix] = _copy(_best(index, network), each, algorithm)
        except Unsupported as why:
            problems[each.prefix] = str(why)
    return routes, problems


Index = Dict[Tuple[int, int], List[Tuple[int, str]]]


def _index(lines: Iterable[str]) -> Index:
    """By length and number of its network, the metric and the line of each route."""
    found: Index = {}
    for line in lines:
        words = line.split()
        # The kernel passes over those whose interface is down.
        is_dead = "dead" in words and "nexthop" not in words
        if len(words) < 2 or "tos" in words or is_dead:
            continue
        network = ipaddress.ip_network("::/0" if words[1] == "default" else words[1])
        metric = int(words[words.index("metric") + 1]) if "metric" in words else 0
        place = network.prefixlen, int(network.network_address)
        found.setdefault(place, []).append((metric, line))
    return found


def _best(index: Index, network: "ipaddress.IPv4Network | ipaddress.IPv6Network") -> Route:
    """Unsupported where there is none, or somebody else has a route to this very network."""
    bits, number = _BITS[network.version], int(network.network_address)
    if (network.prefixlen, number) in index:
        raise Unsupported("somebody else has a route to it")
    for length in range(network.prefixlen - 1, -1, -1):
        there = index.get((length, number >> (bits - length) << (bits - length)))
        if there:
            return Route(min(there, key=lambda row: row[0])[1])
    raise Unsupported("no route leads to it")


def _copy(best: Route, wanted: Wanted, algorithm: str) -> Route:
    if best.type != "unicast":
        raise Unsupported(f"the route to it is of type {best.type}")
    if best.option("congctl"):
        # Somebody chooses here, for held-out prefixes, too.
        protocol = best.option("proto") or "boot"
        who = PROGRAMS.get(protocol, "somebody")
        raise Unsupported(
            f"{who} has congctl {best.option('congctl')} on the route to it "
            f"({best.destination} proto {protocol})"
        )
    if not (best.hops or best.option("via") or best.option("dev")):
        raise Unsupported(
            f"the route to it goes by the nexthop object {best.option('nhid')}, which does not "
            "show its next hops (net.ipv4.nexthop_compat_mode is 0)"
        )
    # Ours has the next hops themselves: with the object, ip(8) could not flush routes of IPv6.
    said = {"proto": OURS, "congctl": algorithm, "expires": "", "nhid": ""}
    if wanted.initcwnd:
        said["initcwnd"] = str(wanted.initcwnd)
    made = best.having(said)
    made.destination = wanted.prefix
    return made


def _change(
    host: Host, family: str, ours: Mapping[str, List[Route]], wanted: Mapping[str, Route]
) -> Dict[str, str]:
    """What could not be set, with the reason; of such a prefix nothing is left."""
    problems: Dict[str, str] = {}
    for prefix, route in wanted.items():
        there = ours.get(prefix, [])
        if there == [route]:
            continue
        # What is there under the same key is replaced at once, else the new one comes first.
        replaced = any(old.key == route.key for old in there)
        verb = "replace" if replaced else "add"
        status, _, complaint = host.attempt("ip", family, "route", verb, *route.words)
        if status != 0:
            problems[prefix] = (complaint.strip() or f"exit status {status}").splitlines()[0]
        for old in there:
            if status != 0 or old.key != route.key:
                _delete(host, family, old)
    for prefix in ours.keys() - wanted.keys():
        for old in ours[prefix]:
            _delete(host, family, old)
    return problems


def _delete(host: Host, family: str, route: Route) -> None:
    metric = route.option("metric")
    more = ["metric", metric] if metric else []
    host.attempt("ip", family, "route", "del", route.destination, "proto", OURS, *more)


def _refuse_other_routes(
    host: Host, family: str, wanted: Mapping[str, Route], problems: Mapping[str, str]
) -> None:
    there = read_table(host, family).ours
    for prefix, route in wanted.items():
        made: Optional[List[Route]] = there.pop(prefix, None)
        if made != (None if prefix in problems else [route]):
            raise Failed(f"{route.text} did not come to be")
    if there:
        raise Failed(f"{sorted(there)[0]} of protocol {OURS} is still there")


def _refuse_other_tables(host: Host, family: str) -> None:
    """With rules of policy routing, nobody knows which table leads to a client."""
    for line in host.run("ip", family, "rule", "show").splitlines():
        words = line.split()
        table = words[words.index("lookup") + 1] if "lookup" in words else ""
        if table not in _USUAL_TABLES:
            raise Refused(f"policy routing may lead past the main table: {' '.join(words)}")


APPLIER = Routes
