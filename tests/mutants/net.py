# SPDX-License-Identifier: Apache-2.0
"""Mistakes by which a conversation would never end, or a part of an answer pass for all of it."""

from __future__ import annotations

from tests.mutants.mutation import mutations_of

NET = mutations_of(
    "lib/edgetune",
    ["lib/net/test_conversations"],
    (
        "each byte of an answer gives time for the next",
        "net/connection.py",
        "        self._sock.settimeout(left(self._deadline))\n",
        "        self._sock.settimeout(0.4)\n",
    ),
    (
        "an answer may have any number of bytes",
        "net/connection.py",
        "        self._room -= len(part)\n",
        "",
    ),
    (
        "a resolver takes the time that it wants",
        "net/connection.py",
        "    thread.join(left(deadline))\n",
        "    thread.join()\n",
    ),
    (
        "the first address of a name takes all the time",
        "net/connection.py",
        "        share = left(deadline) / (len(found) + 1 - number)\n",
        "        share = left(deadline)\n",
    ),
    (
        "an answer that was cut off is a whole one",
        "net/http.py",
        "        if answer.length:\n",
        "        if False:\n",
    ),
    (
        "a compressed answer that was cut off is a whole one",
        "net/http.py",
        "            if not packed.eof:\n",
        "            if False:\n",
    ),
    (
        "headers that were cut off are whole",
        "net/http.py",
        '    if file.line not in (b"\\r\\n", b"\\n"):\n',
        "    if False:\n",
    ),
    (
        "a change is sent again where its answer is lost",
        "net/http.py",
        '            if asked[0] != "GET" or self._connection is not kept:\n',
        "            if self._connection is not kept:\n",
    ),
    (
        "a body has no bound",
        "net/http.py",
        "            if size > self._limit:\n",
        "            if False:\n",
    ),
    (
        "what is compressed has no bound once it is not",
        "net/http.py",
        "            if len(found) > self._limit:\n",
        "            if False:\n",
    ),
    (
        "a question is sent into a connection that has ended",
        "net/http.py",
        "            if self._connection.is_quiet():\n",
        "            if True:\n",
    ),
    (
        "an error shows the token",
        "net/http.py",
        '            text = text.replace(secret, "***")\n',
        "            pass\n",
    ),
    (
        "an end that TLS did not sign is one that the peer meant",
        "net/tls.py",
        "                raise CutError(str(error)) from error\n",
        '                return b""  # type: ignore[return-value]\n',
    ),
    (
        "a peer whose certificate is not believed stays connected",
        "net/tls.py",
        "        plain.close()\n",
        "        pass\n",
    ),
    (
        "each byte of Redis gives time for the next",
        "connections.py",
        "            ends = clock.monotonic() + REDIS_TIMEOUT\n",
        "            return super()._connect()\n",
    ),
    (
        "a question to Redis has as long as those before it have left",
        "connections.py",
        "                self._sock.grant(clock.monotonic() + REDIS_TIMEOUT, MOST_OF_REDIS)\n",
        "                pass\n",
    ),
    (
        "an answer of BIRD that drips has no end",
        "hosts/agent/drains/bird_control.py",
        "            if left <= 0:\n",
        "            left = max(0.01, left)\n            if False:\n",
    ),
)
