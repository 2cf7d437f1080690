# SPDX-License-Identifier: Apache-2.0
"""Many TCP connections within a second, each from another port: which of them get an answer.

A card chooses the queue of a packet by addresses and ports, so one connection proves one queue.
"""

import errno
import selectors
import socket
import time
from typing import Any, Dict, List, Sequence, Tuple

CONNECTIONS = 32
"""To each peer. One deaf queue of eight is met by none of them once in 72 times."""

# Packets came and went: the peer's kernel has answered.
_ANSWERS = (0, errno.ECONNREFUSED, errno.ECONNRESET)
_UNDER_WAY = (*_ANSWERS, errno.EINPROGRESS)
_AGAIN = 0.2
# A burst of them would fill a short accept queue, and a full queue is no deaf one.
_APART = 0.03
REFUSED_APART = 0.008
"""The same where nobody listens: there is no queue to fill, and FreeBSD refuses 200 a second."""

Place = Tuple[str, int]
"""An address, or a name, and a port."""


def unanswered(places: Sequence[Place], seconds: float, apart: float = _APART) -> Dict[Place, int]:
    """How many of ``CONNECTIONS`` to each place got no answer within so many seconds.

    Those to one place are ``apart`` seconds apart.

    An answer is that the connection is accepted or refused; then it is closed. The kernel sends
    again after 1, 3, 7 and 15 s what is lost on the way. OSError where a name has no address.
    """
    end = time.monotonic() + seconds
    peers = {place: _resolve(place) for place in places}
    left = [place for _ in range(CONNECTIONS) for place in peers]
    while left:
        left = _without_answer(left, peers, end, apart)
        if time.monotonic() + _AGAIN > end:
            break
        # Some have no way to the peer, while a link comes up.
        time.sleep(_AGAIN if left else 0)
    return {place: left.count(place) for place in peers}


def _resolve(place: Place) -> Tuple[int, Any]:
    """Family and address of a socket."""
    family, _, _, _, address = socket.getaddrinfo(*place, type=socket.SOCK_STREAM)[0]
    return family, address


def _without_answer(
    places: Sequence[Place], peers: Dict[Place, Tuple[int, Any]], end: float, apart: float
) -> List[Place]:
    """Connect once to each; those that had no answer in time, or cannot be reached."""
    opened = []
    lost = list(places)
    with selectors.DefaultSelector() as selector:
        try:
            for number, place in enumerate(places):
                if number and number % len(peers) == 0:
                    time.sleep(apart)
                family, address = peers[place]
                connection = socket.socket(family, socket.SOCK_STREAM)
                opened.append(connection)
                connection.setblocking(False)
                if connection.connect_ex(address) in _UNDER_WAY:
                    selector.register(connection, selectors.EVENT_WRITE, place)
            while selector.get_map():
                ready = selector.select(max(end - time.monotonic(), 0))
                for key, _ in ready:
                    connection = opened[opened.index(key.fileobj)]  # type: ignore[arg-type]
                    if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in _ANSWERS:
                        lost.remove(key.data)
                    selector.unregister(connection)
                if not ready:
                    break
        finally:
            for connection in opened:
                connection.close()
    return lost
