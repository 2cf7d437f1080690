# SPDX-License-Identifier: Apache-2.0
"""A server on loopback that answers one line of each connection."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable


class Answering:
    """Whatever comes in is answered by ``say``, given the socket and what was asked."""

    def __init__(self, say: Callable[[socket.socket, str], None], family: int = socket.AF_INET):
        self._say, self.asked = say, []
        self._listener = socket.socket(family)
        self._listener.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        self._listener.listen(8)
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with sock:
                try:
                    self.asked.append(sock.makefile("r").readline().strip())
                    self._say(sock, self.asked[-1])
                except OSError:
                    pass
