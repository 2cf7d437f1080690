# SPDX-License-Identifier: Apache-2.0
"""The congestion control of prefixes on this host: the last configuration, and who takes it back.

An applier carries it out (``appliers``). A process of ours, the keeper, sets it again when
something moved, such as the next hops of routes. It takes all of it back when nobody renewed it in
time. A boot takes all of it back, too.
"""

import contextlib
import fcntl
import json
import os
import time
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from edgetune.agent.appliers import APPLIERS, Configuration, Wanted, applier
from edgetune.agent.boot_hook import BootHook, agent_command
from edgetune.agent.host import Host
from edgetune.agent.journal import Deadline
from edgetune.agent.kinds.sysctl import Sysctl
from edgetune.agent.protocol import Failed, Json, Refused, Request, complaint
from edgetune.agent.readings import running_programs
from edgetune.agent.vocabulary.grammar import LINE
from edgetune.agent.vocabulary.places import CONGESTION, CONGESTION_EPOCH
from edgetune.agent.vocabulary.prefixes import number_of

KEEPER = "/run/edgetune-congestion.lock"
"""Locked by the keeper as long as it lives."""

REFRESH, SELDOM = 2.0, 30.0
"""Seconds between two looks at what may have moved, and at most after looks that failed."""

AVAILABLE = "/proc/sys/net/ipv4/tcp_available_congestion_control"
USUAL = "net/ipv4/tcp_congestion_control"
"""The sysctl of what connections begin with where nobody says anything else."""

TUNERS = ("bpftune",)
"""Programs that choose the congestion control of connections themselves, by their comm."""
SETTERS = {
    "tuned": "tuned, with the profile of /etc/tuned/active_profile",
    "cilium-agent": "Cilium, by the option enable-bbr of its bandwidth manager",
}
"""Programs that may have set USUAL, in no file of sysctl.d."""


class Standing(NamedTuple):
    """A configuration that stands until its deadline."""

    configuration: Configuration
    deadline: Deadline


class Congestion:
    """What stands here, in a file that is written before the first prefix is treated."""

    def __init__(self, host: Host) -> None:
        self._host = host
        # What the keeper has seen to, and the state of its applier then.
        self._seen: Tuple[Optional[Configuration], str] = (None, "")

    def load(self) -> Optional[Standing]:
        """The last configuration; None without one, Failed if the file makes no sense."""
        try:
            data = json.loads(self._host.kept(CONGESTION)[0].decode())
            fields = data["configuration"]
            prefixes = [Wanted(each["prefix"], each["initcwnd"]) for each in fields["prefixes"]]
            made = Configuration(**dict(fields, prefixes=prefixes))
            if made.applier not in APPLIERS:
                raise ValueError(made.applier)
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
        """Let it stand from now on; why prefixes of it are not treated, by prefix.

        One without prefixes takes everything back.
        """
        if not configuration.prefixes:
            self._take_back()
            return {}
        before = self.settle()
        new = applier(self._host, configuration.applier)
        was = before.configuration.applier if before is not None else ""
        if was != new.name:
            new.refuse_strangers()
            if was:
                # First, since the file is to tell of all that stands.
                applier(self._host, was).flush()
        deadline = Deadline(self._host.boot_id, time.monotonic() + configuration.ttl)
        self._save(Standing(configuration, deadline))
        try:
            BootHook(self._host).sync()
            skipped = new.set(configuration)
            self._start_keeper()
        except Exception as error:
            # Nothing stays that nobody keeps: what stood before goes on, if it stood.
            try:
                if before is None:
                    self._take_back()
                else:
                    self._save(before)
                    applier(self._host, before.configuration.applier).set(before.configuration)
            except Exception as other:
                text = (
                    f"{complaint(error)}; nor did what stood before come back: {complaint(other)}"
                )
                raise Failed(text) from None
            raise
        return skipped

    def _take_back(self) -> None:
        """Take everything back, now or as soon as that is possible."""
        with contextlib.suppress(Failed):
            standing = self.load()
            if standing is not None:
                # Else the keeper would set again what could not be taken back.
                self._save(standing._replace(deadline=Deadline(self._host.boot_id, 0.0)))
        try:
            self.end()
        except Exception:
            with contextlib.suppress(Exception):
                self._start_keeper()
            raise

    def end(self) -> None:
        """Take everything back; the file last: without it nobody would look for the rest."""
        try:
            standing = self.load()
            if standing is None:
                return
            names = [standing.configuration.applier]
        except Failed:
            # It does not tell which one.
            names = [*APPLIERS]
        for name in names:
            applier(self._host, name).flush()
        self._host.remove(CONGESTION)
        BootHook(self._host).sync()

    def settle(self) -> Optional[Standing]:
        """What stands and has time left; nothing is left of what is damaged, of another boot, or
        was not renewed."""
        try:
            standing = self.load()
        except Failed:
            standing = None
        if standing is not None and self.seconds_left(standing):
            return standing
        self.end()
        return None

    def _save(self, standing: Standing) -> None:
        body = dict(standing.configuration._asdict())
        body["prefixes"] = [dict(each._asdict()) for each in standing.configuration.prefixes]
        self._host.make_directory(os.path.dirname(CONGESTION), 0o700)
        text = json.dumps({"configuration": body, "deadline": list(standing.deadline)})
        self._host.write(CONGESTION, text.encode() + b"\n", 0o600)

    def keep(self) -> float:
        """One look of the keeper; seconds until the next one, 0 when there is nothing to keep."""
        with self._host.lock(60.0):
            standing = self.settle()
            if standing is None:
                return 0.0
            configuration = standing.configuration
            current = applier(self._host, configuration.applier)
            # Read before: what changes meanwhile is seen next time.
            seen = configuration, current.state()
            if self._seen != seen:
                current.set(configuration)
                self._seen = seen
            if not self._host.exists(CONGESTION):
                # A person removed it, and all that was ours, before we set ours.
                current.flush()
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
                raise Failed("the process that keeps it did not start")
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

    What fails is tried again, after ever longer pauses: nobody else does it.
    """
    keeper = Congestion(host)
    # A request that came while we were about to end took us for its keeper.
    while _keep(keeper) and host.exists(CONGESTION):
        pass


def _keep(keeper: Congestion) -> bool:
    """Until there is nothing to keep; False where another keeper runs."""
    pause, failures = REFRESH, 0
    with keeper.kept() as alone:
        while alone and pause:
            try:
                pause, failures = keeper.keep(), 0
            except Exception as error:
                print(f"edgetune: {complaint(error)}", flush=True)
                pause, failures = min(REFRESH * 2**failures, SELDOM), failures + 1
            time.sleep(pause)
    return alone


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
    running = running_programs(host)
    for name in TUNERS:
        if name in running:
            process = running[name]
            raise Refused(f"{name} (process {process}) chooses the congestion control here")
    if host.text(f"/proc/sys/{USUAL}") == configuration.algorithm:
        why = f"every connection begins with {configuration.algorithm} here, held out or not"
        raise Refused(f"{why}{_who_set(host, configuration.algorithm, running)}")
    applier(host, configuration.applier).probe(configuration)


def _who_set(host: Host, algorithm: str, running: Mapping[str, str]) -> str:
    """What may have set USUAL so: the file of sysctl.d that counts, and programs that run."""
    winner = Sysctl(host).winner(USUAL)
    found = [winner.file] if winner and winner.value == algorithm else []
    found += [what for name, what in SETTERS.items() if name in running]
    return f": {' and '.join(found)}" if found else ""


def describe(host: Host) -> Json:
    """What stands here now."""
    here = Congestion(host)
    standing = here.load()
    configuration = standing.configuration if standing else None
    return {
        "number": configuration.number if configuration else 0,
        "checksum": configuration.checksum if configuration else "",
        "prefixes": len(configuration.prefixes) if configuration else 0,
        "seconds_left": round(here.seconds_left(standing), 1) if standing else 0.0,
        "kept": here.is_kept,
    }


MOST_PREFIXES = 2000


def congestion(host: Host, request: Request) -> Json:
    """Let a ``configuration`` stand for its ``ttl`` seconds; one without prefixes takes all back.

    Telling the same one again renews it. ``skipped`` says why prefixes are not treated.
    Refused for a number below the one that stands. ``epoch`` is that of the claim on the PoP's
    congestion control, and not that of a rollout: neither keeps the other from the host. Taking all
    back needs no number: who has lost the count has to be able to.
    """
    epoch = request.epoch()
    configuration = _configuration_of(request.inside("configuration"))
    request.done()
    refuse_unfit(host, configuration)
    with host.lock():
        host.fence(epoch, CONGESTION_EPOCH)
        here = Congestion(host)
        standing = here.load()
        if configuration.prefixes and standing and here.seconds_left(standing):
            before = standing.configuration
            same = before.checksum == configuration.checksum
            if configuration.number < before.number or (
                configuration.number == before.number and not same
            ):
                raise Refused(f"configuration {before.number} of {before.pop} stands here")
        skipped = here.put(configuration)
        return dict(describe(host), skipped=skipped)


def _configuration_of(fields: Request) -> Configuration:
    prefixes: List[Wanted] = []
    for each in fields.each("prefixes"):
        prefix = each.text("prefix", LINE)
        try:
            number_of(prefix)
        except ValueError as error:
            raise each.wrong("prefix", str(error)) from None
        prefixes.append(Wanted(prefix, each.whole("initcwnd", 0, 100)))
        each.done()
    if len(prefixes) > MOST_PREFIXES or len({each.prefix for each in prefixes}) < len(prefixes):
        raise fields.wrong("prefixes", f"has one twice, or more than {MOST_PREFIXES}")
    made = Configuration(
        pop=fields.text("pop", LINE),
        number=fields.whole("number", 1, 2**53),
        algorithm=fields.text("algorithm", "[a-z][a-z0-9_-]{0,14}"),
        ttl=fields.whole("ttl", 1, 86400),
        prefixes=prefixes,
        applier=fields.text("applier", "|".join(APPLIERS)),
        checksum=fields.text("checksum", LINE),
    )
    fields.done()
    return made
