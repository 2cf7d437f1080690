# SPDX-License-Identifier: Apache-2.0
"""What is asked of every package manager."""

from typing import NamedTuple, Optional

from edgetune.agent.host import Host


class Package(NamedTuple):
    """A package by its name, at one version."""

    package: str
    version: str


class PackageManager:
    """Which package holds a kernel, and how one gets there."""

    program = ""

    def __init__(self, host: Host) -> None:
        self.host = host

    def of_release(self, release: str) -> Optional[Package]:
        """The package that holds a kernel, as it is installed; None where none does."""
        raise NotImplementedError

    def running_version(self) -> str:
        """That of the running kernel, whose package may have been replaced; "" if nobody tells."""
        return ""

    def has(self, package: Package) -> bool:
        """Whether it is installed as a whole."""
        raise NotImplementedError

    def release_of(self, package: Package) -> str:
        """The release of the kernel in an installed package; Failed where it holds none."""
        raise NotImplementedError

    def overwritten(self, package: Package) -> str:
        """The release of the kernel that installing a package would overwrite; "" for none."""
        raise NotImplementedError

    def probe(self, package: Package) -> None:
        """Unsupported where a package cannot be installed now; installs nothing."""
        raise NotImplementedError

    def install(self, package: Package) -> None:
        """Install it and keep every kernel that is there; Failed if that does not work."""
        raise NotImplementedError
