# SPDX-License-Identifier: Apache-2.0
"""A program of a simulated host: the process that is the hosts carries it out and answers.

Run as `python asking.py FOLDER HOST NAME ARGUMENT...`. The host agent runs dozens of programs for a
question, and what a Python imports takes most of the time of each. So this imports nothing that is
not built in or one small extension, and nothing of the lab.
"""

from __future__ import annotations

import sys
from _socket import AF_UNIX, SHUT_WR, SOCK_STREAM, socket
from posix import chdir

SOCKET = "programs"


def main(folder: str, *asked: str) -> None:
    """Print what the lab answers, and exit as it says."""
    chdir(folder)  # the address of a Unix socket is short
    lab = socket(AF_UNIX, SOCK_STREAM)
    lab.connect(SOCKET)
    lab.sendall("\0".join(asked).encode())
    lab.shutdown(SHUT_WR)
    answer = b""
    while part := lab.recv(65536):
        answer += part
    status, output, complaints = answer.decode().split("\0")
    sys.stdout.write(output)
    sys.stderr.write(complaints)
    sys.exit(int(status))


if __name__ == "__main__":
    main(*sys.argv[1:])
