# SPDX-License-Identifier: Apache-2.0
"""This host as it would be if some files were others: to tell what a boot would lead to."""

import errno
import os
from typing import List, Mapping, Optional, Tuple

from edgetune.agent.host import Host


class AsIf(Host):
    """A host some of whose files have another content, or are gone (None); for reading alone."""

    def __init__(self, host: Host, files: Mapping[str, Optional[bytes]]) -> None:
        super().__init__(host.root)
        self._files = files

    def exists(self, name: str) -> bool:
        if name in self._files:
            return self._files[name] is not None
        return super().exists(name)

    def names(self, directory: str) -> List[str]:
        own = {os.path.basename(n): n for n in self._files if os.path.dirname(n) == directory}
        found = {*super().names(directory), *own}
        return sorted(name for name in found if self._files.get(own.get(name, ""), b"") is not None)

    def read(self, name: str) -> bytes:
        if name in self._files:
            return self._content(name)
        return super().read(name)

    def kept(self, name: str) -> Tuple[bytes, os.stat_result]:
        if name in self._files:
            return self._content(name), os.stat(self.root)
        return super().kept(name)

    def _content(self, name: str) -> bytes:
        content = self._files[name]
        if content is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return content
