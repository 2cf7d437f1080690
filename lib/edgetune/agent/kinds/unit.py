# SPDX-License-Identifier: Apache-2.0
"""Units of systemd: whether they run, and whether they are started at a boot."""

from edgetune.agent.host import Host
from edgetune.agent.kinds import Handler, texts
from edgetune.agent.protocol import Unsupported, or_none
from edgetune.agent.vocabulary.kind import is_protected
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.unit import KIND
from edgetune.agent.vocabulary.values import Parts, Target, Value, holds, parts

VERBS = {
    "enabled": {"on": "enable", "off": "disable"},
    "active": {"on": "start", "off": "stop"},
}
"""What brings a part into a state, in the order in which it is done."""

ENABLED = {"enabled": "on", "disabled": "off", "masked": "masked"}
"""What systemctl says of units that can be enabled and disabled."""


class Unit(Handler):
    """Whether a unit of systemd is ``active`` (on or off), and ``enabled`` (the same).

    A unit that is masked is not enabled, and reads ``masked``.
    """

    kind = KIND
    partly = True

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        # While a host boots, systemd starts and stops units in another order.
        self.live = not host.booting

    def probe(self, setting: Setting) -> None:
        """Unsupported for a masked unit that is to run, and for another name of a protected one."""
        masked = self._enabled(setting.target["unit"]) == "masked"
        if masked and "on" in parts(setting.value).values():
            raise Unsupported(f"{setting.target['unit']} is masked")
        # Also the names by which other units know it.
        text = self.host.run("systemctl", "show", "-p", "Names", setting.target["unit"])
        names = text.strip().partition("=")[2].split()
        protected = next(filter(is_protected, names), None)
        if protected:
            reason = f"{setting.target['unit']} is {protected}, which is needed to reach the host"
            raise Unsupported(reason)

    def probe_stored(self, setting: Setting, tuning: str) -> None:
        """Unsupported where the next boot would make it active, or not, against the setting."""
        wanted = parts(setting.value)
        enabled = wanted.get("enabled") or self._enabled(setting.target["unit"])
        after = "on" if enabled == "on" else "off"
        if wanted.get("active", after) != after:
            what = "enabled" if after == "on" else "not enabled"
            raise Unsupported(f"{setting.target['unit']} is {what}: a boot makes it {after} again")

    def runtime(self, target: Target) -> Parts:
        """Both facts."""
        enabled = self._enabled(target["unit"])
        state = self.host.attempt("systemctl", "is-active", target["unit"])[1].strip()
        active = state in ("active", "activating", "reloading")
        return {"active": "on" if active else "off", "enabled": enabled}

    def persistent(self, target: Target) -> Parts:
        """The same after a boot, which starts what is enabled."""
        enabled = self._enabled(target["unit"])
        return {"active": "on" if enabled == "on" else "off", "enabled": enabled}

    def same(self, now: Value, wanted: Value) -> bool:
        """Whether each part is as wanted; what is masked is off."""
        states = {name: "off" if part == "masked" else part for name, part in parts(now).items()}
        return holds(states, wanted)

    def snapshot(self, target: Target) -> Parts:
        return self.runtime(target)

    def apply(self, target: Target, value: Value) -> None:
        """Change the parts that differ."""
        now = self.runtime(target)
        for name, verbs in VERBS.items():
            wanted = str(parts(value).get(name, now[name]))
            if wanted in verbs and not self.same(now, {name: wanted}):
                # Waiting for a unit that is ordered after us would never end.
                wait = ["--no-block"] if self.host.booting and name == "active" else []
                self.host.run("systemctl", *wait, verbs[wanted], target["unit"])

    def present(self, target: Target) -> bool:
        return bool(or_none(self._enabled, target["unit"]))

    def restore(self, target: Target, snapshot: object) -> None:
        self.apply(target, {**texts(snapshot)})

    def _enabled(self, unit: str) -> str:
        if self.host.init != "systemd" or not self.host.program("systemctl"):
            raise Unsupported("there is no systemd here")
        state = self.host.attempt("systemctl", "is-enabled", unit)[1].strip()
        if state in ("", "not-found"):
            raise Unsupported(f"there is no unit {unit}")
        if state not in ENABLED:
            raise Unsupported(f"{unit} is {state}: it cannot be enabled or disabled")
        return ENABLED[state]
