# SPDX-License-Identifier: Apache-2.0
"""What an interface does by itself."""

from typing import Dict, Union

from edgetune.agent.vocabulary.grammar import SWITCH, Parts, Wrong
from edgetune.agent.vocabulary.kind import INTERFACE, Kind
from edgetune.agent.vocabulary.values import Target, Value, parts

SHORT = {
    "rx": "rx-checksumming",
    "tx": "tx-checksumming",
    "sg": "scatter-gather",
    "tso": "tcp-segmentation-offload",
    "ufo": "udp-fragmentation-offload",
    "gso": "generic-segmentation-offload",
    "gro": "generic-receive-offload",
    "lro": "large-receive-offload",
    "rxvlan": "rx-vlan-offload",
    "txvlan": "tx-vlan-offload",
    "ntuple": "ntuple-filters",
    "rxhash": "receive-hashing",
}
"""What ``ethtool -K`` takes besides the names that ``ethtool -k`` shows."""


def tidy(target: Target, value: Value) -> Value:
    """The names that ``ethtool -k`` shows."""
    features: Dict[str, Union[int, str]] = {}
    for name, part in parts(value).items():
        full = SHORT.get(name, name)
        if full in features:
            raise Wrong(f"is {full}, which is set twice", name)
        features[full] = part
    return features


KIND = Kind(
    name="nic.features",
    target={"interface": INTERFACE},
    value=Parts({r"[a-z0-9][a-z0-9_-]{0,99}": SWITCH}),
    tidy=tidy,
    # Drivers reset the link for some of them (ntuple above all).
    disruption="drain",
    order=60,
    summary='What an interface does by itself, such as {"ntuple-filters": "off"}.',
    takes="Names that `ethtool -k` shows or `ethtool -K` takes, each `on` or `off`.",
    example={"interface": "*", "value": {"ntuple-filters": "on"}},
)
