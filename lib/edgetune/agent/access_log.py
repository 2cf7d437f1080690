# SPDX-License-Identifier: Apache-2.0
"""Counters of a web server's access log, read from where it was read last.

What was counted, and where the log was read to, lie in one file that is replaced in one step: after
a crash the same lines are read again, and nothing is counted twice. Counters only grow, until that
file is lost, or another log or format is asked for; then they begin anew with what is logged from
then on.

A look reads no more than ``MOST_BYTES`` and takes no more than ``MOST_SECONDS`` of CPU. What it
leaves out by that it counts, and never reads.
"""

import contextlib
import errno
import fcntl
import gzip
import hashlib
import json
import os
import re
import stat
import time
import zlib
from typing import Any, BinaryIO, Dict, Iterator, List, NamedTuple, Optional, Tuple

from edgetune.agent.host import Host
from edgetune.agent.log_format import OF_READING, LogFormat
from edgetune.agent.vocabulary.places import ACCESS_LOG_COUNTS, STATE

MOST_BYTES = 256 << 20
MOST_SECONDS = 2.0
_CHUNK = 1 << 20
_MARK = 4096
"""Bytes before the place that was read to, by which a file is known again."""
_LOCK_WAIT = 3.0
_SCHEMA = 1


class _Place(NamedTuple):
    """Where a log was read to: its file, how far, and what stands right before that."""

    inode: int
    offset: int
    mark: str


class AccessLog:
    """The log at ``path`` of a host; ValueError for what is no format."""

    def __init__(self, host: Host, path: str, written: str) -> None:
        self._host, self._path = host, path
        self._format = LogFormat(written)
        self._source = f"{path} {written}"
        self._counts: Dict[str, int] = {}
        self._bytes, self._ends = 0, 0.0
        self._is_alike = False

    def look(self) -> Tuple[Dict[str, int], str]:
        """All counters as of now, and what a person has to know of them: "" for nothing.

        Where no line since the last look is as the format says, those of requests are left out.
        OSError where the log cannot be read, or they cannot be kept.
        """
        self._host.make_directory(STATE, 0o700)
        with self._host.directory(STATE) as state:
            _lock(state.descriptor)
            counts, place, since = self._kept()
            self._counts = dict(counts)
            with _opened(self._host.real(self._path)) as file:
                found = self._read_from(file, place, since) if place else _end_of(file)
            kept = {
                "schema": _SCHEMA,
                "source": self._source,
                "time": time.time(),
                "place": list(found),
                "counters": self._counts,
            }
            self._host.replace(ACCESS_LOG_COUNTS, json.dumps(kept).encode(), 0o600)
        fresh = {name: self._counts.get(name, 0) - counts.get(name, 0) for name in OF_READING}
        if fresh["log_unread_lines"] and not self._is_alike:
            unlike = fresh["log_unread_lines"]
            why = f"none of {unlike:,} lines of {self._path} is written as log_format says"
            return {name: count for name, count in self._counts.items() if name in OF_READING}, why
        left_out = fresh["log_left_out_bytes"]
        why = f"{left_out:,} bytes of {self._path} were left out: it grew by more than a look reads"
        return dict(self._counts), why if left_out else ""

    def _kept(self) -> Tuple[Dict[str, int], Optional[_Place], float]:
        """What was counted, where it was read to, and when; nothing of another log or format."""
        begun = self._format.none()
        try:
            kept = json.loads(self._host.kept(ACCESS_LOG_COUNTS)[0].decode())
            if kept["schema"] != _SCHEMA or kept["source"] != self._source:
                return begun, None, 0.0
            inode, offset, mark = kept["place"]
            counts = {str(name): int(value) for name, value in kept["counters"].items()}
            place = _Place(int(inode), int(offset), str(mark))
            return dict(begun, **counts), place, float(kept["time"])
        except FileNotFoundError:
            return begun, None, 0.0
        except (ValueError, KeyError, TypeError, AttributeError):
            # Damaged: as if it were lost.
            return begun, None, 0.0

    def _read_from(self, file: BinaryIO, place: _Place, since: float) -> _Place:
        self._bytes, self._ends = 0, time.process_time() + MOST_SECONDS
        inode = os.fstat(file.fileno()).st_ino
        if inode == place.inode and _fits(file, place):
            return self._read(file, place.offset)
        # It was rotated, or truncated: what is there now is new from its beginning on.
        found = False
        for name in self._rotated(since, inode):
            with contextlib.suppress(OSError, EOFError, zlib.error), _opened(name) as older:
                found = self._read_older(older, name, place, found)
        return self._read(file, 0)

    def _rotated(self, since: float, current: int) -> List[str]:
        """Files that were the log, and were written to after the last look, the oldest first."""
        folder, base = os.path.split(self._host.real(self._path))
        stem, ending = os.path.splitext(base)
        # Apache Traffic Server names them squid.log_HOST.BEGIN-END.old.
        ours = rf"{re.escape(base)}([.-].*|_.*\.old)"
        names = re.compile(rf"{ours}|{re.escape(stem)}-.*{re.escape(ending)}.*")
        written, there = [], set(os.listdir(folder))
        # One that is being packed is there twice.
        there -= {f"{name}.gz" for name in there if name != base}
        for name in filter(names.fullmatch, there):
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                at = os.lstat(path)
                if stat.S_ISREG(at.st_mode) and at.st_ino != current and at.st_mtime >= since:
                    written.append((at.st_mtime, path))
        return [path for _, path in sorted(written)]

    def _read_older(self, file: BinaryIO, name: str, place: _Place, found: bool) -> bool:
        """Read on in the file that the log was, or in one that it was later; whether that was found
        by now. A copy of it is known by what stands before the place."""
        if name.endswith(".gz"):
            unpacked = gzip.GzipFile(fileobj=file)
            if found or self._goes_on(unpacked, place):
                self._read_lines(iter(lambda: unpacked.read(_CHUNK), b""))
                return True
            return False
        is_it = os.fstat(file.fileno()).st_ino == place.inode or place.offset > 0
        if not found and is_it and _fits(file, place):
            self._read(file, place.offset)
            return True
        if found:
            self._read(file, 0)
        return found

    def _goes_on(self, unpacked: Any, place: _Place) -> bool:
        """Read up to the place; whether it is one of this file."""
        left, last = place.offset, b""
        while left > 0:
            chunk = unpacked.read(min(left, _CHUNK))
            if not chunk or self._is_over:
                return False
            left, last = left - len(chunk), (last + chunk)[-_MARK:]
        return place.offset > 0 and _mark(last) == place.mark

    def _read(self, file: BinaryIO, offset: int) -> _Place:
        """Count the whole lines from there on; what comes of it is read in the next look."""
        file.seek(offset)
        offset += self._read_lines(iter(lambda: file.read(_CHUNK), b""))
        end = _end_of(file)
        if self._is_over and end.offset - offset > _CHUNK:
            self._count("log_left_out_bytes", end.offset - offset)
            return end
        return _place(file, offset)

    def _read_lines(self, chunks: Iterator[bytes]) -> int:
        """How many bytes were read of whole lines."""
        rest, read = b"", 0
        for chunk in chunks:
            cut = chunk.rfind(b"\n") + 1
            if not cut and len(rest) < _CHUNK:
                rest += chunk
                continue
            if not cut:
                # A line of some megabytes is none.
                read += len(rest) + len(chunk)
                self._count("log_left_out_bytes", len(rest) + len(chunk))
                rest = b""
                continue
            lines, rest = rest + chunk[:cut], chunk[cut:]
            counts = self._format.counts(lines)
            self._is_alike |= counts["log_unread_lines"] < lines.count(b"\n")
            for name, many in counts.items():
                self._count(name, many)
            read += len(lines)
            self._bytes += len(lines)
            self._count("log_bytes", len(lines))
            if self._is_over:
                break
        return read

    @property
    def _is_over(self) -> bool:
        return self._bytes >= MOST_BYTES or time.process_time() > self._ends

    def _count(self, name: str, many: int) -> None:
        self._counts[name] = self._counts.get(name, 0) + many


@contextlib.contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """A plain file; OSError for anything else, which is not waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "is no plain file", path)
        yield file


def _lock(descriptor: int) -> None:
    """One look at a time: two would count the same lines."""
    deadline = time.monotonic() + _LOCK_WAIT
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def _mark(data: bytes) -> str:
    return hashlib.sha256(data[-_MARK:]).hexdigest()[:16]


def _before(file: BinaryIO, offset: int) -> bytes:
    begin = max(0, offset - _MARK)
    return os.pread(file.fileno(), offset - begin, begin)


def _place(file: BinaryIO, offset: int) -> _Place:
    return _Place(os.fstat(file.fileno()).st_ino, offset, _mark(_before(file, offset)))


def _fits(file: BinaryIO, place: _Place) -> bool:
    """Whether a file has that much, and the same before it."""
    size = os.fstat(file.fileno()).st_size
    return size >= place.offset and _mark(_before(file, place.offset)) == place.mark


def _end_of(file: BinaryIO) -> _Place:
    """The place behind the last whole line."""
    size = os.fstat(file.fileno()).st_size
    begin = max(0, size - _CHUNK)
    cut = os.pread(file.fileno(), size - begin, begin).rfind(b"\n") + 1
    return _place(file, begin + cut if cut or not begin else size)
