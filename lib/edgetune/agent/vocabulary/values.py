# SPDX-License-Identifier: Apache-2.0
"""Values of settings: numbers, lists and masks of CPUs, parts, and the description of a file."""

import re
from typing import Callable, Dict, List, Mapping, Optional, Set, Tuple, Union

from edgetune.agent.vocabulary.grammar import Wrong

FORM = re.compile(
    r"sha256:([0-9a-f]{64}), ([0-9]+) bytes, ([0-9]+) lines"
    r"(?:, mode ([0-7]{4}), owner ([0-9]+:[0-9]+))?"
)


def described(data: bytes, mode: int = -1, uid: int = 0, gid: int = 0) -> str:
    """Such as ``sha256:ab12..., 33 bytes, 3 lines, mode 0644, owner 0:0``, never the content.

    Plans and records leave the host, and the content may be a secret. What is needed to put a file
    back is in the host's own journal alone.
    """
    # A boot describes nothing, and pays for OpenSSL with this.
    import hashlib

    lines = data.count(b"\n") + bool(data and not data.endswith(b"\n"))
    text = f"sha256:{hashlib.sha256(data).hexdigest()}, {len(data)} bytes, {lines} lines"
    return text if mode < 0 else f"{text}, mode {mode:04o}, owner {uid}:{gid}"


def alike(one: object, other: object) -> bool:
    """Whether two readings of a setting are the same, as far as both tell.

    Either may be a file's content: records before 0.7 hold that.
    """
    if one == other or not (isinstance(one, str) and isinstance(other, str)):
        return bool(one == other)
    if not (FORM.fullmatch(one) or FORM.fullmatch(other)):
        return False
    pairs = zip(_parts(one), _parts(other))
    return all(mine == theirs for mine, theirs in pairs if mine and theirs)


def _parts(text: str) -> Tuple[Optional[str], ...]:
    found = FORM.fullmatch(text) or FORM.fullmatch(described(text.encode("utf-8", "replace")))
    return found.groups() if found else ()


def in_a_line(text: str) -> str:
    """A text as it stands in a line: of a file as much of its digest as people compare."""
    short = text if FORM.fullmatch(text) or "\n" not in text else described(text.encode())
    return re.sub(r"(?<=^sha256:)([0-9a-f]{12})[0-9a-f]{52}(?=, [0-9]+ bytes, )", r"\1", short)


NODE = r"[0-9]{1,4}"
_RANGE = r"[0-9]{1,5}(-[0-9]{1,5})?"
CPUS = rf"{_RANGE}([, ]+{_RANGE})*"
"""Lists of CPUs, as far as a pattern can tell."""

Target = Mapping[str, str]


Parts = Dict[str, Union[int, str]]


Value = Union[str, Parts]


def bounded(only: Optional[str], now: Value, wanted: Value) -> Value:
    """``wanted``, but never below (``raise``) or above (``lower``) what is there now.

    Texts are compared number by number; a single wanted number goes for all of them.
    ValueError when something is no number.
    """
    if only is None:
        return wanted
    pick = max if only == "raise" else min
    if isinstance(now, dict) and isinstance(wanted, dict):
        have_parts, want_parts = counts(now), counts(wanted)
        if len(want_parts) != len(wanted):
            raise ValueError("not all of it are numbers")
        return {key: pick(have_parts.get(key, part), part) for key, part in want_parts.items()}
    have, want = _numbers(now), _numbers(wanted)
    if len(want) == 1:
        want = want * len(have)
    if len(have) != len(want):
        raise ValueError("their lengths differ")
    chosen = [pick(pair, key=float) for pair in zip(have, want)]
    # Two halves that are the same are one number, as they are read.
    return ":".join(dict.fromkeys(chosen)) if ":" in str(now) else " ".join(chosen)


def _numbers(value: Value) -> List[str]:
    words = re.split(r"[\s:]+", str(value))
    if not all(re.fullmatch(r"-?[0-9]+|infinity", word) for word in words):
        raise ValueError(f"{value!r} is not made of numbers")
    return words


def parse_cpus(text: str) -> Set[int]:
    """{0, 1, 3} for "0-1,3" or "0 1 3"; ValueError for anything else."""
    chosen: Set[int] = set()
    for part in text.replace(",", " ").split():
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if not 0 <= low <= high < 65536:
            raise ValueError(f"{part!r} is no range of CPUs")
        chosen.update(range(low, high + 1))
    return chosen


def format_cpus(cpus: Set[int]) -> str:
    """The shortest list: "0-1,3" for {0, 1, 3}."""
    parts: List[str] = []
    for first in sorted(cpu for cpu in cpus if cpu - 1 not in cpus):
        last = first
        while last + 1 in cpus:
            last += 1
        parts.append(str(first) if first == last else f"{first}-{last}")
    return ",".join(parts)


def parse_mask(text: str) -> Set[int]:
    """The CPUs of a kernel mask in hex, groups of 32 bits between commas."""
    bits = int(text.replace(",", "") or "0", 16)
    return {cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1}


def format_mask(cpus: Set[int]) -> str:
    """The kernel's mask of these CPUs."""
    bits = sum(1 << cpu for cpu in cpus)
    groups: List[int] = []
    while bits or not groups:
        groups.insert(0, bits & 0xFFFFFFFF)
        bits >>= 32
    return f"{groups[0]:x}" + "".join(f",{group:08x}" for group in groups[1:])


def cpu_list(text: str) -> str:
    """A list of CPUs in its shortest form; Wrong where it is none."""
    try:
        if text and not re.fullmatch(CPUS, text):
            raise ValueError(text)
        return format_cpus(parse_cpus(text))
    except ValueError:
        raise Wrong("is no list of CPUs such as 0-1,3") from None


def one_line(target: Target, value: Value) -> Value:
    """A text whose words stand one space apart."""
    return " ".join(str(value).split())


def whole_number(target: Target, value: Value) -> Value:
    """A text of digits without zeros before them."""
    return str(int(str(value)))


def shown(value: object) -> str:
    """A value as it stands in a line of text: a whole file by its SHA-256 and its size."""
    return in_a_line(value) if isinstance(value, str) else str(value)


def merged(older: Optional[Value], newer: Value) -> Value:
    """The newer value, with those parts of the older that it says nothing of."""
    if isinstance(older, dict) and isinstance(newer, dict):
        return {**older, **newer}
    return newer


def parts(value: object) -> Parts:
    """A value that is an object."""
    return value if isinstance(value, dict) else {}


def holds(now: Value, wanted: Value) -> bool:
    """Whether the parts that are wanted are as wanted; the others may be anything."""
    return all(parts(now).get(name) == part for name, part in parts(wanted).items())


def counts(value: Value) -> Dict[str, int]:
    """The parts of a value that are numbers."""
    return {name: part for name, part in parts(value).items() if isinstance(part, int)}


def cpus_or(*words: str) -> Callable[[Target, Value], Value]:
    """Leaves these words as they are, and brings a list of CPUs into its shortest form."""
    return lambda target, value: value if value in words else cpu_list(str(value))


def multiple_above(step: int) -> Callable[[int], int]:
    """Rounds a number up to a multiple."""
    return lambda number: -(-number // step) * step


def power_above(number: int) -> int:
    """The smallest power of two that is not smaller than a number; 0 for 0."""
    return 1 << (number - 1).bit_length() if number > 0 else 0


def power_below(number: int) -> int:
    """The largest power of two that is not larger than a number; 0 for 0."""
    return 1 << (number.bit_length() - 1) if number > 0 else 0


def chosen(found: Value, value: Value) -> Value:
    """Those parts of what was read that a value has, too."""
    return {name: part for name, part in parts(found).items() if name in parts(value)}
