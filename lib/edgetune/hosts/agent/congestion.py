# SPDX-License-Identifier: Apache-2.0
"""The congestion control of prefixes on this host: what was last told, and who takes it back.

A process of ours, the keeper, moves the next hops of our routes as those of the main table move. It
takes all of it back when nobody renewed it in time. A boot takes all of it back, too: the kernel
has no such routes then.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import time
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from edgetune.hosts.agent.boot_hook import BootHook, agent_command
from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.journal import Deadline
from edgetune.hosts.agent.prefix_routes import (
    Wanted,
    flush_routes,
    has_routes,
    set_routes,
    table_text,
)
from edgetune.hosts.agent.protocol import Failed, Json, Refused, complaint
from edgetune.vocabulary.places import CONGESTION

KEEPER = "/run/edgetune-congestion.lock"
"""Locked by the keeper as long as it lives."""

REFRESH = 2.0
"""Seconds between two looks at the main table."""

AVAILABLE = "/proc/sys/net/ipv4/tcp_available_congestion_control"
TUNERS = ("bpftune",)
"""Programs that choose the congestion control of connections themselves."""


class Configuration(NamedTuple):
    """As it is sent (``documents.congestion.Configuration``)."""

    pop: str
    number: int
    algorithm: str
    ttl: int
    prefixes: List[Wanted]
    checksum: str

    @property
    def sum(self) -> str:
        """The checksum that it should have."""
        body = dict(self._asdict(), prefixes=[dict(own._asdict()) for own in self.prefixes])
        del body["checksum"]
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return "sha256:" + hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


class Standing(NamedTuple):
    """A configuration that stands until its deadline."""

    configuration: Configuration
    deadline: Deadline


class Congestion:
    """What stands here, in a file that is written before the first route."""

    def __init__(self, host: Host) -> None:
        self._host = host
        # What the keeper has seen to, and the main table as it was then.
        self._seen: Tuple[Optional[Configuration], str] = (None, "")

    def load(self) -> Optional[Standing]:
        """What was told last; None if nothing, Failed if the file makes no sense."""
        try:
            data = json.loads(self._host.kept(CONGESTION)[0].decode())
            own = data["configuration"]
            prefixes = [Wanted(each["prefix"], each["initcwnd"]) for each in own["prefixes"]]
            made = Configuration(**dict(own, prefixes=prefixes))
            return Standing(made, Deadline(*data["deadline"]))
        except FileNotFoundError:
            return None
        except (OSError, Refused, ValueError, KeyError, TypeError) as error:
            raise Failed(f"{CONGESTION} is damaged: {complaint(error)}") from None

    def seconds_left(self, standing: Standing) -> float:
        """Until it is taken back; 0 in another boot."""
        if standing.deadline.boot_id != self._host.boot_id:
            return 0.0
        return max(0.0, standing.deadline.monotonic - time.monotonic())

    def put(self, configuration: Configuration) -> Dict[str, str]:
        """Let it stand from now on; why prefixes of it have no route, by prefix.

        One without prefixes takes everything back.
        """
        if not configuration.prefixes:
            self.end()
            return {}
        before = self._settled()
        if before is None and has_routes(self._host):
            raise Refused("somebody else has routes of our protocol, and would lose them")
        deadline = Deadline(self._host.boot_id, time.monotonic() + configuration.ttl)
        self._save(Standing(configuration, deadline))
        try:
            BootHook(self._host).sync()
            skipped = set_routes(self._host, configuration.algorithm, configuration.prefixes)
            self._start_keeper()
        except Exception:
            # Nothing stays that nobody keeps: what stood before goes on, if it stood.
            self._fall_back(before)
            raise
        return skipped

    def end(self) -> None:
        """Take everything back; the routes first: without the file nobody would look for them."""
        if self._host.exists(CONGESTION):
            flush_routes(self._host)
            self._host.remove(CONGESTION)
            BootHook(self._host).sync()

    def _settled(self) -> Optional[Standing]:
        """What stands and has time left; nothing is left of what is damaged, or was not renewed."""
        try:
            standing = self.load()
        except Failed:
            standing = None
        if standing is not None and self.seconds_left(standing):
            return standing
        self.end()
        return None

    def _save(self, standing: Standing) -> None:
        own = dict(standing.configuration._asdict())
        own["prefixes"] = [dict(each._asdict()) for each in standing.configuration.prefixes]
        self._host.make_directory(os.path.dirname(CONGESTION), 0o700)
        text = json.dumps({"configuration": own, "deadline": list(standing.deadline)})
        self._host.write(CONGESTION, text.encode() + b"\n", 0o600)

    def _fall_back(self, before: Optional[Standing]) -> None:
        if before is None:
            self.end()
            return
        self._save(before)
        set_routes(self._host, before.configuration.algorithm, before.configuration.prefixes)

    def keep(self) -> float:
        """One look of the keeper; seconds until the next one, 0 when there is nothing to keep."""
        with self._host.lock(60.0):
            standing = self._settled()
            if standing is None:
                return 0.0
            own = standing.configuration
            # Read before: what changes meanwhile is seen next time.
            seen = own, table_text(self._host)
            if self._seen != seen:
                set_routes(self._host, own.algorithm, own.prefixes)
                self._seen = seen
            if not self._host.exists(CONGESTION):
                # A person removed it, and all routes, before we set ours.
                flush_routes(self._host)
                return 0.0
            return min(self.seconds_left(standing), REFRESH) or REFRESH

    @property
    def is_kept(self) -> bool:
        """Whether the keeper lives."""
        with self._locked() as locked:
            return not locked

    def _start_keeper(self) -> None:
        """Unless it runs already; Failed if it does not begin."""
        if self.is_kept:
            return
        command = agent_command(self._host.path("/").rstrip("/"), "keep-congestion")
        if self._host.init == "systemd":
            self._host.attempt("systemctl", "reset-failed", "edgetune-congestion.service")
            unit = ["--no-block", "--unit=edgetune-congestion", "--property=Restart=on-failure"]
            self._host.run("systemd-run", *unit, "--", *command)
        else:
            self._host.detach(command)
        end = time.monotonic() + 10
        while not self.is_kept:
            if time.monotonic() > end:
                raise Failed("the process that keeps the routes did not start")
            time.sleep(0.05)

    @contextlib.contextmanager
    def kept(self) -> Iterator[bool]:
        """Be the keeper meanwhile, unless there is one; ``is_kept`` has the lock for a moment."""
        end = time.monotonic() + 1.0
        while True:
            with self._locked() as locked:
                if locked or time.monotonic() > end:
                    yield locked
                    return
            time.sleep(0.02)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[bool]:
        """Whether the keeper's lock is ours meanwhile."""
        self._host.make_directory(os.path.dirname(KEEPER))
        with self._host.directory(os.path.dirname(KEEPER)) as directory:
            descriptor = directory.open(os.path.basename(KEEPER), os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield True
        except BlockingIOError:
            yield False
        finally:
            os.close(descriptor)


def keep_congestion(host: Host) -> None:
    """Be the keeper until there is nothing to keep; another one that runs stays the only one.

    What fails is tried again: nobody else moves the next hops.
    """
    own, pause = Congestion(host), REFRESH
    with own.kept() as alone:
        while alone and pause:
            try:
                pause = own.keep()
            except Exception as error:
                print(f"edgetune: {complaint(error)}", flush=True)
                pause = REFRESH
            time.sleep(pause)


def refuse_unfit(host: Host, configuration: Configuration) -> None:
    """Refused for a host that cannot do it, or on which another program does the same."""
    if configuration.checksum != configuration.sum:
        raise Refused("the checksum is not that of the configuration")
    if not configuration.prefixes:
        return
    offered = host.text(AVAILABLE).split()
    if configuration.algorithm not in offered:
        module = f"; load the module tcp_{configuration.algorithm}"
        raise Refused(f"{AVAILABLE} has no {configuration.algorithm}{module}")
    for process in host.names("/proc"):
        if process.isdigit() and host.text(f"/proc/{process}/comm") in TUNERS:
            name = host.text(f"/proc/{process}/comm")
            raise Refused(f"{name} (process {process}) chooses the congestion control here")


def describe(host: Host) -> Json:
    """What stands here now."""
    own = Congestion(host)
    standing = own.load()
    told = standing.configuration if standing else None
    return {
        "number": told.number if told else 0,
        "checksum": told.checksum if told else "",
        "prefixes": len(told.prefixes) if told else 0,
        "seconds_left": round(own.seconds_left(standing), 1) if standing else 0.0,
        "kept": own.is_kept,
    }
