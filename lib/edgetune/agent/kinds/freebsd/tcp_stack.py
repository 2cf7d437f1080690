# SPDX-License-Identifier: Apache-2.0
"""The TCP stack that new connections get."""

from edgetune.agent.kinds.freebsd.sysctl import Sysctl
from edgetune.agent.protocol import Unsupported
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.tcp_stack import KIND, PARAMETER
from edgetune.agent.vocabulary.values import Target


class TcpStack(Sysctl):
    """The parameter net.inet.tcp.functions_default."""

    kind = KIND

    @classmethod
    def key(cls, target: Target) -> str:
        return PARAMETER

    def probe(self, setting: Setting) -> None:
        """Unsupported for a stack that the kernel does not have, and that comes with no module."""
        super().probe(setting)
        wanted = {"kind": "module", "target": {"module": f"tcp_{setting.value}"}}
        comes = any({"kind": s.kind, "target": s.target} == wanted for s in setting.siblings)
        # The first column of a table that begins with an empty line, and the names of columns.
        text = self.host.run("sysctl", "-n", "net.inet.tcp.functions_available").strip()
        head, *rows = text.splitlines() or [""]
        if not head.startswith("Stack"):
            raise Unsupported("net.inet.tcp.functions_available is no table of stacks")
        known = [row.split()[0] for row in rows if row.strip()]
        if setting.value not in known and not comes:
            raise Unsupported(
                f"the kernel has the TCP stacks {', '.join(known)}: load the module "
                f"tcp_{setting.value}, which a kernel with TCPHPTS has"
            )
