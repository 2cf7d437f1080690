# SPDX-License-Identifier: Apache-2.0
"""What an agent answers, verb by verb: the door through which every answer comes.

Behind it each field that a step reads has the type that is written here. What else an answer has
is kept, so an agent may tell more than its reader knows, in the bounds of ``hosts.readers``.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgetune import AGENT_PROTOCOL
from edgetune.agent.protocol import TUNING
from edgetune.agent.vocabulary import SYSTEMS
from edgetune.agent.vocabulary.buckets import BOUNDS
from edgetune.agent.vocabulary.prefixes import END, MEASURED
from edgetune.base.documents.diagnosis import HostFinding
from edgetune.base.documents.host import SocketsAnswer
from edgetune.base.documents.reading import taken
from edgetune.base.errors import HostError
from edgetune.base.sanitize import shortened
from edgetune.net.hosts.readers import (
    LONGEST_NAME,
    LONGEST_TEXT,
    MOST_ENTRIES,
    Reader,
    amount,
    flag,
    mapping,
    maybe,
    name,
    number,
    one_of,
    parse,
    record,
    remark,
    rows,
    text,
    whole,
    word,
)
from edgetune.net.result import ANOTHER_MACHINE, HostResult

_BYTES = {"facts": 1 << 20, "sample": 1 << 20, "ready": 1 << 16, "reboot": 1 << 16}
_MOST_BYTES = 4 << 20
# How the agent's answer begins.
_BEGIN = b'{"edgetune": '
_MOST_GREETING = 60
_REASONS = ("refused", "failed", "bad_request", "undone", ANOTHER_MACHINE)

_BOOT_ID = name(r"[!-~]{1,100}")
_ID = name(rf"[ -~]{{1,{LONGEST_NAME}}}")
_TUNING = name(TUNING)
_STATE = name(r"[a-z_]{1,40}")
_SERVICE = text(300)
_READING = name(r"[a-z][a-z0-9_]{0,39}")
_COUNTER = name(r"[a-z][a-z0-9_]{0,39}(:[0-9]{1,3})?")
_MOST_COUNTERS = 64 + 4 * len(BOUNDS)
_WORDS = text(LONGEST_NAME)
_CPUS = whole(1 << 16)
_LARGE = whole(1 << 60)

_ANY = text(LONGEST_TEXT)
_VALUE = maybe(one_of(dict, mapping(text(100), one_of(str, _WORDS, number), 100), _ANY))
_BOTH = {"runtime": _VALUE, "persistent": _VALUE}
_ROW = {"id": _ID, **_BOTH, "wanted": _VALUE, "reason": remark}
_DIFF = rows(record({"id": _ID, "before": record(_BOTH), "after": record(_BOTH)}))
_COUNTS = mapping(text(100), whole(1 << 31), 20)
_NIC = record(
    {
        "driver": maybe(text()),
        "up": flag,
        "speed": maybe(_LARGE),
        "numa_node": maybe(_CPUS),
        "local_cpus": maybe(_WORDS),
        "queues": record({"rx": _CPUS, "tx": _CPUS}),
        "channels": maybe(record({"max": _COUNTS, "current": _COUNTS})),
        "ring": maybe(record({"max": _COUNTS, "current": _COUNTS})),
        "ring_max": maybe(_COUNTS),
        "rss": maybe(record({"queues": _CPUS, "table_size": _CPUS})),
    }
)
_FACTS = {
    "hostname": text(),
    "system": word(*SYSTEMS),
    "machine": record({"uuid": text(), "serial": text()}),
    "os": record({"id": text(), "version": text()}),
    "kernel": text(),
    "python": text(),
    "uptime": maybe(amount),
    "unwritable": rows(text(LONGEST_NAME)),
    "cpus": record(
        {
            "online": _WORDS,
            "count": _CPUS,
            "vendor": maybe(text()),
            "model": maybe(text()),
            "nodes": mapping(name("[0-9]{1,5}"), _WORDS),
        }
    ),
    "memory": record(
        {
            "total_kb": maybe(_LARGE),
            "swap_kb": maybe(_LARGE),
            "nodes": mapping(name("[0-9]{1,5}"), maybe(_LARGE)),
            "smallest_node_kb": maybe(_LARGE),
        }
    ),
    "addresses": maybe(rows(record({"interface": text(), "address": text()}), most=MOST_ENTRIES)),
    "nics": mapping(name(r"[!-~]{1,15}"), _NIC),
    "thp": mapping(text(100), text()),
    "init": word("systemd", "sysv", "rc", "other"),
    "kexec_loaded": flag,
    "boot": record({"loader": text(), "default": text()}),
    "watchdog": record({"device": text(), "armed": flag}),
    "agent_state": record(
        {
            "epoch": whole(2**63 - 1),
            "ready": flag,
            "tunings": mapping(
                text(200), record({"state": _STATE, "digest": text(), "rollout": text(1_000)})
            ),
        }
    ),
}
_VERIFIED = {
    "verified": flag,
    "state": _STATE,
    "settings": rows(record({**_ROW, "ok": flag})),
    "services": mapping(_SERVICE, text()),
    "lost_connections": mapping(text(100), whole(1 << 16)),
}
_FINDING = record(
    {
        "finding": name(r"[a-z][a-z0-9_]{0,59}"),
        "severity": word("helps", "conflict", "note"),
        "what": remark,
        "measure": text(100, 1),
        "numbers": mapping(text(100, 1), number, 100),
        "tuning": maybe(_TUNING),
    }
)


def _finding(value: object, where: str) -> dict[str, object]:
    row = _FINDING(value, where)
    finding = taken(HostFinding, row)
    if finding.measure not in finding.numbers:
        raise HostError(f"{where}.measure: is none of its numbers")
    return row


_RESULTS: Mapping[str, Mapping[str, Reader[object]]] = {
    "facts": _FACTS,
    "plan": {"settings": rows(record({**_ROW, "status": word("change", "noop", "unsupported")}))},
    "ready": {"changed": flag, "ready": flag, "sessions": _LARGE},
    "sessions": {"sessions": _LARGE},
    "drain": {
        "withdrawn": name(r"(?!ready$)([a-z][a-z_]{0,39})?"),
        "up": flag,
        "leaving": flag,
        "refuses": remark,
        "sessions": maybe(_LARGE),
    },
    "apply": {"changed": flag, "diff": _DIFF, "restarted": rows(_SERVICE), "state": _STATE},
    "verify": {**_VERIFIED, "way_back": mapping(_ID, maybe(record(_BOTH)))},
    "confirm": {**_VERIFIED, "confirmed": flag},
    "restore": {
        "changed": flag,
        "diff": _DIFF,
        "restarted": rows(_SERVICE),
        "nothing_to_restore": flag,
    },
    "reboot": {"rebooting": flag},
    "textfile": {"missing": remark},
    "hand_over": {"files": mapping(_WORDS, _WORDS), "found": flag, "wrong": rows(remark)},
    "uninstall": {"files": rows(_WORDS), "left": rows(_WORDS), "tunings": rows(_WORDS)},
    "congestion": {
        "number": whole(2**53),
        "checksum": text(100),
        "prefixes": _CPUS,
        "seconds_left": amount,
        "kept": flag,
        "skipped": mapping(text(50), remark, MOST_ENTRIES),
    },
    "sockets": {
        "seen": _LARGE,
        "share": amount,
        "cpu_ms": amount,
        "columns": record(
            {
                "prefix": rows(whole(END), MOST_ENTRIES),
                MEASURED[0]: rows(amount, MOST_ENTRIES),
                **{name: rows(maybe(amount), MOST_ENTRIES) for name in MEASURED[1:]},
            }
        ),
    },
    "sample": {
        "uptime": amount,
        "counters": mapping(_COUNTER, maybe(amount), _MOST_COUNTERS),
        "gauges": mapping(_READING, maybe(amount), 64),
        "drift": rows(record({**_ROW, "tuning": _TUNING})),
        "health": remark,
        "log": remark,
    },
    "diagnose": {
        # It is there to say what cannot be read.
        "boot_id": text(100),
        "system": word(*SYSTEMS),
        "findings": rows(_finding),
        "unread": rows(remark),
        "tunings": mapping(text(200), _STATE),
    },
}
"""The fields of the ``result`` of each verb, beside its ``boot_id``."""


_ERROR = record({"reason": word(*_REASONS), "field": maybe(_ANY), "message": _ANY})


def longest(verb: str) -> int:
    """How many bytes an answer to a verb has at most."""
    return _BYTES.get(verb, _MOST_BYTES)


def read_answer(host: str, verb: str, request: Mapping[str, object], raw: bytes) -> HostResult:
    """What a host answered, or its error; HostError names the first field that is no answer."""
    before, begun, _ = raw.partition(_BEGIN)
    if begun and before.strip():
        greeting = shortened(before.decode("utf-8", "replace").strip(), _MOST_GREETING)
        raise HostError(
            f"{host} prints {greeting!r} before it: no start-up file of the login's shell "
            "(.bashrc, /etc/bash.bashrc, .cshrc) may print anything where the shell is not "
            "interactive"
        )
    reply = parse(raw)
    spoken = reply.get("edgetune") if isinstance(reply, dict) else None
    if spoken != AGENT_PROTOCOL or isinstance(spoken, bool):
        raise HostError(f"edgetune: it does not speak protocol {AGENT_PROTOCOL}")
    if reply.get("verb") != verb:
        raise HostError(f"verb: it is not the answer to {verb!r}")
    if reply.get("ok") is True and "result" in reply:
        return HostResult(host, data=read_result(verb, request, reply["result"]))
    if reply.get("ok") is not False or "error" not in reply:
        raise HostError("ok: it has neither a result nor an error")
    error = _ERROR(reply["error"], "error")
    parts = (str(error[name]) for name in ("field", "message") if error[name])
    return HostResult(host, error=": ".join(parts), reason=str(error["reason"]))


def read_result(verb: str, request: Mapping[str, object], result: object) -> dict[str, object]:
    """The result of a verb as every step may read it; HostError names the first wrong field."""
    fields: dict[str, Reader[object]] = {"boot_id": _BOOT_ID, **_RESULTS[verb]}
    read = record(fields)(result, "result")
    if verb in ("plan", "verify", "confirm"):
        _refuse_other_settings(_ids(request.get("settings")), _ids(read["settings"]))
    if verb == "sockets":
        columns = taken(SocketsAnswer, read).columns
        if len({len(column) for column in vars(columns).values()}) != 1:
            raise HostError("result.columns: are not of one length")
    if verb == "ready" and read["ready"] is not request.get("ready"):
        raise HostError("result.ready: is not what was asked for")
    return read


def _ids(settings: object) -> list[str]:
    return [str(row["id"]) for row in settings] if isinstance(settings, (list, tuple)) else []


def _refuse_other_settings(asked: list[str], ids: list[str]) -> None:
    """A setting without an answer is not one that is as wanted."""
    for id_ in ids:
        if id_ not in asked or ids.count(id_) > 1:
            raise HostError(f"result.settings: {id_} was not asked for, or is told twice")
    for id_ in asked:
        if id_ not in ids:
            raise HostError(f"result.settings: {id_} is missing")
