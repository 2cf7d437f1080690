# SPDX-License-Identifier: Apache-2.0
"""What TCP connections learn from the route that they take."""

import contextlib
from typing import List

from edgetune.agent.vocabulary.grammar import Parts, Text, Whole
from edgetune.agent.vocabulary.kind import Field, Kind
from edgetune.agent.vocabulary.values import Target

EVERYWHERE = {"inet": "0.0.0.0/0", "inet6": "::/0"}


def destination(target: Target) -> str:
    """The network that the route leads to, in whatever words."""
    route = target["route"]
    return EVERYWHERE[target["family"]] if route == "default" else route


def route_of(target: Target) -> List[str]:
    """The route, however its network is spelt."""
    # A boot needs none of it.
    import ipaddress

    place = destination(target)
    # No host has a route that is none.
    with contextlib.suppress(ValueError):
        place = str(ipaddress.ip_network(place, strict=False))
    return [f"route {target['family']} {place}"]


KIND = Kind(
    name="route.metric",
    target={
        "family": Field("inet6?", "`inet` or `inet6`."),
        "route": Field(
            r"default|[0-9A-Fa-f.:]{2,39}/[0-9]{1,3}",
            "`default`, or a network such as `192.0.2.0/24`, of the main table.",
        ),
    },
    value=Parts(
        {
            "initcwnd": Whole(1, 65535),
            "initrwnd": Whole(1, 65535),
            "quickack": Whole(0, 1),
            "congctl": Text("[a-z][a-z0-9_-]{0,14}"),
        }
    ),
    touches=route_of,
    disruption="live",
    order=120,
    ordered=True,
    summary="What a route of the main table says of new TCP connections.",
    takes="`initcwnd` and `initrwnd`: segments. `quickack`: `0` or `1`. `congctl`: a congestion "
    "control that the kernel offers. Routes by a nexthop object (`nhid`) are refused.",
    example={"family": "inet", "route": "default", "value": {"initcwnd": 20, "congctl": "bbr"}},
)
