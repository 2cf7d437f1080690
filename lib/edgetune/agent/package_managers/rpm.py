# SPDX-License-Identifier: Apache-2.0
"""rpm and dnf."""

import re
from typing import Optional

from edgetune.agent.package_managers.base import Package, PackageManager
from edgetune.agent.protocol import Failed, Unsupported

_FORM = "%{NAME} %{VERSION}-%{RELEASE}\\n"


class Rpm(PackageManager):
    """Kernels of several versions are installed side by side."""

    program = "rpm"

    def of_release(self, release: str) -> Optional[Package]:
        # That of /boot is a copy which no package has as its own.
        file = f"/lib/modules/{release}/vmlinuz"
        status, output, _ = self.host.attempt("rpm", "-q", "--qf", _FORM, "-f", file)
        words = output.split()
        return Package(*words) if status == 0 and len(words) == 2 else None

    def has(self, package: Package) -> bool:
        return self.host.attempt("rpm", "-q", f"{package.package}-{package.version}")[0] == 0

    def release_of(self, package: Package) -> str:
        listed = self.host.run("rpm", "-q", "-l", f"{package.package}-{package.version}")
        found = re.findall(r"(?m)^/(?:usr/)?lib/modules/([^/\s]+)/vmlinuz$", listed)
        if len(found) != 1:
            raise Failed(f"{package.package} holds no kernel: name the package that does")
        return str(found[0])

    def overwritten(self, package: Package) -> str:
        return ""

    def probe(self, package: Package) -> None:
        own = f"{package.package}-{package.version}"
        status, output, complaint = self.host.attempt("dnf", "-q", "repoquery", own)
        if status != 0 or not output.strip():
            lines = complaint.strip().splitlines() or ["no repository has it"]
            raise Unsupported(f"{own} cannot be installed: {lines[0]}")

    def install(self, package: Package) -> None:
        own = f"{package.package}-{package.version}"
        # By itself dnf removes the oldest of more than three kernels.
        self.host.run("dnf", "install", "-y", "--setopt=installonly_limit=0", own)
