# SPDX-License-Identifier: Apache-2.0
"""Routes as iproute2 writes them with details, which is what it takes back.

Its JSON does not tell what is locked.
"""

from typing import Dict, List, Sequence, Tuple

from edgetune.agent.protocol import Unsupported

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
TOLD = ("dead", "linkdown", "pervasive", "offload", "trap", "offload_failed")
"""What the kernel says of a route and nobody sets."""
ALONE = ("onlink", "nexthop", *TOLD)
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
        told = [*line.replace("\\", " ").split(), "nh_info"]
        words, shown = told[: told.index("nh_info")], told[told.index("nh_info") + 1 :]
        self.type, self.destination = words[:2]
        found = [group for group in _groups(words[2:]) if group[0] not in TOLD]
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
    return [group for group in _groups(shown[: shown.index("scope")]) if group[0] not in TOLD]


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
