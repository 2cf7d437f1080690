# SPDX-License-Identifier: Apache-2.0
"""What 100,000 lines of an access log cost a host.

python -m bench.access_log [LINES]

Each log is written into a directory for a moment, and read by the agent as a sample does. Seconds
are those of one CPU.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from edgetune.agent.access_log import AccessLog
from edgetune.agent.host import Host
from edgetune.agent.log_format import FORMATS

LINES: Mapping[str, str] = {
    "nginx": '192.0.2.{n} - - [30/Nov/2026:06:25:24 +0000] "GET /video/{n}/seg.ts HTTP/1.1" 200 '
    '{size} "https://a.test/" "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36" {s:.3f} '
    "{s:.3f} HIT",
    "haproxy": "Nov 30 06:25:24 edge1 haproxy[14389]: 192.0.2.{n}:33317 [30/Nov/2026:06:25:24.655] "
    'web static/srv1 10/0/30/{ms}/{ms} 200 {size} - - ---- 1/1/1/1/0 0/0 "GET /{n} HTTP/1.1"',
    "varnish": "200 {size} {us} {s:.6f} hit",
    "trafficserver": "1764483924.123 {ms} 192.0.2.{n} TCP_MEM_HIT/200 {size} GET http://a.test/{n} "
    "- NONE/- video/mp2t",
}


def cost(written: str, lines: int) -> tuple[float, float]:
    """Seconds of CPU, and megabytes."""
    dice = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "var/lib").mkdir(parents=True)
        log = root / "access.log"
        log.touch()
        look = AccessLog(Host(folder), "/access.log", written).look
        look()
        with log.open("w") as file:
            for _ in range(lines):
                ms = dice.lognormvariate(3, 1)
                numbers = {"n": dice.randrange(250), "size": dice.randrange(10**6)}
                text = LINES[written].format(
                    s=ms / 1000, ms=round(ms), us=round(1000 * ms), **numbers
                )
                file.write(text + "\n")
        began = time.process_time()
        found = look()
        took = time.process_time() - began
        assert found["http_responses"] == lines, found
        return took, log.stat().st_size / 1e6


def main(lines: int) -> None:
    """A line for each format."""
    for written in FORMATS:
        seconds, size = cost(written, lines)
        print(f"{written:<14} {lines:,} lines, {size:.1f} MB: {seconds:.3f} s of CPU", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 100_000)
