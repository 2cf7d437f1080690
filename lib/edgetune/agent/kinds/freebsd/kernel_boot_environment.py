# SPDX-License-Identifier: Apache-2.0
"""The boot environment of ZFS that runs, and the one that the next boot is of."""

import os

from edgetune.agent.freebsd.readings import dataset_of, environments, is_part, mounted
from edgetune.agent.kinds import PYTHON, Handler, texts
from edgetune.agent.protocol import Unsupported
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.kernel_boot_environment import KIND
from edgetune.agent.vocabulary.places import RC_SCRIPT, STATE
from edgetune.agent.vocabulary.values import Target, Value


class KernelBootEnvironment(Handler):
    """A boot environment that one boot tries, and that its confirmation makes the default."""

    kind = KIND
    live = False
    tried_by_boot = True

    def probe(self, setting: Setting) -> None:
        """Unsupported where a host could not fall back, or would forget what is done to it."""
        known = environments(self.host)
        if setting.value not in known.names:
            raise Unsupported(f"there is no boot environment {setting.value}: create it first")
        if known.once not in ("", setting.value):
            raise Unsupported(f"somebody else asked for {known.once} at the next boot")
        if known.default != known.running != setting.value:
            what = f"{known.default} is the default, and {known.running} runs"
            raise Unsupported(
                f"{what}: reboot, so that it is what runs that the host falls back to"
            )
        # Journal and marker have to be the same in both: else nobody takes the new one back.
        place = os.path.dirname(STATE)
        if is_part(self.host, place):
            root = dataset_of(self.host, "/")
            raise Unsupported(
                f"{place} is part of the boot environment {root}: give it a dataset of its own, "
                "so that the new one knows that the host is not ready"
            )

    def probe_stored(self, setting: Setting, tuning: str) -> None:
        self.probe(setting)

    def runtime(self, target: Target) -> Value:
        return environments(self.host).running

    def persistent(self, target: Target) -> Value:
        return environments(self.host).next

    def snapshot(self, target: Target) -> object:
        return {"default": environments(self.host).default}

    def apply(self, target: Target, value: Value) -> None:
        """Give it our boot hook, and have the next boot try it."""
        self._give_hook(str(value))
        self.host.run("bectl", "activate", "-t", str(value))

    def _give_hook(self, name: str) -> None:
        script = self.host.read(RC_SCRIPT)
        with mounted(self.host, name) as place:
            self._refuse_without_python(name, place)
            directory = place + os.path.dirname(RC_SCRIPT)
            self.host.make_directory(directory)
            self.host.replace(place + RC_SCRIPT, script, 0o755)

    def _refuse_without_python(self, name: str, place: str) -> None:
        """A boot that cannot run the hook would never fall back, nor answer anybody over SSH."""
        if not is_part(self.host, PYTHON):
            return
        top = os.path.realpath(self.host.path(place))
        # Followed by its links, it has to stay in there: what runs now will not be what runs then.
        python = os.path.realpath(top + PYTHON)
        if not python.startswith(top + "/") or not os.path.isfile(python):
            raise Unsupported(
                f"the boot environment {name} has no {PYTHON}, which runs the agent: install it "
                "there, so that the host can fall back"
            )

    def commit(self, setting: Setting) -> None:
        self.host.run("bectl", "activate", str(setting.value))

    def restore(self, target: Target, snapshot: object) -> None:
        known, default = environments(self.host), texts(snapshot)["default"]
        if known.once:
            self.host.run("bectl", "activate", "-T")
        if known.default != default:
            self.host.run("bectl", "activate", default)
