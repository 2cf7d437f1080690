# SPDX-License-Identifier: Apache-2.0
"""What is told of a file of a host: digest, size, mode and owner, never its content.

Plans and records leave the host, and the content may be a secret. What is needed to put a file
back is in the host's own journal alone.
"""

import re
from typing import Optional, Tuple

FORM = re.compile(
    r"sha256:([0-9a-f]{64}), ([0-9]+) bytes, ([0-9]+) lines"
    r"(?:, mode ([0-7]{4}), owner ([0-9]+:[0-9]+))?"
)


def described(data: bytes, mode: int = -1, uid: int = 0, gid: int = 0) -> str:
    """Such as ``sha256:ab12..., 33 bytes, 3 lines, mode 0644, owner 0:0``."""
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
    told = text if FORM.fullmatch(text) or "\n" not in text else described(text.encode())
    return re.sub(r"(?<=^sha256:)([0-9a-f]{12})[0-9a-f]{52}(?=, [0-9]+ bytes, )", r"\1", told)
