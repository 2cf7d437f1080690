# SPDX-License-Identifier: Apache-2.0
"""The library as a commit of this repository has it, to be measured beside that of today."""

from __future__ import annotations

import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench._table import BenchError

ROOT = Path(__file__).parent.parent


@contextmanager
def library_of(commit: str) -> Iterator[Path]:
    """The folder to import it from; BenchError where there is no such commit."""
    words = ["git", "-C", str(ROOT), "archive", commit, "lib/edgetune"]
    done = subprocess.run(words, capture_output=True, check=False)
    if done.returncode:
        raise BenchError(f"--before: {done.stderr.decode().strip()}")
    with tempfile.TemporaryDirectory(prefix="edgetune-bench-") as place:
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            archive.extractall(place)
        yield Path(place, "lib")
