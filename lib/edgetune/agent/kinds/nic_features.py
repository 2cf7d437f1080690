# SPDX-License-Identifier: Apache-2.0
"""What an interface does by itself."""

import re
from typing import Dict, Optional

from edgetune.agent.kinds.ethtool import show
from edgetune.agent.kinds.nic import NicParts
from edgetune.agent.kinds.nic_coalesce import NicCoalesce
from edgetune.agent.kinds.nic_irq_affinity import NicIrqAffinity
from edgetune.agent.kinds.nic_rss import NicRss
from edgetune.agent.protocol import Unsupported, or_none
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.nic_features import KIND
from edgetune.agent.vocabulary.values import Parts, Target, Value, merged, parts


class Feature:
    """One line of ``ethtool -k``; ``members`` are the features that a group stands for.

    What is ``requested`` is not in force while something that it needs is off.
    """

    def __init__(self, value: str, requested: str, fixed: bool) -> None:
        self.value = value
        self.requested = requested or value
        self.members: Dict[str, Feature] = {}
        self._fixed = fixed

    @property
    def fixed(self) -> bool:
        """Whether it cannot be changed; ethtool does not say so of groups."""
        inside = list(self.members.values())
        return all(member.fixed for member in inside) if inside else self._fixed


class NicFeatures(NicParts):
    """What an interface does by itself, such as {"ntuple-filters": "off"}.

    A change of ntuple-filters or LRO starts the interface anew with ixgbe, bnxt and others, and
    ntuple-filters mean two things: with ixgbe "on" puts an end to Flow Director's own sampling,
    with i40e, ice and mlx5 it is what accelerated RFS needs.
    """

    kind = KIND
    # An interface has some sixty of them.
    partly = True
    change = "-K"
    below = (NicCoalesce, NicRss, NicIrqAffinity)

    def probe(self, setting: Setting) -> None:
        """Unsupported when there is none of that name, or it is fixed."""
        interface = setting.target["interface"]
        known = self._features(setting.target)
        for name, value in parts(setting.value).items():
            if name not in known:
                raise Unsupported(f"{interface} has no feature {name}")
            if known[name].fixed and known[name].value != value:
                raise Unsupported(f"{interface} has {name} {known[name].value}, which is fixed")
            # virtio_net tells the device its table with it.
            if name == "receive-hashing" and known[name].value != value:
                NicRss(self.host).refuse_few_queues(setting.target)

    def runtime(self, target: Target) -> Value:
        """All of them."""
        return {name: feature.value for name, feature in self._features(target).items()}

    def state(self, target: Target) -> Parts:
        """The same, also what does not work for now."""
        return {name: feature.requested for name, feature in self._features(target).items()}

    def persistent(self, target: Target) -> Optional[Value]:
        """What is fixed stays so, whatever anybody said."""
        kept, known = super().persistent(target), or_none(self._features, target)
        if known is None:
            return kept
        return merged(kept, {name: f.value for name, f in known.items() if f.fixed})

    def put(self, target: Target, wanted: Parts) -> None:
        """The same; members rather than their group, which would change all of them alike."""
        known = self._features(target)
        for name, feature in known.items():
            if feature.members and set(feature.members) <= set(wanted):
                wanted = {other: part for other, part in wanted.items() if other != name}
        super().put(target, wanted)

    def _features(self, target: Target) -> Dict[str, Feature]:
        self.queues(target)
        return shown(show(self.host, "-k", target["interface"]))


def shown(text: str) -> Dict[str, Feature]:
    """The features that ``ethtool -k`` shows, by name."""
    features: Dict[str, Feature] = {}
    group = Feature("", "", False)
    line = r"^([ \t]*)([^\s:]+): (on|off)( \[fixed\])?(?: \[requested (on|off)\])?"
    for indent, name, value, fixed, requested in re.findall(line, text, re.MULTILINE):
        feature = features[name] = Feature(value, requested, bool(fixed))
        if indent:
            group.members[name] = feature
        else:
            group = feature
    return features
