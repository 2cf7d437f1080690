# SPDX-License-Identifier: Apache-2.0
"""What 100,000 lines of an access log cost a host: the agent's look, beside mtail where it is.

Each log is written into a folder of its own, and read from its beginning. Seconds are those of CPU,
of all threads. The agent counts classes, bytes, hits and two histograms of 10 % wide buckets; mtail
counts classes, bytes and one histogram of 13 buckets (its program is below), and starts for it.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Callable

from bench._ssh_peers import has_program, lacks
from bench._table import BenchError, carry_out, count_chosen, measure, options, shown, spread, told
from edgetune.agent.access_log import AccessLog
from edgetune.agent.host import Host
from edgetune.agent.log_format import FORMATS

COLUMNS = {
    "log": "{log}",
    "reader": "{reader}",
    "MB": "{mb:.1f}",
    "CPU s (median, min..max)": told("cpu_s", ".2f"),
}
LINES: Mapping[str, str] = {
    "nginx": '192.0.2.{n} - - [30/Nov/2026:06:25:24 +0000] "GET /video/{n}/seg.ts HTTP/1.1" 200 '
    '{size} "https://a.test/" "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36" {s:.3f} '
    "{s:.3f} HIT OK",
    "haproxy": "Nov 30 06:25:24 edge1 haproxy[14389]: 192.0.2.{n}:33317 [30/Nov/2026:06:25:24.655] "
    'web static/srv1 10/0/30/{ms}/{ms} 200 {size} - - ---- 1/1/1/1/0 0/0 "GET /{n} HTTP/1.1"',
    "varnish": "200 {size} {us} {s:.6f} hit",
    "trafficserver": "1764483924.123 {ms} 192.0.2.{n} TCP_MEM_HIT/200 {size} GET http://a.test/{n} "
    "- NONE/- video/mp2t",
    "active": "200 {ms}",
}


MTAIL = r"""counter responses by class
counter bytes
histogram request_ms buckets 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096
/" (?P<class>\d)\d\d (?P<size>\d+) "[^"]*" "[^"]*" (?P<seconds>[0-9.]+) / {
  responses[$class]++
  bytes += $size
  request_ms = $seconds * 1000
}
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status comes back."""
    parser = options(__doc__ or "")
    chosen, lines = count_chosen(parser, arguments, "lines", 100_000, quick=2_000)
    show = shown("{lines:,} lines, {rounds} rounds", COLUMNS)
    return carry_out("access_log", chosen, lambda: run(lines, 1 if chosen.quick else 5), show)


def run(lines: int, rounds: int) -> dict[str, Any]:
    """CPU seconds of each format and reader; BenchError where one has not read every line."""
    figures = []
    with tempfile.TemporaryDirectory(prefix="edgetune-bench-") as folder:
        for written in FORMATS:
            log = Path(folder, f"{written}.log")
            _write(log, written, lines)
            peers = {"agent": _agent(log, written, lines)}
            if written == "nginx" and has_program("mtail"):
                peers["mtail"] = _mtail(log, lines)
            for name, samples in measure(peers, rounds, lambda: 0.0).items():
                seconds = spread(sample.cpu for sample in samples)
                size = log.stat().st_size / 1e6
                figures.append({"log": written, "reader": name, "mb": size, "cpu_s": seconds})
    left_out = {"mtail": lacks("mtail")} if lacks("mtail") else {}
    return {"lines": lines, "rounds": rounds, "figures": figures, "left_out": left_out}


def _write(log: Path, written: str, lines: int) -> None:
    dice = random.Random(1)
    with log.open("w", encoding="utf-8") as file:
        for _ in range(lines):
            ms = dice.lognormvariate(3, 1)
            numbers = {"n": dice.randrange(250), "size": dice.randrange(10**6)}
            text = LINES[written].format(s=ms / 1000, ms=round(ms), us=round(1000 * ms), **numbers)
            file.write(text + "\n")


def _agent(log: Path, written: str, lines: int) -> Callable[[], None]:
    def look() -> None:
        with tempfile.TemporaryDirectory(prefix="edgetune-bench-") as root:
            Path(root, "var/lib").mkdir(parents=True)
            read = Path(root, "access.log")
            read.touch()
            looks = AccessLog(Host(root), "/access.log", written).look
            looks()  # which remembers the end of an empty log
            read.unlink()
            os.link(log, read)
            found, _ = looks()
        if found.get("http_responses") != lines:
            raise BenchError(f"{written}: {found}")

    return look


def _mtail(log: Path, lines: int) -> Callable[[], None]:
    programs = log.parent / "mtail"
    programs.mkdir()
    (programs / "edge.mtail").write_text(MTAIL, encoding="utf-8")
    words = ["mtail", "-one_shot", "-address", "127.0.0.1", "-port", "0"]
    words += ["-progs", str(programs), "-logs", str(log), "-log_dir", str(programs)]

    def read() -> None:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if f'"Count": {lines},' not in done.stdout:
            raise BenchError(f"mtail: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")

    return read


if __name__ == "__main__":
    sys.exit(main())
