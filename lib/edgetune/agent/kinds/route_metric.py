# SPDX-License-Identifier: Apache-2.0
"""What TCP connections learn from the route that they take."""

from typing import Dict, List, Sequence, Tuple

from edgetune.agent.kinds import HookKept
from edgetune.agent.protocol import Failed, Unsupported, or_none
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.route_metric import KIND, destination
from edgetune.agent.vocabulary.values import Parts, Target, Value, parts

METRICS = (
    "advmss",
    "congctl",
    "cwnd",
    "fastopen_no_cookie",
    "features",
    "hoplimit",
    "initcwnd",
    "initrwnd",
    "mtu",
    "quickack",
    "reordering",
    "rto_min",
    "rtt",
    "rttvar",
    "ssthresh",
    "window",
)
SHOWN = ("dead", "linkdown", "pervasive", "offload", "trap", "offload_failed")
"""What the kernel says of a route and nobody sets."""
ALONE = ("onlink", "nexthop", *SHOWN)
OTHERS = (
    "nhid",
    "via",
    "dev",
    "weight",
    "tos",
    "proto",
    "scope",
    "src",
    "metric",
    "realm",
    "realms",
)
PAIRS = (*METRICS, *OTHERS, "pref", "expires")

Group = Tuple[str, ...]


class Route:
    """One route; ``options`` are the words after each name, without those of its next hops."""

    def __init__(self, line: str) -> None:
        """Of one line of ``ip -d -o route show``; Unsupported when we could not give it back."""
        tokens = [*line.replace("\\", " ").split(), "nh_info"]
        words, shown = tokens[: tokens.index("nh_info")], tokens[tokens.index("nh_info") + 1 :]
        self.type, self.destination = words[:2]
        found = [group for group in _groups(words[2:]) if group[0] not in SHOWN]
        if "nhid" in words and not {"via", "dev", "nexthop"}.intersection(words):
            found += _hops_of_object(shown)
        first = found.index(("nexthop",)) if ("nexthop",) in found else len(found)
        self.options: Dict[str, Group] = {group[0]: group[1:] for group in found[:first]}
        self.hops = found[first:]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Route) and vars(self) == vars(other)

    @property
    def key(self) -> Sequence[Group]:
        """What tells it from other routes to the same destination."""
        return [self.options.get(name, ()) for name in ("tos", "metric")]

    def option(self, name: str) -> str:
        """What it says of something; empty when that is nothing."""
        return "".join(self.options.get(name, ())[-1:])

    def having(self, wanted: Dict[str, str]) -> "Route":
        """The same with other options, locked where they were; an empty one is left out."""
        other = Route(self.text)
        for name, word in wanted.items():
            locked = self.options.get(name, ())[:-1]
            other.options.pop(name, None)
            if word:
                other.options[name] = (*locked, word)
        return other

    @property
    def text(self) -> str:
        """Such as ``unicast default via 192.0.2.1 dev eth0 proto static initcwnd 20``."""
        groups = [(name, *rest) for name, rest in self.options.items()] + self.hops
        return " ".join([self.type, self.destination, *(word for one in groups for word in one)])

    @property
    def words(self) -> List[str]:
        """The same as ``ip route change`` takes it: rto_min is always locked."""
        return self.text.replace("rto_min lock", "rto_min").split()


def route_lines(shown: str) -> List[str]:
    """The lines of ``ip -d -o route show``, each with what it tells below of a nexthop object."""
    found: List[str] = []
    for line in shown.splitlines():
        if line[:1].isspace() and found:
            found[-1] += line
        elif line.strip():
            found.append(line)
    return found


def _hops_of_object(words: List[str]) -> List[Group]:
    """Those of a nexthop object: none where net.ipv4.nexthop_compat_mode is 0 and it is a group."""
    starts = [words.index(name) for name in ("nexthop", "via", "dev") if name in words]
    if not starts or "encap" in words:
        return []
    shown = [*words[min(starts) : -1], "scope"]
    return [group for group in _groups(shown[: shown.index("scope")]) if group[0] not in SHOWN]


def _groups(words: Sequence[str]) -> List[Group]:
    """Each name with the words that belong to it."""
    found: List[Group] = []
    rest = tuple(words)
    while rest:
        size = _size(rest)
        found.append(rest[:size])
        rest = rest[size:]
    return found


def _size(words: Sequence[str]) -> int:
    name, following = words[0], "".join(words[1:2])
    if name in ALONE:
        return 1
    if name not in PAIRS:
        raise Unsupported(f"a route has {name}, which a change of it would lose")
    return 3 if following == "lock" or (name == "via" and following in ("inet", "inet6")) else 2


LIMITS = ("initcwnd", "initrwnd", "quickack")
OPTIONS = (*LIMITS, "congctl")
DEFAULTS = {"initcwnd": 10, "quickack": 0}
"""What the kernel takes where the route says nothing; of the others it depends."""
# Others install their routes again, without what we add: at each advertisement, lease or update.
KEPT = ("", "boot", "static", "kernel")
TABLES = {"inet": "/proc/net/route", "inet6": "/proc/net/ipv6_route"}
"""The kernel's own lists of routes."""
AVAILABLE = "/proc/sys/net/ipv4/tcp_available_congestion_control"


class RouteMetric(HookKept):
    """What a route of the main table says of new TCP connections.

    ``initcwnd`` and ``initrwnd`` in segments, ``congctl``, ``quickack``. Of several routes to one
    destination (by metric) each is changed; all else of them stays as it is.
    """

    kind = KIND
    partly = True

    def probe(self, setting: Setting) -> None:
        """Unsupported for other than plain routes, and for what the kernel does not offer."""
        routes = self._routes(setting.target)
        for route in routes:
            if route.type != "unicast":
                raise Unsupported(f"the route is of type {route.type}")
            if [other.key for other in routes].count(route.key) > 1:
                raise Unsupported("several of the routes have the same metric")
        word = parts(setting.value).get("congctl")
        if word and word not in self.host.text(AVAILABLE).split():
            raise Unsupported(f"{AVAILABLE} has no {word}")
        found = parts(self.runtime(setting.target))
        if setting.only and any(isinstance(found.get(name), str) for name in LIMITS):
            raise Unsupported("the routes to it differ, so there is no one value to be compared")

    def probe_stored(self, setting: Setting, tuning: str) -> None:
        """Unsupported for routes that somebody else installs again without our doing."""
        super().probe_stored(setting, tuning)
        for route in self._routes(setting.target):
            if route.option("proto") not in KEPT:
                owner = route.option("proto")
                raise Unsupported(f"the route is of {owner}, which installs it anew without this")
            if route.option("expires"):
                raise Unsupported("the route expires, and a change of it would end that")

    def runtime(self, target: Target) -> Value:
        """What the route says, or the kernel takes; several where several routes differ."""
        found: Parts = {}
        routes = self._routes(target)
        for name in OPTIONS:
            default = str(DEFAULTS.get(name, ""))
            said = list(dict.fromkeys(route.option(name) or default for route in routes))
            if said != [""]:
                found[name] = int(said[0]) if said[0].isdigit() and not said[1:] else ",".join(said)
        return found

    def present(self, target: Target) -> bool:
        """Whether there is a route: some time after the boot, or when its interface is up."""
        return bool(or_none(self._routes, target))

    def ready(self, target: Target) -> bool:
        """Not before the network is; a look is a process only where the kernel's list changed."""
        table = self.host.text(TABLES[target["family"]])
        known = self.host.answers.setdefault(f"{KIND.id_of(target)} is there", {})
        if not table or known.get("table") != table:
            self._doubt(target)
            known.update(table=table, there=self.present(target))
        return bool(known["there"])

    def snapshot(self, target: Target) -> List[str]:
        """The text of each route."""
        self._doubt(target)
        return [route.text for route in self._routes(target)]

    def apply(self, target: Target, value: Value) -> None:
        said = {name: str(part or "") for name, part in parts(value).items()}
        # All of a route is written again: nobody may have changed it since it was read.
        self._doubt(target)
        for route in self._routes(target):
            self._change(target, route, route.having(said))

    def restore(self, target: Target, snapshot: object) -> None:
        """What routes had of it then, on those that are there now: a gateway may have moved."""
        if not isinstance(snapshot, list):
            raise TypeError(f"the journal holds no list but {snapshot!r}")
        self._doubt(target)
        for was in map(Route, snapshot):
            for now in self._routes(target):
                if now.key == was.key:
                    said = {name: was.option(name) for name in OPTIONS}
                    self._change(target, now, now.having(said))

    def _change(self, target: Target, now: Route, wanted: Route) -> None:
        """Change a route and read all of it back; Failed when it came out otherwise."""
        if now == wanted:
            return
        self._ip(target, "change", wanted.words)
        self._doubt(target)
        if wanted not in self._routes(target):
            self._ip(target, "change", now.words)
            self._doubt(target)
            raise Failed(f"{now.text} did not become {wanted.text}")

    def _routes(self, target: Target) -> List[Route]:
        """The routes to it in the main table, the one in use first; Unsupported without any.

        They are remembered until one is changed here: each look is a process.
        """
        known = self.host.answers.setdefault(KIND.id_of(target), {})
        if not known.get("routes"):
            try:
                words = ["table", "main", "exact", destination(target)]
                known["routes"] = route_lines(self._ip(target, "show", words))
            except Failed as error:
                raise Unsupported(str(error)) from None
        if not known["routes"]:
            raise Unsupported(f"the main table has no {target['family']} route {target['route']}")
        routes = [Route(line) for line in known["routes"]]
        for route in routes:
            if route.option("nhid"):
                # fib_find_info_nh: without metrics a route takes those of another one by it.
                raise Unsupported(
                    f"a route has nhid {route.option('nhid')}: Linux gives the metrics of one "
                    "route by a nexthop object to others by it, and never takes them back"
                )
        return routes

    def _doubt(self, target: Target) -> None:
        """Ask anew from now on."""
        self.host.answers.pop(KIND.id_of(target), None)

    def _ip(self, target: Target, verb: str, words: List[str]) -> str:
        family = {"inet": "-4", "inet6": "-6"}[target["family"]]
        return self.host.run("ip", family, "-d", "-o", "route", verb, *words)
