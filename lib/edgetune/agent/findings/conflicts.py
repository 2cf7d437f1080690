# SPDX-License-Identifier: Apache-2.0
"""What works against tunings: other programs that tune, files that disagree, and drift."""

from typing import Any, Dict, Iterator, List, Optional, Tuple

from edgetune.agent.drift import drifted
from edgetune.agent.findings import finding
from edgetune.agent.findings.snapshot import Snapshot
from edgetune.agent.journal import Journals
from edgetune.agent.kinds.sysctl import Sysctl
from edgetune.agent.protocol import Json, or_none
from edgetune.agent.readings import running_programs
from edgetune.agent.vocabulary.values import Value

SHOWN = 3
PACKAGED = "/usr/lib/"


def irqbalance(snap: Snapshot) -> Iterator[Json]:
    """It moves interrupts about, also those that a tuning has put somewhere."""
    if "irqbalance" not in running_programs(snap.host):
        return
    journals = Journals(snap.host).all()
    placed = [
        journal.tuning
        for journal in journals
        if any(entry.setting.kind == "nic.irq_affinity" for entry in journal.entries)
    ]
    what = "irqbalance runs and moves interrupts"
    against = f"{what} that {', '.join(placed)} has placed" if placed else f"{what} as it likes"
    severity = "conflict" if placed else "note"
    yield finding("irqbalance", against, {"tunings": len(placed)}, None, severity)


def tuned(snap: Snapshot) -> Iterator[Json]:
    """It sets its profile again whenever it starts."""
    if "tuned" in running_programs(snap.host):
        profile = snap.text("/etc/tuned/active_profile") or "none that can be read"
        what = f"tuned runs with the profile {profile}, which sets kernel and cards as it likes"
        yield finding("tuned", what, {"running": 1}, None, "conflict")


def bpftune(snap: Snapshot) -> Iterator[Json]:
    """It changes buffers and congestion control while it runs."""
    if "bpftune" in running_programs(snap.host):
        what = "bpftune runs and changes buffers, backlogs and congestion control by itself"
        yield finding("bpftune", what, {"running": 1}, None, "conflict")


def sysctl_files(snap: Snapshot) -> Iterator[Json]:
    """Keys to which two files of the administrator give different values.

    That one overrides a file of the distribution, or that ours overrides one, is how it is meant.
    """
    said: Dict[str, List[Tuple[str, str]]] = {}
    for file, key, value in Sysctl(snap.host).assignments():
        if value is not None and not file.startswith(PACKAGED):
            said.setdefault(key, []).append((file, value))
    rows = [
        f"{_dotted(key)} is {values[-1][1]} in {values[-1][0]}, {other[1]} in {other[0]}"
        for key, values in said.items()
        for other in [pair for pair in values if pair[1] != values[-1][1]][:1]
        if not _is_ours(values[-1][0])
    ]
    if rows:
        what = f"files of sysctl.d disagree, the last one counts: {_few(rows)}"
        yield finding("sysctl_files", what, {"keys": len(rows)}, None, "conflict")


def sysctl_not_in_force(snap: Snapshot) -> Iterator[Json]:
    """Keys that are not as the file says that decides: somebody set them since the boot."""
    kind = Sysctl(snap.host)
    rows = []
    for key in dict.fromkeys(row.path for row in kind.assignments() if not row.is_pattern):
        winner, now = kind.winner(key), or_none(kind.runtime, {"key": key})
        theirs = winner and not (_is_ours(winner.file) or winner.file.startswith(PACKAGED))
        if winner and theirs and now not in (None, "", winner.value):
            rows.append(f"{_dotted(key)} is {now}, {winner.value} in {winner.file}")
    if rows:
        what = f"values are not in force that files of sysctl.d set: {_few(rows)}"
        yield finding("sysctl_not_in_force", what, {"keys": len(rows)}, None, "conflict")


def drift(snap: Any) -> Iterator[Json]:
    """Settings that are not any more as a standing tuning left them, on a host of any system."""
    rows = drifted(snap.host)
    for tuning in dict.fromkeys(row["tuning"] for row in rows):
        of_tuning = [row for row in rows if row["tuning"] == tuning]
        lines = []
        for row in of_tuning:
            wanted, now, stored = (
                _shown(row[name]) for name in ("wanted", "runtime", "persistent")
            )
            lines.append(f"{row['id']} wants {wanted}, has {now}, after a boot {stored}")
        what = f"settings of {tuning} have drifted ({len(of_tuning)}): {_few(lines)}"
        yield finding("drift", what, {"settings": len(of_tuning)}, tuning, "conflict")


def _is_ours(file: str) -> bool:
    return "/90-edgetune-" in file


def _dotted(path: str) -> str:
    return path.translate(str.maketrans("./", "/."))


def _shown(value: Optional[Value]) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={part}" for name, part in sorted(value.items()))
    return "nothing that can be read" if value is None else value


def _few(rows: List[str]) -> str:
    more = f"; and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    return "; ".join(rows[:SHOWN]) + more
