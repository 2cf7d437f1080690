# SPDX-License-Identifier: Apache-2.0
"""What answers on loopback as Prometheus does, or as a test wants it to answer wrong."""

from __future__ import annotations

import json
import math
import re
import ssl
import threading
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable
from urllib.parse import parse_qs

from edgetune.base import clock

Labels = Mapping[str, str]
_SELECTOR = re.compile(r"\{(.*)\}\[(\d+)s\]", re.DOTALL)
_STEPS = re.compile(
    r"(?:sum without \((.*?)\) |timestamp|max\(timestamp)?\(?\{(.*?)\}\)*", re.DOTALL
)
_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)("(?:[^"\\]|\\.)*")')


@dataclass
class Reply:
    """Of one request; ``body`` is written as it is, and ``length`` told instead of its own."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    length: int | None = None
    pause: Callable[[], object] = lambda: None


def matrix(rows: Sequence[tuple[Labels, Sequence[tuple[float, float]]]], **more: Any) -> Reply:
    """The answer of a query with a range selector."""
    result = [
        {"metric": labels, "values": [[time, f"{value:.17g}"] for time, value in pairs]}
        for labels, pairs in rows
    ]
    data = {"resultType": "matrix", "result": result}
    return Reply(json.dumps({"status": "success", "data": data, **more}).encode())


class Api:
    """One server; ``answer`` makes the reply to the parameters of a request."""

    def __init__(self) -> None:
        self.answer: Callable[[Mapping[str, str]], Reply] = lambda asked: matrix([])
        self.asked: list[Mapping[str, str]] = []
        self.headers: list[Mapping[str, str]] = []
        self.lines: list[str] = []
        """The method of each request, and what it asks for."""
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                api.lines.append(f"{self.command} {self.path}")
                text = self.rfile.read(int(self.headers["Content-Length"])).decode()
                as_json = self.headers.get("Content-Type", "") == "application/json"
                told = {name: values[0] for name, values in parse_qs(text).items()}
                self._answer(json.loads(text) if as_json else told)

            def do_GET(self) -> None:
                api.lines.append(f"{self.command} {self.path}")
                self.path, _, text = self.path.partition("?")
                told = {name: ",".join(own) for name, own in parse_qs(text).items()}
                self._answer({**told, "path": self.path})

            do_DELETE, do_PUT = do_GET, do_POST

            def _answer(self, asked: Mapping[str, str]) -> None:
                api.asked.append({**asked, "path": self.path})
                api.headers.append(dict(self.headers))
                reply = api.answer(asked)
                self.send_response_only(reply.status)
                if "Date" not in reply.headers:
                    self.send_header("Date", self.date_time_string(clock.wall()))
                told = len(reply.body) if reply.length is None else reply.length
                for name, value in {**reply.headers, "Content-Length": str(told)}.items():
                    self.send_header(name, value)
                self.end_headers()
                reply.pause()
                with suppress(ConnectionError):  # the client may have enough of it
                    self.wfile.write(reply.body)

            def log_message(self, *_: object) -> None: ...

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """A client that refuses the certificate is one of the tests."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def secure(self, context: ssl.SSLContext) -> None:
        """Speak TLS from now on."""
        self.server.socket = context.wrap_socket(
            self.server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.url = self.url.replace("http:", "https:")

    def begin(self) -> None:
        threading.Thread(target=self.server.serve_forever, args=[0.02], daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@contextmanager
def api() -> Iterator[Api]:
    made = Api()
    made.begin()
    try:
        yield made
    finally:
        made.close()


class Database:
    """Series that are asked for by selectors; Prometheus 3 leaves the first moment out."""

    def __init__(self, version: int = 2) -> None:
        self.series: list[tuple[Labels, list[tuple[float, float]]]] = []
        self._version = version
        self.hides_after = 0.0
        """From when on sums are hidden, as VictoriaMetrics does with the newest 30 s."""

    def add(self, name: str, pairs: Sequence[tuple[float, float]], **labels: str) -> None:
        self.series.append(({"__name__": name, **labels}, [*pairs]))

    def answer(self, asked: Mapping[str, str]) -> Reply:
        if "step" in asked:
            steps = _STEPS.fullmatch(asked["query"])
            assert steps, asked["query"]
            return self._steps((steps[1] or "").split(","), steps[2], asked)
        selected = _SELECTOR.fullmatch(asked["query"])
        assert selected, asked["query"]
        end = float(asked["time"])
        begin = end - int(selected[2])
        found = []
        for labels, pairs in self._selected(selected[1]):
            inside = [
                (time, value)
                for time, value in pairs
                if begin <= time <= end and (time > begin or self._version < 3)
            ]
            found += [(labels, inside)] if inside else []
        return matrix(found)

    def _selected(self, text: str) -> list[tuple[Labels, list[tuple[float, float]]]]:
        matchers = [(label, how, json.loads(value)) for label, how, value in _MATCHER.findall(text)]
        return [
            (labels, pairs)
            for labels, pairs in self.series
            if all(_matches(labels.get(label, ""), *rest) for label, *rest in matchers)
        ]

    def _steps(self, without: Sequence[str], text: str, asked: Mapping[str, str]) -> Reply:
        """Series, a sum of these or the time of a scrape, for as long as five minutes after it."""
        dates, is_max = "timestamp(" in asked["query"], asked["query"].startswith("max(")
        dropped = (*without, *([] if asked["query"].startswith("{") else ["__name__"]))
        start, end, step = (float(asked[name]) for name in ("start", "end", "step"))
        times = [start + step * number for number in range(int((end - start) / step + 1e-6) + 1)]
        sums: dict[frozenset[tuple[str, str]], dict[float, float]] = {}
        for labels, pairs in self._selected(text):
            rest = {label: v for label, v in labels.items() if label not in dropped}
            own = sums.setdefault(frozenset(() if is_max else rest.items()), {})
            for time in times:
                hidden = max(0.0, time - (self.hides_after or time))
                last = bisect_right(pairs, (time - hidden + 1e-9, math.inf)) - 1
                if last >= 0 and time - pairs[last][0] <= 300:
                    before = own.get(time, 0.0)
                    own[time] = max(pairs[last][0], before) if dates else before + pairs[last][1]
        return matrix([(dict(labels), [*own.items()]) for labels, own in sums.items()])


def _matches(value: str, how: str, wanted: str) -> bool:
    same = bool(re.fullmatch(wanted, value)) if "~" in how else value == wanted
    return same == how.startswith("=")
