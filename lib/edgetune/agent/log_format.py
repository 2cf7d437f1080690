# SPDX-License-Identifier: Apache-2.0
"""How a web server writes a line of its access log, and what lines of it tell.

A format is written as a line is, with ``{field}`` where a field stands and ``{}`` where anything
else does. What stands for a field ends at the character that follows it. A format that begins with
``...`` may have anything before it, and every format anything behind it. A field that no quote ends
is of ``_MOST`` characters at most: clients write a part of each line, and none may take longer than
its length.
"""

import re
from collections import Counter
from typing import Dict, List, Optional, Sequence, Tuple

from edgetune.agent.vocabulary.buckets import bucket_name, bucket_of

FORMATS = {
    "nginx": '...] "{}" {status} {bytes} "{}" "{}" {time} {first_byte} {cache} {ended}',
    "haproxy": "...] {} {} {}/{}/{}/{first_byte_ms}/{time_ms} {status} {bytes} {} {} {ended} ",
    "varnish": "{status} {bytes} {time_us} {first_byte} {cache}",
    "trafficserver": "{} {time_ms} {} {result}/{status} {bytes} ",
    "active": "{status} {time_ms}",
}
"""What is written by nginx' format ``combined`` with four fields behind it; by HAProxy's
``option httplog``; by ``varnishncsa -F`` with these five fields alone; by Apache Traffic Server's
format ``squid``; and by ``active_check``."""

IN_MS = {"": "e3", "_ms": "", "_us": "e-3"}
TIMES = {"time": "request_ms", "first_byte": "first_byte_ms"}
"""The histograms of both."""
COUNTERS = {
    "status": ("http_responses", "http_4xx", "http_5xx"),
    "bytes": ("response_bytes",),
    "cache": ("cache_responses", "cache_hits"),
    "ended": ("http_broken",),
    "result": ("cache_responses", "cache_hits", "http_broken"),
}
"""By field, what is counted of it."""
FIELDS = (*COUNTERS, *(name + unit for name in TIMES for unit in IN_MS))
OF_LARGE = ("large_bytes", "large_ms")
"""Of answers of LARGE_DIGITS and more, where both their bytes and their whole time are logged."""
OF_READING = ("log_bytes", "log_left_out_bytes", "log_unread_lines")
ALL_COUNTERS = (
    *dict.fromkeys([*TIMES.values(), *sum(COUNTERS.values(), ()), *OF_LARGE, *OF_READING]),
)
LARGE_DIGITS = 7
"""Of the bytes of an answer: from 1 MB on."""
_MOST = 200

_PLACE = re.compile(r"\{([a-z_]*)\}")
_FROM_CACHE = ("STALE", "UPDATING", "REVALIDATED")
"""What nginx says of answers of its cache, beside HIT."""


class LogFormat:
    """One of FORMATS, or such a text; ValueError says what is wrong with it."""

    def __init__(self, text: str) -> None:
        written = FORMATS.get(text, text)
        self.fields: List[str] = []
        self._pattern = re.compile(self._expression(written).encode(), re.MULTILINE)
        if not self.fields:
            raise ValueError(f"names none of the fields {', '.join(FIELDS)}")
        self._numbers: Dict[bytes, Optional[float]] = {}

    def _expression(self, text: str) -> str:
        begin = r"^.*" if text.startswith("...") else r"^"
        if text.startswith("...{"):
            raise ValueError("needs some text behind its dots")
        text = text[3:] if text.startswith("...") else text
        pieces, at = [begin], 0
        for place in _PLACE.finditer(text):
            pieces.append(re.escape(text[at : place.start()]))
            at = place.end()
            ends, name = text[at : at + 1], place.group(1)
            if ends == "{":
                raise ValueError("has two fields with nothing between them")
            if name and name not in FIELDS:
                raise ValueError(f"{name!r} is none of the fields {', '.join(FIELDS)}")
            if name in self.fields:
                raise ValueError(f"names {name} twice")
            most = "*" if ends == '"' else f"{{0,{_MOST}}}"
            inside = rf"[^{re.escape(ends)}\n]{most}"
            pieces.append(f"({inside})" if name else inside)
            self.fields += [name] if name else []
        return "".join([*pieces, re.escape(text[at:])])

    def counts(self, lines: bytes) -> Dict[str, int]:
        """What whole lines add to the counters, and how many of them are of another format."""
        matches = self._pattern.findall(lines)
        rows = matches if len(self.fields) > 1 else [(match,) for match in matches]
        columns = dict(zip(self.fields, map(Counter, zip(*rows))))
        counts: Dict[str, int] = {"log_unread_lines": lines.count(b"\n") - len(rows)}
        self._add_status(counts, columns.get("status"), len(rows))
        if "bytes" in columns:
            sizes = columns["bytes"].items()
            counts["response_bytes"] = sum(int(size) * n for size, n in sizes if size.isdigit())
            self._add_large(counts, rows)
        if "result" in columns:
            results = columns["result"]
            counts["http_broken"] = sum(n for result, n in results.items() if _is_left(result))
            # Of what went wrong it does not say where it came from.
            columns["cache"] = Counter({r: n for r, n in results.items() if r[:4] != b"ERR_"})
        if "cache" in columns:
            known = {result: n for result, n in columns["cache"].items() if result.strip(b"- ")}
            counts["cache_responses"] = sum(known.values())
            counts["cache_hits"] = sum(n for result, n in known.items() if _is_from_cache(result))
        if "ended" in columns:
            ends = columns["ended"].items()
            counts["http_broken"] = sum(n for end, n in ends if _is_broken(end))
        for name, histogram in TIMES.items():
            for unit, scale in IN_MS.items():
                if name + unit in columns:
                    self._add_times(counts, histogram, columns[name + unit], scale)
        return counts

    def none(self) -> Dict[str, int]:
        """The counters that its fields make, all 0."""
        counts = {**dict.fromkeys(OF_READING, 0), **self.counts(b"")}
        for field in self.fields:
            base = field.rpartition("_")[0] if field.endswith(("_ms", "_us")) else field
            counts.update(dict.fromkeys(COUNTERS.get(field) or [TIMES[base]], 0))
        return {**counts, **(dict.fromkeys(OF_LARGE, 0) if self._time_and_scale else {})}

    @property
    def _time_and_scale(self) -> Optional[Tuple[str, str]]:
        """The field of the whole time of an answer whose bytes are logged as well."""
        times = [("time" + unit, scale) for unit, scale in IN_MS.items()]
        logged = (time for time in times if time[0] in self.fields and "bytes" in self.fields)
        return next(logged, None)

    def _add_large(self, counts: Dict[str, int], rows: Sequence[Sequence[bytes]]) -> None:
        """The bytes and the time of large answers, which each line has of its answer alone."""
        if self._time_and_scale is None:
            return
        field, scale = self._time_and_scale
        size, time = self.fields.index("bytes"), self.fields.index(field)
        counts.update(dict.fromkeys(OF_LARGE, 0))
        for row in rows:
            if len(row[size]) >= LARGE_DIGITS and row[size].isdigit():
                taken = _in_ms(row[time], scale)
                if taken is not None:
                    counts["large_bytes"] += int(row[size])
                    counts["large_ms"] += round(taken)

    @staticmethod
    def _add_status(counts: Dict[str, int], column: "Optional[Counter[bytes]]", rows: int) -> None:
        if column is None:
            return
        known = {code: n for code, n in column.items() if len(code) == 3 and code.isdigit()}
        counts["http_responses"] = sum(known.values())
        for letter, name in ((b"4", "http_4xx"), (b"5", "http_5xx")):
            counts[name] = sum(n for code, n in known.items() if code.startswith(letter))

    def _add_times(
        self, counts: Dict[str, int], histogram: str, column: "Counter[bytes]", scale: str
    ) -> None:
        counts.setdefault(histogram, 0)
        for text, many in column.items():
            value = _in_ms(text, scale)
            if value is not None:
                name = bucket_name(histogram, bucket_of(value))
                counts[histogram] += many
                counts[name] = counts.get(name, 0) + many


def _in_ms(text: bytes, scale: str) -> Optional[float]:
    """None for what is no time: ``-``, or -1 of what never came; the first of several."""
    word = text.strip(b"+,")
    if not word[:1].isdigit():
        return None
    try:
        # As text: a product would lie beside the bound of a bucket.
        value = float(word.decode("ascii", "replace") + scale)
    except ValueError:
        return None
    return value if value < float("inf") else None


def _is_broken(word: bytes) -> bool:
    """nginx tells OK of what is complete, else nothing. HAProxy tells with the first letter that
    the client broke it off, or sent and took nothing any more."""
    return word in (b"", b"-") or word[:1] in (b"C", b"c")


def _is_left(word: bytes) -> bool:
    """Apache Traffic Server tells that the client was lost by ERR_CLIENT_, Squid by an ending."""
    return word.startswith(b"ERR_CLIENT_") or word.endswith(b"_ABORTED")


def _is_from_cache(word: bytes) -> bool:
    said = word.upper().split()[-1].decode("ascii", "replace")
    return "HIT" in said or said in _FROM_CACHE
