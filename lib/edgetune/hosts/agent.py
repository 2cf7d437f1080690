# SPDX-License-Identifier: Apache-2.0
"""The host agent: reads and changes the settings of the one host it runs on, and takes them back.

It is sent over SSH together with a JSON request, and answers with one JSON document::

    {"edgetune": 1, "verb": "plan", "ok": true, "result": {...}}
    {"edgetune": 1, "verb": "plan", "ok": false, "error": {"reason", "field", "message"}}

``reason`` is ``bad_request`` (nothing was touched), ``refused`` (a precondition does not hold,
nothing was touched) or ``failed`` (it was tried, and undone). Its copy on the host's disk stays
as long as a tuning stands. It runs as ``agent.py boot`` at each boot, as ``agent.py revert
TUNING``, which takes an unconfirmed change back at its deadline, and by a person at the host's
console, when no controller can be had, as ``agent.py restore TUNING``. Every path is below
``EDGETUNE_ROOT`` (default ``/``); below another root no program is run but those in
ROOT/usr/local/sbin.

Standard library only, Python 3.6 or newer, hence no ``from __future__ import annotations``.
"""

import base64
import contextlib
import errno
import fcntl
import fnmatch
import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple, Type, Union

PROTOCOL = 1
JOURNAL_VERSION = 1
STATE = "/var/lib/edgetune"
EPOCH = STATE + "/epoch"
NOT_READY = "/var/lib/edgetune-not-ready"
# Of include/net/tcp_states.h: established, FIN sent, and closed by the other side only.
OPEN_STATES = ("01", "04", "08")
# How 127.0.0.1 (also inside IPv6) and ::1 end in /proc/net/tcp on a little-endian host.
LOOPBACK = ("0100007F", "00000000000000000000000001000000")
RESERVE = STATE + "/reserve"
RESERVE_BYTES = 256 * 1024
LOCK = "/run/edgetune.lock"
REBOOT_MARK = "/run/edgetune-reboot"
PROGRAMS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

LOCK_WAIT = 10.0
COMMAND_TIMEOUT = 60.0
RESTART_WAIT = 30.0
START_WAIT = 10.0
BOOT_WAIT = 10.0
REVERT_AGAIN = 5.0
HEALTH_TIMEOUT = 2.0
REBOOT_AGAIN = 60.0

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
# What changes the host itself, not by asking a server of its: see Host.attempt.
CHANGES_ITSELF = ("ethtool",)

Json = Dict[str, Any]
Target = Dict[str, str]
Parts = Dict[str, Union[int, str]]
Value = Union[str, Parts]


# ---------------------------------------------------------------------------------------------
# Protocol: requests and errors


class AgentError(Exception):
    """Why a request was not carried out; its text is one line."""

    reason = "failed"
    field: Optional[str] = None


class BadRequest(AgentError):
    """The request itself is wrong; ``field`` is the path of the wrong part."""

    reason = "bad_request"

    def __init__(self, field: Optional[str], message: str) -> None:
        super().__init__(message)
        self.field = field


class Refused(AgentError):
    """A precondition does not hold; nothing was touched."""

    reason = "refused"


class Failed(AgentError):
    """Something did not work; what was done has been undone, or the message says otherwise."""


class Unsupported(Exception):
    """This host cannot do a setting; the text says why."""


class Fields:
    """An object of a request, read field by field; BadRequest names what is wrong."""

    def __init__(self, data: Any, path: str = "") -> None:
        if not isinstance(data, dict):
            raise BadRequest(path or None, "must be an object")
        self._data: Json = data
        self._path = path
        self._known: Set[str] = set()

    def path(self, name: str) -> str:
        """Where a field stands in the request, such as ``settings[1].target.key``."""
        return f"{self._path}.{name}" if self._path else name

    def wrong(self, name: str, message: str) -> BadRequest:
        """An error about one field, to be raised."""
        return BadRequest(self.path(name), message)

    def raw(self, name: str) -> Any:
        """The value of any type; None when it is absent."""
        self._known.add(name)
        return self._data.get(name)

    def text(self, name: str, pattern: str) -> str:
        """A string that matches the whole pattern."""
        value = self.raw(name)
        if not isinstance(value, str):
            raise self.wrong(name, "must be a string")
        if not re.fullmatch(pattern, value):
            raise self.wrong(name, f"does not match {pattern}")
        return value

    def optional(self, name: str, pattern: str) -> Optional[str]:
        """The same, or None."""
        return None if self.raw(name) is None else self.text(name, pattern)

    def whole(self, name: str, low: int, high: int, default: Optional[int] = None) -> int:
        """An integer within inclusive bounds."""
        value = self.raw(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(name, f"must be a whole number from {low} to {high}")
        return value

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self.raw(name)
        if not isinstance(value, bool):
            raise self.wrong(name, "must be true or false")
        return value

    def wholes(self, name: str, low: int, high: int) -> List[int]:
        """A list of integers within inclusive bounds; empty when it is absent."""
        values = self.raw(name)
        if values is None:
            return []
        if not isinstance(values, list):
            raise self.wrong(name, "must be a list")
        inside = Fields({f"{name}[{i}]": value for i, value in enumerate(values)}, self._path)
        return [inside.whole(f"{name}[{i}]", low, high) for i in range(len(values))]

    def texts(self, name: str) -> Optional[List[str]]:
        """A list of strings, or None."""
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.wrong(name, "must be a list")
        for index, item in enumerate(value):
            if not isinstance(item, str):
                raise self.wrong(f"{name}[{index}]", "must be a string")
        return value

    def seconds(self, name: str) -> float:
        """A duration of at most a day; 0 when it is absent."""
        value = self.raw(name)
        if value is None:
            return 0.0
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.wrong(name, "must be a number of seconds")
        if not 0 <= value <= 86400:
            raise self.wrong(name, "must be from 0 to 86400 s")
        return float(value)

    def inside(self, name: str) -> "Fields":
        """The object below a field."""
        return Fields(self.raw(name), self.path(name))

    def each(self, name: str) -> List["Fields"]:
        """The objects of a list."""
        value = self.raw(name)
        if not isinstance(value, list):
            raise self.wrong(name, "must be a list")
        return [Fields(item, self.path(f"{name}[{i}]")) for i, item in enumerate(value)]

    def names(self) -> List[str]:
        """The names of all fields there are."""
        return list(self._data)

    def done(self) -> None:
        """Complain about a field that nobody asked for."""
        for name in self._data:
            if name not in self._known:
                raise self.wrong(name, "is not known here")


TUNING = r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}"
DIGEST = r"[A-Za-z0-9:_-]{1,200}"
SERVICE = r"[A-Za-z0-9][A-Za-z0-9@:._-]{0,199}"
LINE = r"[ -~\t]{1,1000}"


class Setting:
    """One thing a tuning sets on this host."""

    def __init__(
        self, kind: str, target: Target, value: Value, only: Optional[str], restart: Optional[str]
    ) -> None:
        self.kind = kind
        self.target = target
        self.value = value
        self.only = only
        self.restart = restart

    @property
    def id(self) -> str:
        """Names it on a host, such as ``nic.rps:eth0``."""
        names = KINDS[self.kind].target
        return f"{self.kind}:" + ".".join(self.target[name] for name in names)


def read_settings(request: Fields) -> List[Setting]:
    """The settings of a request, each checked by its kind."""
    settings: List[Setting] = []
    for fields in request.each("settings"):
        setting = _read_setting(fields)
        if setting.id in [other.id for other in settings]:
            raise fields.wrong("id", "is set twice")
        settings.append(setting)
    if not settings:
        raise request.wrong("settings", "is empty")
    return settings


def _read_setting(fields: Fields) -> Setting:
    name = fields.text("kind", ".*")
    if name not in KINDS:
        raise fields.wrong("kind", "is not known; known: " + ", ".join(KINDS))
    kind = KINDS[name]
    below = fields.inside("target")
    target = {field: below.text(field, pattern) for field, pattern in kind.target.items()}
    below.done()
    only = fields.optional("only", "raise|lower")
    if only and not kind.ordered:
        raise fields.wrong("only", f"has no meaning for {name}")
    value = kind.check_value(fields)
    setting = Setting(name, target, value, only, fields.optional("restart", SERVICE))
    if fields.text("id", ".*") != setting.id:
        raise fields.wrong("id", f"is not {setting.id}")
    if only:
        _check_numbers(fields, value)
    fields.done()
    return setting


def _check_numbers(fields: Fields, value: Value) -> None:
    try:
        bounded("raise", value, value)
    except ValueError:
        raise fields.wrong("only", "needs a value made of numbers") from None


# ---------------------------------------------------------------------------------------------
# The host: its files and its programs


class Host:
    """This host, below one root directory."""

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)
        self.journals = Journals(self)
        self.hook = BootHook(self)
        self._locked: Sequence[int] = ()
        self.kinds: Dict[str, Kind] = {name: kind(self) for name, kind in KINDS.items()}

    def path(self, name: str) -> str:
        """Where the absolute path ``name`` of the host really is."""
        return name if self.root == "/" else self.root + name

    def real(self, name: str) -> str:
        """The same behind all links; PermissionError when they lead out of a private root."""
        path = os.path.realpath(self.path(name))
        if self.root != "/" and not path.startswith(self.root + "/"):
            raise PermissionError(errno.EPERM, "lies outside of the root", name)
        return path

    def exists(self, name: str) -> bool:
        """Whether there is anything at ``name``, also a dangling link."""
        return os.path.lexists(self.path(name))

    def names(self, directory: str) -> List[str]:
        """What a directory holds, sorted; nothing when it cannot be read."""
        try:
            return sorted(os.listdir(self.path(directory)))
        except OSError:
            return []

    def read(self, name: str) -> bytes:
        """The content of a file; OSError as it comes."""
        with open(self.real(name), "rb") as file:
            return file.read()

    def text(self, name: str, default: str = "") -> str:
        """The content of a file without white space around it; ``default`` if it has none."""
        try:
            return self.read(name).decode("utf-8", "replace").strip() or default
        except OSError:
            return default

    def poke(self, name: str, text: str) -> None:
        """Write into a file of the kernel, which must be there; OSError as it comes."""
        descriptor = os.open(self.real(name), os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def write(self, name: str, data: bytes, mode: int = 0o644, owner: Sequence[int] = ()) -> None:
        """Replace a file in one step, and durably; its directory must be there.

        On a full disk it is made of the room that ``reserve`` kept, and new room is kept if
        there is any.
        """
        try:
            self.replace(name, data, mode, owner)
        except OSError as error:
            if error.errno not in NO_ROOM or not self.exists(RESERVE):
                raise
            self.replace(name, data, mode, owner, RESERVE)
            with contextlib.suppress(OSError):
                self.reserve()

    def replace(
        self,
        name: str,
        data: bytes,
        mode: int = 0o644,
        owner: Sequence[int] = (),
        room: Optional[str] = None,
    ) -> None:
        """The same without the reserve; ``room`` is a file that is used up for it."""
        path = self.path(name)
        draft = _draft(path)
        self.remove(name, only_draft=True)
        if room:
            # Not removed first: whoever filled the disk would take what that frees. On another
            # file system than the reserve's that cannot help.
            with contextlib.suppress(OSError):
                os.rename(self.path(room), draft)
        try:
            _fill(draft, data, mode, owner)
        except OSError:
            self.remove(name, only_draft=True)
            raise
        os.rename(draft, path)
        _sync_directory(os.path.dirname(path))

    def holds(self, name: str, data: bytes) -> bool:
        """Whether a file is there with this very content."""
        try:
            return self.read(name) == data
        except OSError:
            return False

    def reserve(self) -> None:
        """Keep room for what is written when a change is taken back: the disk may be full then."""
        self.make_directory(STATE, 0o700)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self.path(RESERVE), flags, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
        finally:
            os.close(descriptor)

    def remove(self, name: str, only_draft: bool = False) -> None:
        """Remove a file, and what a killed ``write`` left of it."""
        path = self.path(name)
        for victim in [_draft(path)] if only_draft else [_draft(path), path]:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(victim)
                _sync_directory(os.path.dirname(path))

    def missing(self, directory: str) -> List[str]:
        """Which directories have to be made for this one to be there, outermost first."""
        levels = [directory]
        while os.path.dirname(levels[0]) != "/":
            levels.insert(0, os.path.dirname(levels[0]))
        return [level for level in levels if not self.exists(level)]

    def make_directory(self, directory: str, mode: int = 0o755) -> None:
        """Make it and what it stands in, durably; ``mode`` is its own."""
        for level in self.missing(directory):
            os.mkdir(self.path(level), mode if level == directory else 0o755)
            _sync_directory(os.path.dirname(self.path(level)))

    def program(self, name: str) -> Optional[str]:
        """The path of a program; below a private root none of the machine's is ever found."""
        where = PROGRAMS if self.root == "/" else self.path("/usr/local/sbin")
        return shutil.which(name, path=where)

    def run(self, name: str, *arguments: str) -> str:
        """The output of a program; Failed with its first line of complaint if it fails."""
        status, output, complaint = self.attempt(name, *arguments)
        if status != 0:
            lines = (complaint or output).strip().splitlines() or [f"exit status {status}"]
            raise Failed(f"{name} {' '.join(arguments)}: {lines[0]}")
        return output

    def attempt(self, name: str, *arguments: str) -> Tuple[int, str, str]:
        """Exit status, output and complaints of a program; Failed if it cannot be run.

        One that changes the host itself holds the lock until it ends, even if we are killed:
        whoever takes the change back waits for it.
        """
        program = self.program(name)
        if program is None:
            raise Failed(f"there is no program {name}")
        try:
            done = subprocess.run(
                [program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment(),
                timeout=COMMAND_TIMEOUT,
                pass_fds=self._locked if name in CHANGES_ITSELF else (),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Failed(f"{name} {' '.join(arguments)}: {error}") from None
        return done.returncode, _decode(done.stdout), _decode(done.stderr)

    def detach(self, command: Sequence[str]) -> None:
        """Start a process that outlives this one and the SSH connection."""
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self._environment(),
            start_new_session=True,
            cwd="/",
        )

    def _environment(self) -> Dict[str, str]:
        return dict(os.environ, LC_ALL="C", EDGETUNE_ROOT=self.root)

    @property
    def boot_id(self) -> str:
        """Changes with every boot; empty when the host does not tell."""
        return self.text("/proc/sys/kernel/random/boot_id")

    @property
    def init(self) -> str:
        """``systemd``, ``sysv`` (an /etc/init.d/rcS that runs /etc/init.d/S??*) or ``other``."""
        if self.exists("/run/systemd/system"):
            return "systemd"
        # That of Debian's sysvinit runs /etc/rcS.d/S* only.
        return "sysv" if "/etc/init.d/S??" in self.text("/etc/init.d/rcS") else "other"

    @contextlib.contextmanager
    def lock(self, wait: float = LOCK_WAIT) -> Iterator[None]:
        """Be the only one to change this host; Refused when that takes longer than ``wait`` s."""
        self.make_directory("/run")
        descriptor = os.open(self.path(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock_until(descriptor, time.monotonic() + wait)
            self._locked = (descriptor,)
            yield
        finally:
            self._locked = ()
            os.close(descriptor)

    def fence(self, epoch: int) -> None:
        """Refuse an epoch older than the newest this host has seen, and remember a newer one."""
        seen = self.epoch()
        if epoch < seen:
            raise Refused(f"epoch {epoch} is older than {seen}, which this host has seen")
        if epoch > seen:
            self.make_directory(STATE, 0o700)
            self._remember(epoch)

    def _remember(self, epoch: int) -> None:
        data = b"%d\n" % epoch
        try:
            self.replace(EPOCH, data)
        except OSError as error:
            if error.errno not in NO_ROOM or not self.exists(EPOCH):
                raise
            # In its own block, and no shorter than what it replaces. The reserve is for more.
            with open(self.path(EPOCH), "r+b") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())

    @property
    def ready(self) -> bool:
        """Whether the host's own health check may say so; a boot does not change it."""
        return not self.exists(NOT_READY)

    def epoch(self) -> int:
        """The newest epoch this host has seen; 0 when it saw none."""
        try:
            return int(self.read(EPOCH))
        except FileNotFoundError:
            return 0
        except (OSError, ValueError) as error:
            raise Failed(f"{EPOCH} is damaged: {error}") from None


def _draft(path: str) -> str:
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.edgetune")


def _fill(path: str, data: bytes, mode: int, owner: Sequence[int]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.truncate()
        os.fchmod(descriptor, mode)
        if owner:
            os.fchown(descriptor, owner[0], owner[1])
        file.flush()
        os.fsync(descriptor)


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock_until(descriptor: int, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            if time.monotonic() > deadline:
                raise Refused("busy: another change of this host is under way") from None
        time.sleep(0.05)


# ---------------------------------------------------------------------------------------------
# Journal: what stood here before each tuning, written before the first change

UNSETTLED = ("applying", "restoring")


class OtherVersion(Exception):
    """A journal is of an agent that is not like this one; the text says what that one does."""


class Entry:
    """One setting in a journal: what it takes, and what is needed to take it back.

    ``value`` is what is really set (``only`` may keep more than the tuning asks for). ``runtime``
    and ``stored`` say which of the two is changed; ``snapshot`` is its kind's own.
    """

    def __init__(self, setting: Setting, before: Json, snapshot: Any, changes: Json) -> None:
        self.setting = setting
        self.before = before
        self.snapshot = snapshot
        self.runtime: bool = changes["runtime"]
        self.stored: bool = changes["stored"]

    def document(self) -> Json:
        """For the journal's file."""
        setting = self.setting
        return {
            "id": setting.id,
            "kind": setting.kind,
            "target": setting.target,
            "value": setting.value,
            "only": setting.only,
            "restart": setting.restart,
            "before": self.before,
            "snapshot": self.snapshot,
            "changes": {"runtime": self.runtime, "stored": self.stored},
        }

    @staticmethod
    def of(data: Json) -> "Entry":
        """From the journal's file."""
        names = ("kind", "target", "value", "only", "restart")
        if data["kind"] not in KINDS:
            raise OtherVersion(f"knows the kind {data['kind']!r}")
        setting = Setting(*(data[name] for name in names))
        return Entry(setting, data["before"], data["snapshot"], data["changes"])


class Journal:
    """Everything needed to take one tuning back.

    ``state`` is ``applying``, ``provisional``, ``confirmed`` or ``restoring``. ``files`` holds
    each file it writes as it was: content (base64, None when absent), mode, uid, gid.
    ``services_due`` names services that still run with what was taken back. ``deadline`` is on
    the monotonic clock of one boot. ``sequence`` grows from tuning to tuning.
    """

    def __init__(self, data: Json) -> None:
        version = data.get("journal")
        if version != JOURNAL_VERSION:
            raise OtherVersion(f"writes journals {version!r}, not {JOURNAL_VERSION}")
        self.tuning: str = data["tuning"]
        self.digest: str = data["digest"]
        self.rollout: str = data["rollout"]
        self.sequence: int = data["sequence"]
        self.state: str = data["state"]
        self.confirm_within: float = data["confirm_within"]
        self.grace_boots: int = data["grace_boots"]
        self.deadline: Json = data["deadline"]
        self.services_due: List[str] = data["services_due"]
        self.files: Dict[str, Json] = data["files"]
        self.entries = [Entry.of(entry) for entry in data["entries"]]

    def document(self) -> Json:
        """For its file."""
        own = dict(vars(self), entries=[entry.document() for entry in self.entries])
        return dict(own, journal=JOURNAL_VERSION)

    @property
    def provisional(self) -> bool:
        """Whether it is taken back unless somebody confirms it."""
        return self.confirm_within > 0 and self.state != "confirmed"

    @property
    def needs_boot(self) -> bool:
        """Whether the boot hook has something to do for it."""
        unsettled = self.provisional or self.state in UNSETTLED
        return unsettled or any(entry.stored and by_hook(entry) for entry in self.entries)

    def scopes(self) -> Set[str]:
        """What it changes; two tunings with a common scope can only be taken back in order."""
        changed = [entry.setting for entry in self.entries if entry.runtime or entry.stored]
        each = [KINDS[setting.kind].scopes(setting.target) for setting in changed]
        return {scope for scopes in each for scope in scopes}


class Journals:
    """The journals of this host, a file each."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def load(self, tuning: str) -> Optional[Journal]:
        """The journal of a tuning, or None; Failed when it cannot be read, with the way out."""
        name = _journal_file(tuning)
        try:
            return Journal(json.loads(self._host.read(name).decode()))
        except FileNotFoundError:
            return None
        except OtherVersion as other:
            raise Failed(
                f"the journal {name} is of another version of edgetune, which {other}: take the "
                f"tuning back with that version, or on the host: python3 {AGENT} restore {tuning}"
            ) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Failed(
                f"the journal {name} is damaged: {error!r}: put the host right by hand, then "
                "remove that file"
            ) from None

    def all(self) -> List[Journal]:
        """Every journal that can be read, in the order of application."""
        return self._load_all()[0]

    def damaged(self) -> Dict[str, str]:
        """The tunings whose journals cannot be read, with what is wrong."""
        return self._load_all()[1]

    def _load_all(self) -> Tuple[List[Journal], Dict[str, str]]:
        loaded: List[Journal] = []
        damaged: Dict[str, str] = {}
        for name in self._host.names(STATE + "/tunings"):
            tuning = name[: -len(".json")]
            if name != f"{tuning}.json" or name.startswith("."):
                continue
            try:
                journal = self.load(tuning)
            except Failed as why:
                damaged[tuning] = str(why)
            else:
                loaded += [journal] if journal else []
        return sorted(loaded, key=lambda journal: journal.sequence), damaged

    def save(self, journal: Journal) -> None:
        """Write it down, durably."""
        self._host.make_directory(STATE + "/tunings", 0o700)
        data = json.dumps(journal.document(), indent=1, sort_keys=True).encode()
        self._host.write(_journal_file(journal.tuning), data + b"\n", 0o600)

    def forget(self, tuning: str) -> None:
        """Remove it: everything is as it was."""
        self._host.remove(_journal_file(tuning))


def _journal_file(tuning: str) -> str:
    return f"{STATE}/tunings/{tuning}.json"


def by_hook(entry: Entry) -> bool:
    """Whether only our boot hook keeps this setting over a reboot."""
    kind: Type[Kind] = KINDS[entry.setting.kind]
    return kind.kept_by_hook


def remember_file(host: Host, name: str) -> Json:
    """A file as it is now, for a journal."""
    if not host.exists(name):
        return {"content": None, "mode": 0, "uid": 0, "gid": 0}
    status = os.lstat(host.path(name))
    if not stat.S_ISREG(status.st_mode):
        raise Refused(f"{name} is not a plain file")
    return {
        "content": base64.b64encode(host.read(name)).decode(),
        "mode": stat.S_IMODE(status.st_mode),
        "uid": status.st_uid,
        "gid": status.st_gid,
    }


def is_as_remembered(host: Host, name: str, was: Json) -> bool:
    """Whether a file is as a journal remembers it."""
    try:
        return remember_file(host, name) == was
    except Refused:
        return False


def put_file_back(host: Host, name: str, was: Json) -> None:
    """Make a file as a journal remembers it, to the byte."""
    if was["content"] is None:
        host.remove(name)
    elif not is_as_remembered(host, name, was):
        content = base64.b64decode(was["content"])
        host.make_directory(os.path.dirname(name))
        host.write(name, content, was["mode"], (was["uid"], was["gid"]))
    else:
        host.remove(name, only_draft=True)


class Directories:
    """The directories that we made, kept on disk so that they can go when they are empty."""

    FILE = STATE + "/directories.json"

    def __init__(self, host: Host) -> None:
        self._host = host

    def make(self, directory: str) -> None:
        """Make a directory for a file of ours; written down first."""
        missing = self._host.missing(directory)
        if missing:
            self._keep(self._load() + missing)
            self._host.make_directory(directory)

    def prune(self) -> None:
        """Remove those that are empty by now."""
        kept = []
        for directory in sorted(self._load(), reverse=True):
            try:
                os.rmdir(self._host.path(directory))
            except FileNotFoundError:
                continue
            except OSError:
                kept.append(directory)
        # One named too many does no harm.
        with _room_or_not():
            self._keep(kept)

    def _load(self) -> List[str]:
        try:
            found: List[str] = json.loads(self._host.read(self.FILE).decode())
            return found
        except FileNotFoundError:
            return []

    def _keep(self, directories: List[str]) -> None:
        data = json.dumps(sorted(directories)).encode()
        if not directories:
            self._host.remove(self.FILE)
        elif not self._host.holds(self.FILE, data):
            self._host.write(self.FILE, data, 0o600)


# ---------------------------------------------------------------------------------------------
# Boot hook and revert timer: what acts when nobody is connected

AGENT = STATE + "/agent.py"
SYSTEMD = "/etc/systemd/system"
UNIT = SYSTEMD + "/edgetune.service"
UNIT_LINK = SYSTEMD + "/multi-user.target.wants/edgetune.service"
INIT_SCRIPT = "/etc/init.d/S99edgetune"

UNIT_TEXT = """\
[Unit]
Description=edgetune: settings that nothing else keeps over a boot
DefaultDependencies=no
RequiresMountsFor=/var/lib/edgetune
After=local-fs.target systemd-sysctl.service systemd-modules-load.service
Wants=network-pre.target
Before=network-pre.target shutdown.target
Conflicts=shutdown.target

[Service]
Type=oneshot
TimeoutStartSec=180
ExecStart={command}

[Install]
WantedBy=multi-user.target
"""

INIT_TEXT = """\
#!/bin/sh
# edgetune: settings that nothing else keeps over a boot
[ "$1" = start ] || exit 0
exec {command}
"""


def agent_command(prefix: str, *arguments: str) -> List[str]:
    """The command that runs our copy on disk; isolated, so no environment can change it."""
    return [sys.executable or "/usr/bin/python3", "-I", "-S", prefix + AGENT, *arguments]


def own_source() -> bytes:
    """The text of this very program: the bootstrap keeps it, on disk it is the file."""
    sent = globals().get("source")
    if isinstance(sent, bytes):
        return sent
    if "__file__" not in globals():
        raise Failed("the agent was started without its source: it cannot stay on the host")
    with open(__file__, "rb") as file:
        return file.read()


class BootHook:
    """Runs ``agent.py boot`` at each boot, before the network is used."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._directories = Directories(host)

    def probe(self) -> None:
        """Unsupported when this host's init is none that we know."""
        if self._host.init == "other":
            raise Unsupported(
                "nothing can keep it over a boot: no systemd, nothing runs /etc/init.d/S??*"
            )

    def installed(self) -> bool:
        """Whether the next boot will run it."""
        hooks = {"systemd": (UNIT, UNIT_LINK), "sysv": (INIT_SCRIPT,)}
        files = hooks.get(self._host.init, ())
        return bool(files) and all(self._host.exists(name) for name in (*files, AGENT))

    def sync(self) -> None:
        """Be there when a journal needs it, and be gone without a trace when none does.

        Our copy on disk stays with the last journal: a person can take a tuning back with it.
        """
        journals, damaged = self._host.journals.all(), self._host.journals.damaged()
        standing = bool(journals or damaged)
        if not standing:
            self._host.remove(RESERVE)
        if damaged or any(journal.needs_boot for journal in journals):
            self.install()
        else:
            for name in (UNIT_LINK, UNIT, INIT_SCRIPT):
                self._host.remove(name)
        if standing:
            self._stay()
        else:
            self._host.remove(AGENT)
        self._directories.prune()

    def install(self) -> None:
        """Be there at the next boot, if this host's init is one that we know."""
        self._stay()
        if self._host.init == "systemd":
            command = " ".join(agent_command("", "boot"))
            self._directories.make(os.path.dirname(UNIT_LINK))
            self._put(UNIT, UNIT_TEXT.format(command=command).encode(), 0o644)
            self._link()
        elif self._host.init == "sysv":
            python, *rest = agent_command("", "boot")
            command = f'{shlex.quote(python)} -I -S "$EDGETUNE_ROOT{AGENT}" {rest[-1]}'
            self._put(INIT_SCRIPT, INIT_TEXT.format(command=command).encode(), 0o755)

    def _stay(self) -> None:
        self._host.make_directory(STATE, 0o700)
        # A journal that is damaged to us may be one of another version, whose agent can read it.
        if not (self._host.exists(AGENT) and self._host.journals.damaged()):
            self._put(AGENT, own_source(), 0o700)

    def _put(self, name: str, data: bytes, mode: int) -> None:
        if not self._host.holds(name, data):
            self._host.write(name, data, mode)

    def _link(self) -> None:
        if not self._host.exists(UNIT_LINK):
            os.symlink("../" + os.path.basename(UNIT), self._host.path(UNIT_LINK))
            _sync_directory(os.path.dirname(self._host.path(UNIT_LINK)))


def arm_timer(host: Host, journal: Journal) -> None:
    """Let the tuning be taken back ``confirm_within`` seconds from now, whatever happens to us."""
    end = time.monotonic() + journal.confirm_within
    journal.deadline = {"boot_id": host.boot_id, "monotonic": end}
    host.journals.save(journal)
    command = agent_command(host.path("/").rstrip("/"), "revert", journal.tuning)
    if host.init == "systemd":
        disarm_timer(host, journal)
        when = [f"--on-active={journal.confirm_within:g}s", "--timer-property=AccuracySec=1s"]
        # The timer waits for sysinit.target, which at a boot may wait for us.
        unit = ["--no-block", f"--unit={_timer_unit(journal)}"]
        host.run("systemd-run", *unit, *when, "--", *command)
    else:
        host.detach(command)


def disarm_timer(host: Host, journal: Journal) -> None:
    """Forget the timer; one that fires all the same finds nothing to do."""
    if host.init == "systemd" and journal.confirm_within and host.program("systemctl"):
        host.attempt("systemctl", "reset-failed", _timer_unit(journal) + ".service")
        host.attempt("systemctl", "stop", _timer_unit(journal) + ".timer")


def time_left(host: Host, journal: Optional[Journal]) -> Optional[float]:
    """Seconds until a tuning is taken back; None when that is not for a timer of this boot."""
    if journal is None or not journal.provisional:
        return None
    if journal.deadline.get("boot_id") != host.boot_id:
        return None
    return max(float(journal.deadline["monotonic"]) - time.monotonic(), 0.0)


def _timer_unit(journal: Journal) -> str:
    return f"edgetune-revert-{journal.tuning}"


# ---------------------------------------------------------------------------------------------
# Values


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
    return (":" if ":" in str(now) else " ").join(chosen)


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


def read_cpu_list(fields: Fields, name: str) -> str:
    """A list of CPUs from a request, in its shortest form."""
    text = fields.text(name, r"[0-9, -]{0,1000}")
    try:
        return format_cpus(parse_cpus(text))
    except ValueError:
        raise fields.wrong(name, f"{text!r} is no list of CPUs such as 0-1,3") from None


# ---------------------------------------------------------------------------------------------
# Kinds of settings


class Kind:
    """How one kind of setting is read, changed, kept over a boot, and taken back.

    ``target`` names the fields that say what is set, with their patterns. ``ordered`` kinds know
    ``only``. ``kept_by_hook`` kinds are set again at each boot by us; the others live in files
    that the operating system reads. ``live`` kinds can be read back at once, the others after
    the restart of their service.
    """

    target: Dict[str, str] = {}
    ordered = True
    kept_by_hook = False
    live = True

    def __init__(self, host: Host) -> None:
        self.host = host

    def text(self, file: str) -> str:
        """The content of a file as it is; Unsupported when it cannot be read."""
        try:
            return _decode(self.host.read(file))
        except OSError as error:
            raise Unsupported(f"{file}: {error.strerror}") from None

    @classmethod
    def check_value(cls, fields: Fields) -> Value:
        """The value of a request, normalised."""
        return " ".join(fields.text("value", LINE).split())

    @staticmethod
    def scope(target: Target) -> str:
        """What it touches on the host, with everything downstream of it."""
        raise NotImplementedError

    @classmethod
    def scopes(cls, target: Target) -> Sequence[str]:
        """The same where it touches several things."""
        return (cls.scope(target),)

    def probe(self, setting: Setting) -> None:
        """Unsupported when this host cannot take the value."""

    def probe_stored(self, setting: Setting, tuning: str) -> None:
        """Unsupported when this host cannot keep the value over a boot."""

    def runtime(self, target: Target) -> Value:
        """What is in force now; Unsupported when this host does not have it."""
        raise NotImplementedError

    def persistent(self, target: Target) -> Optional[Value]:
        """What will be in force after a boot; None when nobody has said."""
        raise NotImplementedError

    def rounded(self, target: Target, value: Value) -> Value:
        """What this host makes of a value: drivers take some numbers only."""
        return value

    def asked(self, found: Value, value: Value) -> Value:
        """As much of what was read as a setting with this value speaks of."""
        return found

    def same(self, now: Value, wanted: Value) -> bool:
        """Whether a value read is the one wanted."""
        return now == wanted

    def snapshot(self, target: Target) -> Any:
        """What ``restore`` needs, with everything downstream of the setting."""
        raise NotImplementedError

    def apply(self, target: Target, value: Value) -> None:
        """Change it now; OSError or Failed when that does not work."""
        raise NotImplementedError

    def present(self, target: Target) -> bool:
        """Whether the host still has what is set: if it is gone nothing is to be restored."""
        return True

    def restore(self, target: Target, snapshot: Any) -> None:
        """Make a target that is present as it was."""
        raise NotImplementedError

    def files(self, journal: Journal, settings: List[Setting]) -> Dict[str, str]:
        """The files that keep these settings over a boot, with their content."""
        return {}

    def reload(self) -> None:
        """Make the operating system look at changed files."""


class HookKept(Kind):
    """A kind that only our boot hook keeps; its stored value is the newest journal's.

    Where values have parts, each part is the newest that any journal keeps.
    """

    kept_by_hook = True

    def probe_stored(self, setting: Setting, tuning: str) -> None:
        self.host.hook.probe()

    def persistent(self, target: Target) -> Optional[Value]:
        found: Optional[Value] = None
        for journal in self.host.journals.all() if self.host.hook.installed() else []:
            for entry in journal.entries if journal.state != "restoring" else []:
                known = KINDS[entry.setting.kind] is type(self) and entry.setting.target == target
                if known and entry.stored:
                    found = merged(found, entry.setting.value)
        return found


def merged(older: Optional[Value], newer: Value) -> Value:
    """The newer value, with those parts of the older that it says nothing of."""
    if isinstance(older, dict) and isinstance(newer, dict):
        return {**older, **newer}
    return newer


def header(journal: Journal) -> str:
    """The first line of every configuration file we write."""
    return f"# Kept by edgetune for the tuning {journal.tuning}, digest {journal.digest}\n"


def later(name: str, ours: str) -> bool:
    """Whether a configuration file is read after ours."""
    return os.path.basename(name) > os.path.basename(ours)


def drop_ins(host: Host, directories: Sequence[str]) -> List[str]:
    """The .conf files in the order they are read: by name, the first directory masks the next."""
    found: Dict[str, str] = {}
    for directory in directories:
        for name in host.names(directory):
            if name.endswith(".conf"):
                found.setdefault(name, f"{directory}/{name}")
    return [found[name] for name in sorted(found)]


class Sysctl(Kind):
    """A kernel parameter below /proc/sys."""

    # Never two of . and / in a row: where they change places that could lead out of /proc/sys.
    target = {"key": r"[a-z0-9_][A-Za-z0-9_-]*([./][A-Za-z0-9_-]+)*"}
    directories = tuple(f"{top}/sysctl.d" for top in ("/etc", "/run", "/usr/local/lib", "/usr/lib"))
    # procps reads this one after all the others; systemd reads it only where 99-sysctl.conf is it.
    last = "/etc/sysctl.conf"

    @staticmethod
    def scope(target: Target) -> str:
        """The one parameter, with the one that is coupled to it."""
        return "sysctl " + " ".join(coupled(target))

    def probe(self, setting: Setting) -> None:
        """Unsupported when it is read-only, as some are in a network namespace."""
        file = self._file(setting.target)
        if not os.stat(self.host.path(file)).st_mode & 0o222:
            raise Unsupported(f"{file} is read-only here")

    def probe_stored(self, setting: Setting, tuning: str) -> None:
        """Unsupported when a file that is read after ours decides."""
        winner = self._winner(sysctl_path(setting.target["key"]))
        if winner and self._after_ours(winner[0], tuning) and winner[1] != setting.value:
            raise Unsupported(f"{winner[0]} is read after ours and sets it to {winner[1]}")

    def runtime(self, target: Target) -> Value:
        """Its value, white space normalised."""
        return " ".join(self.text(self._file(target)).split())

    def persistent(self, target: Target) -> Optional[Value]:
        winner = self._winner(sysctl_path(target["key"]))
        return winner[1] if winner else None

    def present(self, target: Target) -> bool:
        return self.host.exists(self._file(target))

    def snapshot(self, target: Target) -> Any:
        """The text of each parameter that changes with it."""
        files = [f"/proc/sys/{path}" for path in coupled(target)]
        return {file: self.text(file) for file in files if self.host.exists(file)}

    def apply(self, target: Target, value: Value) -> None:
        """Write it: the exit status of sysctl(8) says nothing."""
        self.host.poke(self._file(target), f"{value}\n")

    def restore(self, target: Target, snapshot: Any) -> None:
        """Write what differs; of a pair first the one that counts: it makes the other zero."""
        for file in sorted(snapshot, key=lambda name: bool(snapshot[name].strip() == "0")):
            if self.text(file) != snapshot[file]:
                self.host.poke(file, snapshot[file])

    def files(self, journal: Journal, settings: List[Setting]) -> Dict[str, str]:
        lines = [f"{setting.target['key']} = {setting.value}\n" for setting in settings]
        return {self._ours(journal.tuning): header(journal) + "".join(lines)}

    def _ours(self, tuning: str) -> str:
        return f"/etc/sysctl.d/90-edgetune-{tuning}.conf"

    def _after_ours(self, name: str, tuning: str) -> bool:
        return name == self.last or later(name, self._ours(tuning))

    def _file(self, target: Target) -> str:
        return "/proc/sys/" + sysctl_path(target["key"])

    def _winner(self, path: str) -> Optional[Tuple[str, str]]:
        """File and value of the assignment that decides; a pattern only where no name does."""
        named: Optional[Tuple[str, str]] = None
        pattern: Optional[Tuple[str, str]] = None
        last = [] if self.host.init == "systemd" else [self.last]
        for file in drop_ins(self.host, self.directories) + last:
            for key, value in sysctl_lines(self.host.text(file)):
                if key == path:
                    named = (file, value)
                elif "*" in key and _matches(path, key):
                    pattern = (file, value)
        return named or pattern


COUPLED = (
    ("vm/dirty_bytes", "vm/dirty_ratio"),
    ("vm/dirty_background_bytes", "vm/dirty_background_ratio"),
)
"""Parameters of which one becomes zero when the other is set; zero itself cannot be written."""


def coupled(target: Target) -> Sequence[str]:
    """The paths that change together with a parameter, its own among them."""
    path = sysctl_path(target["key"])
    return next((pair for pair in COUPLED if path in pair), (path,))


def sysctl_path(key: str) -> str:
    """``net/ipv4/conf/eth0.1/forwarding`` for both ways to write that key (see sysctl.d(5))."""
    first = re.search("[./]", key)
    if first is None or first.group() == "/":
        return key
    return key.translate(str.maketrans("./", "/."))


def sysctl_lines(text: str) -> Iterator[Tuple[str, str]]:
    """Paths and values that a file of sysctl.d assigns."""
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and key.strip() and key.strip()[0] not in "#;":
            yield sysctl_path(key.strip().lstrip("-").strip()), " ".join(value.split())


def _matches(path: str, pattern: str) -> bool:
    parts, patterns = path.split("/"), pattern.split("/")
    return len(parts) == len(patterns) and all(map(fnmatch.fnmatchcase, parts, patterns))


class NicKind(HookKept):
    """What belongs to a network interface: changing its queues resets all the rest."""

    target = {"interface": r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}"}

    @staticmethod
    def scope(target: Target) -> str:
        return f"nic {target['interface']}"

    def present(self, target: Target) -> bool:
        return self.host.exists(self._directory(target))

    def queues(self, target: Target) -> List[str]:
        """Its receive and transmit queues, such as ``rx-0``; Unsupported without an interface."""
        if not self.present(target):
            raise Unsupported(f"there is no interface {target['interface']}")
        return self.host.names(f"{self._directory(target)}/queues")

    def read_steering(self, target: Target, names: Sequence[str]) -> Dict[str, str]:
        """The text of those files of its queues that can be read, by ``rx-0/rps_cpus``."""
        files = [f"{queue}/{name}" for queue in self.queues(target) for name in names]
        found = {}
        for file in files:
            with contextlib.suppress(OSError):
                found[file] = _decode(self.host.read(f"{self._directory(target)}/queues/{file}"))
        return found

    def put_steering_back(self, target: Target, was: Dict[str, str]) -> None:
        """Write what differs, into the queues that there are."""
        now = self.read_steering(target, sorted({file.split("/")[1] for file in was}))
        for file, text in was.items():
            if file in now and now[file] != text:
                self.host.poke(f"{self._directory(target)}/queues/{file}", text)

    def _directory(self, target: Target) -> str:
        return f"/sys/class/net/{target['interface']}"


class NicParts(NicKind):
    """What ethtool shows of an interface as named parts, and changes part by part."""

    change = ""
    # The kinds that a change may reset; they are put back like what steers packets to queues.
    below: Tuple[str, ...] = ()
    steering = ("rps_cpus", "rps_flow_cnt", "xps_cpus")

    def same(self, now: Value, wanted: Value) -> bool:
        """Whether the parts that are wanted are as wanted; the others may be anything."""
        there = parts(now)
        return all(there.get(name) == part for name, part in parts(wanted).items())

    def snapshot(self, target: Target) -> Any:
        """All its parts, and whatever a driver that starts the interface anew may reset."""
        return {
            "parts": self.requested(target),
            "below": self.read_below(target),
            "steering": self.read_steering(target, self.steering),
        }

    def apply(self, target: Target, value: Value) -> None:
        """Change what differs; everything downstream stays as it is."""
        was = dict(self.snapshot(target), parts=value)
        self.restore(target, was)

    def restore(self, target: Target, snapshot: Any) -> None:
        """Give the interface its parts back, and all that is downstream of them."""
        self.put(target, parts(snapshot["parts"]))
        self.put_below_back(target, snapshot["below"])
        self.put_steering_back(target, snapshot["steering"])

    def put(self, target: Target, wanted: Parts) -> None:
        """Change the parts that differ: some versions of ethtool complain of the others."""
        now = self.requested(target)
        self.run(target, {name: part for name, part in wanted.items() if now.get(name) != part})

    def requested(self, target: Target) -> Parts:
        """What was asked of the interface, which need not be in force."""
        return parts(self.runtime(target))

    def run(self, target: Target, wanted: Parts) -> None:
        """Let ethtool change parts, if there are any, in one go; Failed when it complains."""
        words = [str(word) for part in wanted.items() for word in part]
        if words:
            self.host.run("ethtool", self.change, target["interface"], *words)

    def read_below(self, target: Target) -> Dict[str, Parts]:
        """What is downstream, by kind; without what the interface does not have."""
        found = {}
        for name, kind in self._below():
            with contextlib.suppress(Unsupported):
                found[name] = kind.requested(target)
        return found

    def put_below_back(self, target: Target, was: Dict[str, Parts]) -> None:
        """Change what differs from what ``read_below`` found."""
        for name, kind in self._below():
            if name in was:
                kind.put(target, was[name])

    def _below(self) -> Iterator[Tuple[str, "NicParts"]]:
        for name, kind in self.host.kinds.items():
            if name in self.below and isinstance(kind, NicParts):
                yield name, kind


class NicCounts(NicParts):
    """Parts that are numbers, each with a maximum that the interface tells."""

    names: Tuple[str, ...] = ()
    smallest = 0
    show = ""
    what = ""

    @classmethod
    def check_value(cls, fields: Fields) -> Value:
        """Such as {"rx": 2, "tx": 2}."""
        below = fields.inside("value")
        known = [name for name in cls.names if name in below.names()]
        value: Parts = {name: below.whole(name, cls.smallest, 65536) for name in known}
        below.done()
        if not value:
            raise fields.wrong("value", "is empty")
        return value

    def probe(self, setting: Setting) -> None:
        """Unsupported when the interface has none of that name, or not so many."""
        interface = setting.target["interface"]
        most = self.read(interface)["max"]
        for name, count in counts(setting.value).items():
            if count > most.get(name, 0):
                most_of_it = f"at most {most[name]}" if most.get(name) else "no"
                raise Unsupported(f"{interface} has {most_of_it} {name} {self.what}")

    def runtime(self, target: Target) -> Value:
        """The present number of each that the interface has."""
        self.queues(target)
        found = self.read(target["interface"])
        return {name: count for name, count in found["current"].items() if found["max"].get(name)}

    def read(self, interface: str) -> Dict[str, Dict[str, int]]:
        """``{"max": {"rx": 4, ...}, "current": {...}}``; Unsupported without an answer."""
        found: Dict[str, Dict[str, int]] = {"max": {}, "current": {}}
        part = "max"
        for line in show(self.host, self.show, interface).splitlines():
            name, _, number = line.partition(":")
            if name.startswith("Current"):
                part = "current"
            elif name.lower() in self.names and number.strip().isdigit():
                found[part][name.lower()] = int(number)
        if not found["current"]:
            raise Unsupported(f"ethtool {self.show} {interface} tells no {self.what}")
        return found


class NicChannels(NicCounts):
    """How many queues an interface has, such as {"combined": 4}; ethtool tells and changes it."""

    names = ("rx", "tx", "combined")
    show = "-l"
    change = "-L"
    what = "channels"
    below = ("nic.ring", "nic.features", "nic.coalesce")

    def restore(self, target: Target, snapshot: Any) -> None:
        """The same; also from what version 0.2.0 remembered."""
        old = {"parts": snapshot.get("channels"), "below": {}}
        super().restore(target, {**old, **snapshot})


def show(host: Host, option: str, interface: str) -> str:
    """What ethtool tells of an interface; Unsupported when it does not."""
    try:
        return host.run("ethtool", option, interface)
    except Failed as error:
        raise Unsupported(str(error)) from None


def parts(value: Value) -> Parts:
    """A value that is an object."""
    return value if isinstance(value, dict) else {}


def counts(value: Value) -> Dict[str, int]:
    """The parts of a value that are numbers."""
    return {name: part for name, part in parts(value).items() if isinstance(part, int)}


def driver_of(host: Host, interface: str) -> Optional[str]:
    """The name of an interface's driver; None without a device."""
    link = host.path(f"/sys/class/net/{interface}/device/driver")
    return os.path.basename(os.readlink(link)) if os.path.islink(link) else None


def multiple_above(step: int) -> Callable[[int], int]:
    """Rounds a number up to a multiple."""
    return lambda number: -(-number // step) * step


def power_above(number: int) -> int:
    """The smallest power of two that is not smaller than a number; 0 for 0."""
    return 1 << (number - 1).bit_length() if number > 0 else 0


def power_below(number: int) -> int:
    """The largest power of two that is not larger than a number; 0 for 0."""
    return 1 << (number.bit_length() - 1) if number > 0 else 0


class NicRing(NicCounts):
    """How many packets the rings of each queue hold; the link goes down while that changes."""

    names = ("rx", "tx")
    smallest = 1
    show = "-g"
    change = "-G"
    what = "ring"
    below = ("nic.features", "nic.coalesce")
    # As their set_ringparam() does; every other driver takes a number as it is, or refuses it.
    rounding: Dict[Optional[str], Callable[[int], int]] = {
        "igb": multiple_above(8),
        "ixgbe": multiple_above(8),
        "i40e": multiple_above(32),
        "iavf": multiple_above(32),
        "ice": multiple_above(32),
        "mlx4_core": power_above,
        "mlx5_core": power_above,
        "ena": power_below,
    }

    def rounded(self, target: Target, value: Value) -> Value:
        """The number that the driver makes of it."""
        to_fit = self.rounding.get(driver_of(self.host, target["interface"]), int)
        return {name: to_fit(count) for name, count in counts(value).items()}


SWITCH = "on|off"


class NicCoalesce(NicParts):
    """How long an interface gathers packets before it interrupts: names as ``ethtool -C`` has them.

    ixgbe starts the interface anew where receive coalescing (LRO) comes or goes with it.
    """

    change = "-C"
    switches = ("adaptive-rx", "adaptive-tx", "cqe-mode-rx", "cqe-mode-tx")
    numbers = (
        "stats-block-usecs",
        "sample-interval",
        "pkt-rate-low",
        "pkt-rate-high",
        *(
            f"{side}-{what}{when}"
            for side in ("rx", "tx")
            for what, when in (
                ("usecs", ""),
                ("frames", ""),
                ("usecs", "-irq"),
                ("frames", "-irq"),
                ("usecs", "-low"),
                ("frame", "-low"),
                ("usecs", "-high"),
                ("frame", "-high"),
            )
        ),
        "tx-aggr-max-bytes",
        "tx-aggr-max-frames",
        "tx-aggr-time-usecs",
    )

    @classmethod
    def check_value(cls, fields: Fields) -> Value:
        """Such as {"adaptive-rx": "off", "rx-usecs": 50}."""
        below = fields.inside("value")
        value: Parts = {}
        for name in below.names():
            if name in cls.switches:
                value[name] = below.text(name, SWITCH)
            elif name in cls.numbers:
                value[name] = below.whole(name, 0, 2**32 - 1)
        below.done()
        if not value:
            raise fields.wrong("value", "is empty")
        return value

    def asked(self, found: Value, value: Value) -> Value:
        """A card tells two dozen of them; others may change without our doing."""
        return chosen(found, value)

    def probe(self, setting: Setting) -> None:
        """Unsupported when the driver does not know one of them (it is ``n/a``)."""
        interface = setting.target["interface"]
        missing = sorted(set(parts(setting.value)) - set(parts(self.runtime(setting.target))))
        if missing:
            raise Unsupported(f"{interface} has no coalescing {', '.join(missing)}")

    def runtime(self, target: Target) -> Value:
        """Everything the driver knows of coalescing."""
        self.queues(target)
        pairs = coalescing(show(self.host, "-c", target["interface"]))
        known = {*self.switches, *self.numbers}
        return {name: part for name, part in pairs if name in known}

    def same(self, now: Value, wanted: Value) -> bool:
        """Some chips count in steps of 2 us: a time may be 1 us off, but 0 stands for none."""
        there = parts(now)
        return all(
            there.get(name) == part
            or ("usecs" in name and part and there.get(name) in _next_to(part))
            for name, part in parts(wanted).items()
        )

    def run(self, target: Target, wanted: Parts) -> None:
        """What adapts by itself goes first and comes last: with it on, times cannot be set."""
        last: Parts = {name: part for name, part in wanted.items() if part == "on"}
        super().run(target, {name: wanted[name] for name in wanted if name not in last})
        super().run(target, last)


def chosen(found: Value, value: Value) -> Value:
    """Those parts of what was read that a value has, too."""
    return {name: part for name, part in parts(found).items() if name in parts(value)}


def _next_to(part: Union[int, str]) -> Sequence[int]:
    near = (part - 1, part + 1) if isinstance(part, int) else ()
    return [number for number in near if number > 0]


def coalescing(text: str) -> Iterator[Tuple[str, Union[int, str]]]:
    """Names and values of what ``ethtool -c`` tells, without what is not available."""
    for line in text.splitlines():
        pair = re.fullmatch(r"(Adaptive|CQE mode) RX: (\S+) +TX: (\S+) *", line)
        if pair:
            name = pair.group(1).lower().replace(" ", "-")
            found = [(f"{name}-rx", pair.group(2)), (f"{name}-tx", pair.group(3))]
        else:
            name, _, value = line.partition(":")
            found = [(name, value.strip())]
        for name, value in found:
            if value.isdigit():
                yield name, int(value)
            elif re.fullmatch(SWITCH, value):
                yield name, value


class Feature:
    """One line of ``ethtool -k``; ``members`` are the features that a group stands for.

    What is ``requested`` is not in force while something that it needs is off.
    """

    def __init__(self, value: str, requested: str, fixed: bool) -> None:
        self.value = value
        self.requested = requested or value
        self.members: Dict[str, Feature] = {}
        self._fixed = fixed

    @property
    def fixed(self) -> bool:
        """Whether it cannot be changed; ethtool does not say so of groups."""
        inside = list(self.members.values())
        return all(member.fixed for member in inside) if inside else self._fixed


class NicFeatures(NicParts):
    """What an interface does by itself, such as {"ntuple-filters": "off"}.

    A change of ntuple-filters or LRO starts the interface anew with ixgbe, bnxt and others, and
    ntuple-filters mean two things: with ixgbe "on" puts an end to Flow Director's own sampling,
    with i40e, ice and mlx5 it is what accelerated RFS needs.
    """

    ordered = False
    change = "-K"
    below = ("nic.coalesce",)
    # What -K takes besides the names that -k shows.
    short = {
        "rx": "rx-checksumming",
        "tx": "tx-checksumming",
        "sg": "scatter-gather",
        "tso": "tcp-segmentation-offload",
        "ufo": "udp-fragmentation-offload",
        "gso": "generic-segmentation-offload",
        "gro": "generic-receive-offload",
        "lro": "large-receive-offload",
        "rxvlan": "rx-vlan-offload",
        "txvlan": "tx-vlan-offload",
        "ntuple": "ntuple-filters",
        "rxhash": "receive-hashing",
    }

    @classmethod
    def check_value(cls, fields: Fields) -> Value:
        """Names as -k shows them, or short as -K takes them, with on or off."""
        below = fields.inside("value")
        value: Parts = {}
        for name in below.names():
            full = cls.short.get(name, name)
            if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,99}", full):
                raise below.wrong(name, "is no name of a feature")
            if full in value:
                raise below.wrong(name, f"is {full}, which is set twice")
            value[full] = below.text(name, SWITCH)
        if not value:
            raise fields.wrong("value", "is empty")
        return value

    def asked(self, found: Value, value: Value) -> Value:
        """An interface has some sixty of them."""
        return chosen(found, value)

    def probe(self, setting: Setting) -> None:
        """Unsupported when there is none of that name, or it is fixed."""
        interface = setting.target["interface"]
        known = self._features(setting.target)
        for name, value in parts(setting.value).items():
            if name not in known:
                raise Unsupported(f"{interface} has no feature {name}")
            if known[name].fixed and known[name].value != value:
                raise Unsupported(f"{interface} has {name} {known[name].value}, which is fixed")

    def runtime(self, target: Target) -> Value:
        """All of them."""
        return {name: own.value for name, own in self._features(target).items()}

    def requested(self, target: Target) -> Parts:
        """The same, also what does not work for now."""
        return {name: own.requested for name, own in self._features(target).items()}

    def persistent(self, target: Target) -> Optional[Value]:
        """What is fixed stays so, whatever anybody said."""
        kept = super().persistent(target)
        try:
            known = self._features(target)
        except Unsupported:
            return kept
        return merged(kept, {name: own.value for name, own in known.items() if own.fixed})

    def put(self, target: Target, wanted: Parts) -> None:
        """The same; members rather than their group, which would change all of them alike."""
        known = self._features(target)
        for name, own in known.items():
            if own.members and set(own.members) <= set(wanted):
                wanted = {other: part for other, part in wanted.items() if other != name}
        super().put(target, wanted)

    def _features(self, target: Target) -> Dict[str, Feature]:
        self.queues(target)
        text = show(self.host, "-k", target["interface"])
        found: Dict[str, Feature] = {}
        group = Feature("", "", False)
        line = r"^([ \t]*)([^\s:]+): (on|off)( \[fixed\])?(?: \[requested (on|off)\])?"
        for indent, name, value, fixed, requested in re.findall(line, text, re.MULTILINE):
            own = found[name] = Feature(value, requested, bool(fixed))
            if indent:
                group.members[name] = own
            else:
                group = own
        return found


class NicRps(NicKind):
    """Which CPUs receive packets in software: the same for all receive queues."""

    ordered = False

    @classmethod
    def check_value(cls, fields: Fields) -> Value:
        return read_cpu_list(fields, "value")

    def probe(self, setting: Setting) -> None:
        online = parse_cpus(self.host.text("/sys/devices/system/cpu/online"))
        missing = parse_cpus(str(setting.value)) - online
        if missing:
            raise Unsupported(f"CPU {format_cpus(missing)} is not online")

    def runtime(self, target: Target) -> Value:
        """The CPUs; where queues differ, each with its own (``rx-0: 0, rx-1: ``)."""
        masks = self._masks(target)
        lists = {queue: format_cpus(parse_mask(text)) for queue, text in masks.items()}
        if len(set(lists.values())) == 1:
            return next(iter(lists.values()))
        return ", ".join(f"{queue.split('/')[0]}: {cpus}" for queue, cpus in lists.items())

    def snapshot(self, target: Target) -> Any:
        return self._masks(target)

    def apply(self, target: Target, value: Value) -> None:
        """Give all receive queues the same mask."""
        mask = format_mask(parse_cpus(str(value)))
        for file in self._masks(target):
            self.host.poke(f"{self._directory(target)}/queues/{file}", f"{mask}\n")

    def restore(self, target: Target, snapshot: Any) -> None:
        self.put_steering_back(target, snapshot)

    def _masks(self, target: Target) -> Dict[str, str]:
        masks = self.read_steering(target, ("rps_cpus",))
        if not masks:
            raise Unsupported(f"{target['interface']} has no receive queues with rps_cpus")
        return masks


class NicRfs(NicKind):
    """How many flows are steered to the CPU that reads them (RFS), in both halves.

    The value is a number of flows, a power of two as the kernel has it: the host's table of
    sockets has room for so many at least (other interfaces share it, so it never shrinks), and
    each receive queue for its share. 0 switches it off on the interface.
    """

    key = "net.core.rps_sock_flow_entries"
    table = "/proc/sys/net/core/rps_sock_flow_entries"

    @classmethod
    def check_value(cls, fields: Fields) -> Value:
        return str(int(fields.text("value", r"[0-9]{1,9}")))

    @classmethod
    def scopes(cls, target: Target) -> Sequence[str]:
        return (cls.scope(target), Sysctl.scope({"key": cls.key}))

    def rounded(self, target: Target, value: Value) -> Value:
        """The kernel rounds up."""
        return str(power_above(int(str(value))))

    def probe(self, setting: Setting) -> None:
        """Unsupported with fewer flows than queues, or more than the kernel's tables take."""
        flows, queues = int(str(setting.value)), len(self._queues(setting.target))
        if 0 < flows < queues:
            raise Unsupported(f"{flows} flows are too few for {queues} receive queues")
        if flows > 1 << 29:
            raise Unsupported(f"{flows} flows are more than {1 << 29}, which the kernel takes")

    def runtime(self, target: Target) -> Value:
        """The flows that there is room for, in the table and in the queue with the fewest."""
        queues = [int(text) for text in self._queues(target).values()]
        in_queues = power_below(min(queues) * len(queues))
        return str(min(in_queues, self._entries()))

    def snapshot(self, target: Target) -> Any:
        return {"table": self.text(self.table), "queues": self._queues(target)}

    def apply(self, target: Target, value: Value) -> None:
        """The table first: queues without one steer nothing."""
        flows, queues = int(str(value)), self._queues(target)
        if flows > self._entries():
            self.host.poke(self.table, f"{flows}\n")
        share = share_of(flows, len(queues))
        self.put_steering_back(target, dict.fromkeys(queues, f"{share}\n"))

    def restore(self, target: Target, snapshot: Any) -> None:
        self.put_steering_back(target, snapshot["queues"])
        if self.text(self.table) != snapshot["table"]:
            self.host.poke(self.table, snapshot["table"])

    def _queues(self, target: Target) -> Dict[str, str]:
        found = self.read_steering(target, ("rps_flow_cnt",))
        if not found:
            raise Unsupported(f"{target['interface']} has no receive queues with rps_flow_cnt")
        return found

    def _entries(self) -> int:
        return int(self.text(self.table))


def share_of(flows: int, queues: int) -> int:
    """What each queue must have room for; a power of two, as the kernel has it."""
    return power_above(-(-flows // queues))


class MemoryThp(HookKept):
    """When the kernel uses transparent huge pages."""

    target = {"file": "enabled|defrag"}
    ordered = False

    @staticmethod
    def scope(target: Target) -> str:
        return f"thp {target['file']}"

    @classmethod
    def check_value(cls, fields: Fields) -> Value:
        return fields.text("value", r"[a-z][a-z+_-]{0,40}")

    def probe(self, setting: Setting) -> None:
        """Unsupported when this kernel does not offer the word."""
        words = re.sub(r"[][]", "", self._read(setting.target)).split()
        if len(words) > 1 and setting.value not in words:
            raise Unsupported(f"this kernel knows {', '.join(words)}, not {setting.value}")

    def runtime(self, target: Target) -> Value:
        """The word in brackets, or the only one."""
        text = self._read(target)
        chosen = re.search(r"\[(.+?)\]", text)
        return chosen.group(1) if chosen else text.strip()

    def present(self, target: Target) -> bool:
        return self.host.exists(self._file(target))

    def snapshot(self, target: Target) -> Any:
        return {"text": self._read(target), "word": self.runtime(target)}

    def apply(self, target: Target, value: Value) -> None:
        self.host.poke(self._file(target), f"{value}\n")

    def restore(self, target: Target, snapshot: Any) -> None:
        """Write the old word; where a plain file stands in for the kernel's, its old text."""
        if self._read(target) == snapshot["text"]:
            return
        self.apply(target, snapshot["word"])
        if self._read(target) != snapshot["text"]:
            with contextlib.suppress(OSError):
                self.host.poke(self._file(target), snapshot["text"])

    def _file(self, target: Target) -> str:
        return f"/sys/kernel/mm/transparent_hugepage/{target['file']}"

    def _read(self, target: Target) -> str:
        return self.text(self._file(target))


LIMITS = {
    "LimitAS": "Max address space",
    "LimitCORE": "Max core file size",
    "LimitCPU": "Max cpu time",
    "LimitDATA": "Max data size",
    "LimitFSIZE": "Max file size",
    "LimitLOCKS": "Max file locks",
    "LimitMEMLOCK": "Max locked memory",
    "LimitMSGQUEUE": "Max msgqueue size",
    "LimitNICE": "Max nice priority",
    "LimitNOFILE": "Max open files",
    "LimitNPROC": "Max processes",
    "LimitRSS": "Max resident set",
    "LimitRTPRIO": "Max realtime priority",
    "LimitRTTIME": "Max realtime timeout",
    "LimitSIGPENDING": "Max pending signals",
    "LimitSTACK": "Max stack size",
}
"""The limits of a process: as systemd calls them, and as /proc/PID/limits does."""


class ServiceProperty(Kind):
    """A property of a service's unit, such as LimitNOFILE; it takes effect with a restart."""

    target = {"service": SERVICE, "property": "[A-Z][A-Za-z0-9]*"}
    live = False
    roots = tuple(f"{top}/systemd/system" for top in ("/etc", "/run", "/usr/lib", "/lib"))
    # Where /proc/PID tells what the main process has: systemd tells what it would start it with.
    running = {
        "CPUAffinity": ("status", r"^Cpus_allowed_list:\s*(\S+)"),
        "Nice": ("stat", r"[\s\S]*\)(?: \S+){16} (\S+)"),
        **{name: ("limits", rf"^{text} +(\S+) +(\S+)") for name, text in LIMITS.items()},
    }

    @staticmethod
    def scope(target: Target) -> str:
        return f"service {target['service']} {target['property']}"

    @classmethod
    def check_value(cls, fields: Fields) -> Value:
        """A line as in a unit file; CPU lists in their shortest form."""
        if fields.inside("target").raw("property") == "CPUAffinity":
            return read_cpu_list(fields, "value")
        value = " ".join(fields.text("value", LINE).split())
        if value.endswith("\\"):
            raise fields.wrong("value", "must not end with a backslash")
        return value

    def probe_stored(self, setting: Setting, tuning: str) -> None:
        """Unsupported when a drop-in that is read after ours decides."""
        winner = self._winner(setting.target)
        ours = self._ours(setting.target, tuning)
        if winner and winner[0].endswith(".conf") and later(winner[0], ours):
            raise Unsupported(f"{winner[0]} is read after ours and sets it to {winner[1]}")

    def runtime(self, target: Target) -> Value:
        """Its effective value; ``soft:hard`` for a limit whose two halves differ."""
        name = target["property"]
        of_process = name in self.running
        return self._normal(name, (self._has if of_process else self._show)(target, name))

    def persistent(self, target: Target) -> Optional[Value]:
        winner = self._winner(target)
        return winner[1] if winner else None

    def snapshot(self, target: Target) -> Any:
        """Nothing: it comes back with the files and the restart."""
        return None

    def apply(self, target: Target, value: Value) -> None:
        pass

    def restore(self, target: Target, snapshot: Any) -> None:
        pass

    def files(self, journal: Journal, settings: List[Setting]) -> Dict[str, str]:
        content: Dict[str, str] = {}
        for setting in settings:
            name = self._ours(setting.target, journal.tuning)
            text = content.get(name) or header(journal) + "[Service]\n"
            # Several assignments of a set of CPUs add up, unless an empty one comes between.
            if setting.target["property"] == "CPUAffinity":
                text += "CPUAffinity=\n"
            content[name] = text + f"{setting.target['property']}={setting.value}\n"
        return content

    def reload(self) -> None:
        self.host.run("systemctl", "daemon-reload")

    def _show(self, target: Target, name: str) -> str:
        try:
            # Not --value: systemd has that from version 230 on only.
            text = self.host.run("systemctl", "show", "-p", name, target["service"])
        except Failed as error:
            raise Unsupported(str(error)) from None
        key, _, value = text.strip().partition("=")
        if key != name or not value:
            raise Unsupported(f"systemctl tells no {name} of {target['service']}")
        return value.replace("18446744073709551615", "infinity")

    def _has(self, target: Target, name: str) -> str:
        file, pattern = self.running[name]
        text = self.host.text(f"/proc/{self._show(target, 'MainPID')}/{file}")
        found = re.search(pattern, text, re.MULTILINE)
        if found is None:
            raise Unsupported(f"{target['service']} has no main process that tells its {name}")
        values = dict.fromkeys(found.groups())
        return ":".join(values).replace("unlimited", "infinity")

    def _normal(self, name: str, value: str) -> str:
        if name == "CPUAffinity":
            with contextlib.suppress(ValueError):
                return format_cpus(parse_cpus(value))
        return " ".join(value.split())

    def _winner(self, target: Target) -> Optional[Tuple[str, str]]:
        """File and value of the assignment that decides; an empty one takes all back."""
        unit, name = unit_name(target["service"]), target["property"]
        units = [f"{root}/{unit}" for root in self.roots if self.host.exists(f"{root}/{unit}")]
        found = None
        for file in units[:1] + drop_ins(self.host, [f"{root}/{unit}.d" for root in self.roots]):
            for line in self.host.text(file).splitlines():
                key, equals, value = line.partition("=")
                if equals and key.strip() == name:
                    value = self._normal(name, value)
                    found = (file, value) if value else None
        return found

    def _ours(self, target: Target, tuning: str) -> str:
        return f"{SYSTEMD}/{unit_name(target['service'])}.d/90-edgetune-{tuning}.conf"


def unit_name(service: str) -> str:
    """The full name of a service's unit."""
    return service if service.endswith(".service") else f"{service}.service"


KINDS: Dict[str, Type[Kind]] = {
    "nic.channels": NicChannels,
    "nic.ring": NicRing,
    "nic.features": NicFeatures,
    "nic.coalesce": NicCoalesce,
    "nic.rps": NicRps,
    "nic.rfs": NicRfs,
    "memory.thp": MemoryThp,
    "sysctl": Sysctl,
    "service.property": ServiceProperty,
}
"""Every kind of setting, in the order of application: what resets others comes first.

They are taken back in the reverse order.
"""


# ---------------------------------------------------------------------------------------------
# A tuning on this host: seen, carried out, taken back


class Row:
    """How one setting stands on this host. ``problem`` says why the host cannot do it."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.runtime: Optional[Value] = None
        self.persistent: Optional[Value] = None
        self.wanted: Value = setting.value
        self.differs = {"runtime": False, "stored": False}
        self.problem: Optional[str] = None

    @property
    def values(self) -> Json:
        """Both facts."""
        return {"runtime": self.runtime, "persistent": self.persistent}

    @property
    def shown(self) -> Json:
        """As it stands in an answer."""
        return dict(self.values, id=self.setting.id, wanted=self.wanted, reason=self.reason)

    @property
    def as_wanted(self) -> bool:
        """Whether there is nothing to do."""
        return not self.problem and not any(self.differs.values())

    @property
    def status(self) -> str:
        """``change``, ``noop`` or ``unsupported``."""
        if self.problem:
            return "unsupported"
        return "noop" if self.as_wanted else "change"

    @property
    def reason(self) -> str:
        """The same in words."""
        if self.problem:
            return self.problem
        if self.as_wanted:
            return "is as wanted"
        if not self.differs["stored"]:
            return "differs now"
        return "differs" if self.differs["runtime"] else "would be lost at the next boot"


def observe(host: Host, setting: Setting, tuning: str) -> Row:
    """Read one setting, and find out what would have to be done. Touches nothing."""
    row = Row(setting)
    kind = host.kinds[setting.kind]
    try:
        row.persistent = stored_value(kind, setting)
        row.runtime = kind.asked(kind.runtime(setting.target), setting.value)
        rounded = kind.rounded(setting.target, setting.value)
        row.wanted = bounded(setting.only, row.runtime, rounded)
        row.differs["runtime"] = not reached(kind, setting, row.runtime)
        row.differs["stored"] = _must_store(kind, row)
        _probe(host, kind, row, tuning)
    except Unsupported as why:
        row.problem = str(why)
    except ValueError as error:
        row.problem = f"cannot be compared: {error}"
    return row


def stored_value(kind: Kind, setting: Setting) -> Optional[Value]:
    """What will be in force after a boot, as far as the setting speaks of it."""
    found = kind.persistent(setting.target)
    said = None if found is None else kind.asked(found, setting.value)
    return None if said == {} else said


def reached(kind: Kind, setting: Setting, value: Optional[Value]) -> bool:
    """Whether a value is as the setting wants it; ``only`` is content with more, or less."""
    if value is None:
        return False
    wanted = kind.rounded(setting.target, setting.value)
    return kind.same(value, bounded(setting.only, value, wanted))


def _must_store(kind: Kind, row: Row) -> bool:
    # Where nobody has said anything, a default that is good enough now is so after a boot.
    if row.persistent is None and row.setting.only:
        return row.differs["runtime"]
    return not reached(kind, row.setting, row.persistent)


def _probe(host: Host, kind: Kind, row: Row, tuning: str) -> None:
    if row.differs["runtime"]:
        kind.probe(row.setting)
        if row.setting.restart:
            _probe_restart(host, row.setting.restart)
    if row.differs["stored"]:
        kind.probe_stored(row.setting, tuning)


def _probe_restart(host: Host, service: str) -> None:
    if not host.program("systemctl"):
        raise Unsupported(f"without systemctl {service} cannot be restarted")
    if not is_active(host, service):
        raise Unsupported(f"the service {service} is {service_state(host, service)}")


def service_state(host: Host, service: str) -> str:
    """``active``, ``inactive``, ``failed``, ...; ``unknown`` without an answer."""
    try:
        return host.attempt("systemctl", "is-active", service)[1].strip() or "unknown"
    except Failed:
        return "unknown"


def is_active(host: Host, service: str) -> bool:
    """Whether a service runs."""
    return service_state(host, service) == "active"


def awaited_state(host: Host, service: str, seconds: float) -> str:
    """The state of a service, which is given some time to start unless it failed."""
    deadline = time.monotonic() + seconds
    state = service_state(host, service)
    while state not in ("active", "failed") and time.monotonic() < deadline:
        time.sleep(0.1)
        state = service_state(host, service)
    return state


def restart(host: Host, services: Sequence[str]) -> None:
    """Restart services one by one; Failed when one does not come up again in time."""
    for service in services:
        host.run("systemctl", "restart", service)
        state = awaited_state(host, service, RESTART_WAIT)
        if state != "active":
            raise Failed(f"{service} is {state} after its restart")


def in_order(entries: Sequence[Entry]) -> List[Entry]:
    """Entries in the order of application."""
    kinds = list(KINDS)
    return sorted(entries, key=lambda entry: kinds.index(entry.setting.kind))


def begin(host: Host, rows: Sequence[Row], head: Json) -> Journal:
    """The journal of a tuning that is about to be applied, not written down yet."""
    entries = []
    for row in rows:
        old = row.setting
        setting = Setting(old.kind, old.target, row.wanted, old.only, old.restart)
        kind = host.kinds[old.kind]
        snapshot = kind.snapshot(old.target) if row.differs["runtime"] else None
        entries.append(Entry(setting, row.values, snapshot, row.differs))
    newest = max([journal.sequence for journal in host.journals.all()] or [0])
    own = {"journal": JOURNAL_VERSION, "state": "applying", "sequence": newest + 1}
    empty: Json = {"deadline": {}, "services_due": [], "files": {}, "entries": []}
    journal = Journal({**own, **empty, **head})
    journal.entries = entries
    journal.files = {name: remember_file(host, name) for name in stored_files(host, journal)}
    return journal


def stored_files(host: Host, journal: Journal) -> Dict[str, str]:
    """The files that keep a tuning over a boot, with their content."""
    found: Dict[str, str] = {}
    for name, kind in host.kinds.items():
        stored = [entry.setting for entry in journal.entries if entry.stored]
        own = [setting for setting in stored if setting.kind == name]
        found.update(kind.files(journal, own) if own else {})
    return found


def services_of(entries: Sequence[Entry]) -> List[str]:
    """The services to be restarted for what changes now, each once."""
    changed = [entry.setting for entry in in_order(entries) if entry.runtime]
    return list(dict.fromkeys(own.restart for own in changed if own.restart))


def carry_out(host: Host, journal: Journal) -> List[str]:
    """Do what a journal says and prove it; the services that were restarted come back.

    Whatever it raises, the journal tells how to take it back.
    """
    host.reserve()
    host.journals.save(journal)
    host.hook.sync()
    if journal.provisional:
        arm_timer(host, journal)
    for entry in in_order(journal.entries):
        if entry.runtime:
            set_now(host, entry)
    _store(host, journal)
    services = services_of(journal.entries)
    restart(host, services)
    _prove(host, journal, services)
    journal.state = "provisional" if journal.provisional else "confirmed"
    host.journals.save(journal)
    host.hook.sync()
    return services


def set_now(host: Host, entry: Entry) -> None:
    """Change one setting and read it back; Failed names it."""
    setting = entry.setting
    kind = host.kinds[setting.kind]
    try:
        kind.apply(setting.target, setting.value)
        now = kind.runtime(setting.target) if kind.live else setting.value
        now = kind.asked(now, setting.value)
    except (OSError, AgentError, Unsupported) as error:
        text = error.strerror if isinstance(error, OSError) else str(error)
        raise Failed(f"{setting.id}: cannot be set to {setting.value}: {text}") from None
    if not kind.same(now, setting.value):
        raise Failed(f"{setting.id}: reads {now} after {setting.value} was written")


def _store(host: Host, journal: Journal) -> None:
    for name, text in stored_files(host, journal).items():
        Directories(host).make(os.path.dirname(name))
        host.write(name, text.encode())
    _reload(host, journal)


def _reload(host: Host, journal: Journal) -> None:
    for name in dict.fromkeys(entry.setting.kind for entry in journal.entries if entry.stored):
        host.kinds[name].reload()


def _prove(host: Host, journal: Journal, services: Sequence[str]) -> None:
    rows = [observe(host, entry.setting, journal.tuning) for entry in journal.entries]
    wrong = [
        f"{row.setting.id}: {row.reason}: is {row.runtime}, stored {row.persistent}"
        for row in rows
        if not row.as_wanted
    ]
    wrong += [f"{service} is not active" for service in services if not is_active(host, service)]
    if wrong:
        raise Failed("; ".join(wrong))


class Undone:
    """What taking a tuning back did: rows as in a diff, and the services restarted."""

    def __init__(self, changed: bool, diff: List[Json], restarted: List[str]) -> None:
        self.changed = changed
        self.diff = diff
        self.restarted = restarted


def take_back(host: Host, journal: Journal, restarting: bool = True) -> Undone:
    """Put everything back as the journal remembers it, to the byte, and forget the journal.

    Goes on after a problem; Failed names them all, and the journal stays for another try.
    Refused when a tuning that was applied later changes the same things.
    """
    _refuse_out_of_order(host, journal)
    found = [current(host, entry.setting) for entry in journal.entries]
    changed = _differs(host, journal, found)
    unsaved = _mark_restoring(host, journal, services_of(journal.entries if changed else []))
    services = journal.services_due if restarting else []
    problems = _put_back(host, journal)
    _attempt(problems, "", restart, host, services)
    left = [current(host, entry.setting) for entry in journal.entries]
    if problems:
        raise Failed("; ".join(unsaved + problems))
    disarm_timer(host, journal)
    host.journals.forget(journal.tuning)
    host.hook.sync()
    return Undone(changed, diff_of(journal.entries, found, left), list(services))


def _mark_restoring(host: Host, journal: Journal, due: Sequence[str]) -> List[str]:
    """Write down that a tuning is taken back; the problem, where it is no reason to leave it.

    It is none for a tuning that is not confirmed: its journal asks for its end in any state.
    """
    needed = journal.state == "confirmed"
    journal.state = "restoring"
    journal.services_due = list(dict.fromkeys([*journal.services_due, *due]))
    problems: List[str] = []
    # If we die on the way, and nobody asks again, the next boot goes on.
    _attempt([], "", host.hook.install)
    _attempt(problems, "", host.journals.save, journal)
    if problems and needed:
        raise Failed(problems[0])
    return problems


def take_back_live(host: Host, journal: Journal, names: Sequence[str]) -> Undone:
    """Set the runtime values of some settings back, in place: no file, no service is touched.

    The journal stays, ``restoring``: `take_back` does the rest. Failed and Refused as there.
    """
    _refuse_out_of_order(host, journal)
    chosen = [
        entry
        for entry in journal.entries
        if entry.setting.id in names and entry.runtime and host.kinds[entry.setting.kind].live
    ]
    found = [current(host, entry.setting) for entry in chosen]
    due = [entry for entry, now in zip(chosen, found) if now["runtime"] != entry.before["runtime"]]
    unsaved = _mark_restoring(host, journal, services_of(due))
    problems: List[str] = []
    _put_settings_back(host, chosen, problems)
    if problems:
        raise Failed("; ".join(unsaved + problems))
    diff = diff_of(chosen, found, [current(host, entry.setting) for entry in chosen])
    return Undone(bool(diff), diff, [])


def current(host: Host, setting: Setting) -> Json:
    """What is in force and what is stored; None for what the host does not have."""
    kind = host.kinds[setting.kind]
    try:
        runtime: Optional[Value] = kind.asked(kind.runtime(setting.target), setting.value)
    except Unsupported:
        runtime = None
    return {"runtime": runtime, "persistent": stored_value(kind, setting)}


def diff_of(entries: Sequence[Entry], before: Sequence[Json], after: Sequence[Json]) -> List[Json]:
    """A row for each setting that differs."""
    pairs = zip([entry.setting.id for entry in entries], before, after)
    return [{"id": name, "before": b, "after": a} for name, b, a in pairs if a != b]


def _refuse_out_of_order(host: Host, journal: Journal) -> None:
    for other in host.journals.all():
        shared = journal.scopes() & other.scopes()
        if other.sequence > journal.sequence and shared:
            what = ", ".join(sorted(shared))
            raise Refused(f"{other.tuning} was applied later and changes {what}: restore it first")


def _differs(host: Host, journal: Journal, found: Sequence[Json]) -> bool:
    settings = any(entry.before != now for entry, now in zip(journal.entries, found))
    return settings or not all(
        is_as_remembered(host, name, was) for name, was in journal.files.items()
    )


def _put_back(host: Host, journal: Journal) -> List[str]:
    """Files first, then settings in the reverse order; the problems there were come back."""
    problems: List[str] = []
    for name, was in journal.files.items():
        _attempt(problems, name, put_file_back, host, name, was)
    _attempt(problems, "", _reload, host, journal)
    _put_settings_back(host, journal.entries, problems)
    return problems


def _put_settings_back(host: Host, entries: Sequence[Entry], problems: List[str]) -> None:
    changed = [
        entry
        for entry in reversed(in_order(entries))
        if entry.runtime and host.kinds[entry.setting.kind].present(entry.setting.target)
    ]
    # Only when all is back can it be read back: queues come and go with the channels.
    for step in (_set_back, _check_back):
        for entry in changed:
            _attempt(problems, entry.setting.id, step, host, entry)


def _set_back(host: Host, entry: Entry) -> None:
    host.kinds[entry.setting.kind].restore(entry.setting.target, entry.snapshot)


def _check_back(host: Host, entry: Entry) -> None:
    kind, was = host.kinds[entry.setting.kind], entry.before["runtime"]
    now = current(host, entry.setting)["runtime"] if kind.live else was
    if now != was:
        raise Failed(f"reads {now} after {was} was restored")


def _attempt(problems: List[str], what: str, action: Callable[..., object], *given: Any) -> None:
    try:
        action(*given)
    except Exception as error:
        problems.append(f"{what}: {complaint(error)}" if what else complaint(error))


def complaint(error: Exception) -> str:
    """What an error says; of one that nobody foresaw, its name as well."""
    foreseen = isinstance(error, (OSError, AgentError, Unsupported))
    return str(error) if foreseen else f"{type(error).__name__}: {error}"


# ---------------------------------------------------------------------------------------------
# Verbs


def verb_plan(host: Host, request: Fields) -> Json:
    """What a tuning would do here; writes nothing at all."""
    tuning = request.text("tuning", TUNING)
    request.text("digest", DIGEST)
    settings = read_settings(request)
    request.done()
    rows = [observe(host, setting, tuning) for setting in settings]
    shown = [dict(row.shown, status=row.status) for row in rows]
    return {"boot_id": host.boot_id, "settings": shown}


def verb_apply(host: Host, request: Fields) -> Json:
    """Change the host to what the plan showed, wholly or not at all."""
    epoch = _read_epoch(request)
    head = {
        "rollout": request.text("rollout", LINE),
        "tuning": request.text("tuning", TUNING),
        "digest": request.text("digest", DIGEST),
        "confirm_within": request.seconds("confirm_within"),
        "grace_boots": request.whole("grace_boots", 0, 1, default=0),
    }
    settings = read_settings(request)
    expect = _read_expect(request, settings)
    request.done()
    with host.lock():
        host.fence(epoch)
        return _apply(host, head, settings, expect)


def _apply(host: Host, head: Json, settings: List[Setting], expect: Json) -> Json:
    standing = host.journals.load(head["tuning"])
    if standing is not None:
        if standing.digest != head["digest"]:
            raise Refused(f"{standing.tuning} stands here with another digest: restore it first")
        if standing.state not in UNSETTLED and _verify(host, head["tuning"], settings)["verified"]:
            return _applied(host, standing, [], [])
        take_back(host, standing)
    _refuse_unsettled(host)
    rows = [observe(host, setting, head["tuning"]) for setting in settings]
    _refuse_unsupported(host, rows, head)
    _refuse_unexpected(rows, expect)
    journal = begin(host, rows, head)
    try:
        restarted = carry_out(host, journal)
    except Exception as error:
        raise _undo(host, journal, error) from None
    after = [current(host, setting) for setting in settings]
    diff = diff_of(journal.entries, [row.values for row in rows], after)
    return _applied(host, journal, diff, restarted)


def _applied(host: Host, journal: Journal, diff: List[Json], restarted: List[str]) -> Json:
    return {
        "changed": bool(diff),
        "diff": diff,
        "restarted": restarted,
        "state": journal.state,
        "boot_id": host.boot_id,
    }


def _read_epoch(request: Fields) -> int:
    return request.whole("epoch", 0, 2**63 - 1)


def _read_expect(request: Fields, settings: List[Setting]) -> Json:
    fields = request.inside("expect")
    expect = {}
    for setting in settings:
        row = fields.inside(setting.id)
        names = ("runtime", "persistent")
        expect[setting.id] = {name: row.raw(name) for name in names}
        row.done()
    fields.done()
    return expect


def _refuse_unsettled(host: Host) -> None:
    for journal in host.journals.all():
        if journal.state != "confirmed":
            what = f"the tuning {journal.tuning} on this host is {journal.state}"
            raise Refused(f"{what}: restore it first")
    for why in host.journals.damaged().values():
        raise Refused(why)


def _refuse_unsupported(host: Host, rows: Sequence[Row], head: Json) -> None:
    for row in rows:
        if row.problem:
            raise Refused(f"{row.setting.id}: {row.problem}")
    try:
        if head["confirm_within"]:
            host.hook.probe()
    except Unsupported as why:
        raise Refused(f"confirm_within: {why}") from None


def _refuse_unexpected(rows: Sequence[Row], expect: Json) -> None:
    for row in rows:
        planned = expect[row.setting.id]
        for name, value in row.values.items():
            if value != planned[name]:
                text = f"{row.setting.id}: {name} is {value}, the plan saw {planned[name]}"
                raise Refused(text)


def _undo(host: Host, journal: Journal, error: Exception) -> Failed:
    text = str(error) if isinstance(error, AgentError) else f"{type(error).__name__}: {error}"
    try:
        take_back(host, journal)
    except Exception as worse:
        return Failed(f"{text}; NOT undone: {complaint(worse)}")
    return Failed(f"{text}; undone")


def verb_verify(host: Host, request: Fields) -> Json:
    """Whether every setting is as wanted, now and after a boot, and the services run."""
    tuning = request.text("tuning", TUNING)
    request.optional("digest", DIGEST)
    settings = read_settings(request)
    request.done()
    return _verify(host, tuning, settings)


def _verify(host: Host, tuning: str, settings: List[Setting]) -> Json:
    journal = host.journals.load(tuning)
    named = [setting.restart for setting in settings if setting.restart]
    # Just after a boot a service may not have come up yet, and tells nothing of its properties.
    services = {name: awaited_state(host, name, START_WAIT) for name in dict.fromkeys(named)}
    rows = [observe(host, setting, tuning) for setting in settings]
    running = all(state == "active" for state in services.values())
    return {
        "boot_id": host.boot_id,
        "verified": running and all(row.as_wanted for row in rows),
        "state": journal.state if journal else "none",
        "settings": [dict(row.shown, ok=row.as_wanted) for row in rows],
        "services": services,
    }


def verb_confirm(host: Host, request: Fields) -> Json:
    """Keep a change that verifies; the revert timer finds it confirmed, or was there first."""
    epoch = _read_epoch(request)
    tuning = request.text("tuning", TUNING)
    digest = request.optional("digest", DIGEST)
    settings = read_settings(request)
    request.done()
    with host.lock():
        host.fence(epoch)
        journal = host.journals.load(tuning)
        if journal:
            _refuse_another(journal, digest, settings)
        result = _verify(host, tuning, settings)
        kept = journal is not None and journal.state not in UNSETTLED and result["verified"]
        if kept and journal is not None and journal.state != "confirmed":
            journal.state = "confirmed"
            # Else a timer that is still running would end a later restore of single settings.
            journal.deadline = {}
            host.journals.save(journal)
            disarm_timer(host, journal)
            host.hook.sync()
        state = journal.state if journal else "none"
        return dict(result, confirmed=kept, state=state)


def _refuse_another(journal: Journal, digest: Optional[str], settings: Sequence[Setting]) -> None:
    """Nothing is to be kept that was not looked at."""
    if digest not in (None, journal.digest):
        raise Refused(f"{journal.tuning} stands here with another digest: {journal.digest}")
    asked = {setting.id for setting in settings}
    differing = asked ^ {entry.setting.id for entry in journal.entries}
    if differing:
        what = ", ".join(sorted(differing))
        raise Refused(f"{journal.tuning} stands here with other settings: {what}")


def verb_restore(host: Host, request: Fields) -> Json:
    """Take a tuning back from the journal; safe to repeat.

    With ``rollout`` only what that rollout did: another one's change is not ours to take back.
    With ``live`` only the runtime values of the settings it names; see `take_back_live`.
    """
    epoch = _read_epoch(request)
    tuning = request.text("tuning", TUNING)
    rollout = request.optional("rollout", LINE)
    live = request.texts("live")
    request.done()
    with host.lock():
        host.fence(epoch)
        journal = host.journals.load(tuning)
        if journal is None:
            # What an agent may have left that was killed at its very first or last step.
            host.journals.forget(tuning)
            host.hook.sync()
        ours = journal if journal and rollout in (None, journal.rollout) else None
        undone = Undone(False, [], [])
        if ours is not None and live is None:
            undone = take_back(host, ours)
        elif ours is not None and live is not None:
            _check_known(request, ours, live)
            undone = take_back_live(host, ours, live)
        return dict(vars(undone), boot_id=host.boot_id, nothing_to_restore=ours is None)


def _check_known(request: Fields, journal: Journal, names: Sequence[str]) -> None:
    known = [entry.setting.id for entry in journal.entries]
    for index, name in enumerate(names):
        if name not in known:
            raise request.wrong(f"live[{index}]", f"is no setting of {journal.tuning} here")


def verb_ready(host: Host, request: Fields) -> Json:
    """Let the host's own health check say "not ready", or let it decide again; also after a boot.

    The marker is one line, the rollout's id. A full disk stops neither: the marker is empty then,
    and where no epoch was ever seen this one is not remembered (nothing can be applied there).
    ``sessions`` counts what is open on ``ports``: a load balancer that was reloaded does not
    know those of its former process.
    """
    epoch = _read_epoch(request)
    rollout = request.text("rollout", LINE)
    ready = request.flag("ready")
    ports = request.wholes("ports", 1, 65535)
    request.done()
    with host.lock():
        with _room_or_not():
            host.fence(epoch)
        changed = host.ready != ready
        host.make_directory(os.path.dirname(NOT_READY))
        if ready:
            host.remove(NOT_READY)
            # Whoever removed it before us may have been killed before that was durable.
            _sync_directory(os.path.dirname(host.path(NOT_READY)))
        else:
            _mark_not_ready(host, rollout)
        return {
            "changed": changed,
            "ready": host.ready,
            "sessions": sum(_sessions(host, port) for port in ports),
            "boot_id": host.boot_id,
        }


def _sessions(host: Host, port: int) -> int:
    """TCP connections to a port, from elsewhere, over which something can still come or go."""
    rows = [
        line.split()[1:4]
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in host.text(table).splitlines()[1:]
    ]
    return sum(
        local.endswith(f":{port:04X}")
        and state in OPEN_STATES
        and not remote.rpartition(":")[0].endswith(LOOPBACK)
        for local, remote, state in rows
    )


def _mark_not_ready(host: Host, rollout: str) -> None:
    with _room_or_not():
        host.replace(NOT_READY, f"{rollout}\n".encode())
        return
    if host.ready:
        host.replace(NOT_READY, b"")


@contextlib.contextmanager
def _room_or_not() -> Iterator[None]:
    """Do without what a full disk cannot take."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise


def verb_reboot(host: Host, request: Fields) -> Json:
    """Reboot, while the host is still in the boot that was meant.

    Asked again at once it does nothing; asked again later in the same boot, it sends the command
    once more: the first may have died with the agent, or have been lost. That is no second reset.
    The boot_id is compared here, on the host, and what is started then dies with this boot, as
    everything does that could still send the command: no later boot ever sees it.
    """
    epoch = _read_epoch(request)
    boot_id = request.text("boot_id", LINE)
    request.done()
    with host.lock():
        host.fence(epoch)
        now = host.boot_id
        meant = boot_id == now
        if meant and not _sent_just_now(host):
            # The reply goes out first. Never by kexec: the BIOS must run.
            code = "import os, sys, time; time.sleep(0.3); os.execv(sys.argv[1], sys.argv[1:])"
            command = _reboot_command(host)
            host.detach([agent_command("")[0], "-I", "-S", "-c", code, *command])
            with _room_or_not():
                mark = f"{now} {time.monotonic():.3f}\n"
                host.replace(REBOOT_MARK, mark.encode(), 0o600)
        return {"rebooting": meant, "boot_id": now}


def _sent_just_now(host: Host) -> bool:
    """Whether this boot's end was asked for less than ``REBOOT_AGAIN`` s ago."""
    boot_id, _, sent = host.text(REBOOT_MARK).partition(" ")
    if boot_id != host.boot_id or not re.fullmatch(r"[0-9]+\.[0-9]+", sent):
        return False
    return time.monotonic() - float(sent) < REBOOT_AGAIN


def _reboot_command(host: Host) -> List[str]:
    words = ["systemctl", "reboot"] if host.init == "systemd" else ["reboot"]
    program = host.program(words[0])
    if program is None:
        raise Refused(f"there is no program {words[0]}")
    return [program, *words[1:]]


# ---------------------------------------------------------------------------------------------
# What a host is, and how it does


def verb_facts(host: Host, request: Fields) -> Json:
    """What tunings may be rendered from, and what stands on the host."""
    request.done()
    online = host.text("/sys/devices/system/cpu/online", "0")
    return {
        "hostname": host.text("/proc/sys/kernel/hostname", os.uname().nodename),
        "os": _os_release(host),
        "kernel": host.text("/proc/sys/kernel/osrelease", os.uname().release),
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "boot_id": host.boot_id,
        "uptime": _first_number(host, "/proc/uptime"),
        "cpus": {"online": online, "count": len(parse_cpus(online))},
        "memory": {"total_kb": _meminfo(host).get("MemTotal")},
        "nics": {name: _nic(host, name) for name in interfaces(host)},
        "thp": _huge_pages(host),
        "init": host.init,
        "agent_state": _agent_state(host),
    }


def _os_release(host: Host) -> Json:
    text = host.text("/etc/os-release") or host.text("/usr/lib/os-release")
    pairs = [line.partition("=") for line in text.splitlines()]
    known = {key: value.strip("'\"") for key, _, value in pairs}
    return {"id": known.get("ID", ""), "version": known.get("VERSION_ID", "")}


def _agent_state(host: Host) -> Json:
    tunings: Dict[str, Json] = {
        journal.tuning: {
            "state": journal.state,
            "digest": journal.digest,
            "rollout": journal.rollout,
        }
        for journal in host.journals.all()
    }
    for tuning in host.journals.damaged():
        tunings[tuning] = {"state": "damaged", "digest": "", "rollout": ""}
    return {"epoch": host.epoch(), "ready": host.ready, "tunings": tunings}


def _huge_pages(host: Host) -> Json:
    kind = MemoryThp(host)
    files = [{"file": name} for name in ("enabled", "defrag")]
    return {own["file"]: kind.runtime(own) for own in files if kind.present(own)}


def _nic(host: Host, name: str) -> Json:
    directory = f"/sys/class/net/{name}"
    queues = host.names(f"{directory}/queues")
    ring = _counts_of(NicRing(host), name)
    return {
        "driver": driver_of(host, name),
        "speed": _positive(host.text(f"{directory}/speed")),
        "numa_node": _positive(host.text(f"{directory}/device/numa_node")),
        "queues": {side: len([q for q in queues if q.startswith(side)]) for side in ("rx", "tx")},
        "channels": _counts_of(NicChannels(host), name),
        "ring": ring,
        "ring_max": ring and ring["max"],
    }


def _counts_of(kind: NicCounts, interface: str) -> Optional[Json]:
    try:
        return kind.read(interface)
    except Unsupported:
        return None


def _positive(text: str) -> Optional[int]:
    return int(text) if text.isdigit() else None


def interfaces(host: Host) -> List[str]:
    """The interfaces that carry a host's traffic: those with a device, else all but the made-up.

    With devices there, what is stacked on them (bonds, VLANs, containers) would count twice.
    """
    base = "/sys/class/net"
    names = [name for name in host.names(base) if host.exists(f"{base}/{name}/statistics")]
    physical = [name for name in names if host.exists(f"{base}/{name}/device")]
    marks = ("bridge", "tun_flags", "bonding")
    return physical or [
        name
        for name in names
        if name != "lo"
        and not name.startswith("ifb")
        and not any(host.exists(f"{base}/{name}/{mark}") for mark in marks)
    ]


def verb_sample(host: Host, request: Fields) -> Json:
    """Counters that only grow within a boot, and gauges; what cannot be read is left out."""
    url = request.optional("health_url", r"http://[A-Za-z0-9.:\[\]-]+(/[!-~]*)?")
    count = request.whole("health_requests", 0, 1000, default=5)
    request.done()
    address = _health_address(request, url) if url else None
    counters: Json = {}
    for source in (_tcp_counters, _nic_counters, _softnet_counters, _cpu_counters):
        counters.update(source(host))
    gauges = {
        "load1": _first_number(host, "/proc/loadavg"),
        "memory_available_kb": _meminfo(host).get("MemAvailable"),
    }
    if address:
        gauges.update(_health(address, count))
    return {
        "boot_id": host.boot_id,
        "uptime": _first_number(host, "/proc/uptime"),
        "counters": counters,
        "gauges": {name: value for name, value in gauges.items() if value is not None},
    }


def _first_number(host: Host, file: str) -> Optional[float]:
    words = host.text(file).split()
    return float(words[0]) if words else None


def _meminfo(host: Host) -> Dict[str, int]:
    found = re.findall(r"^(\w+):\s+([0-9]+)", host.text("/proc/meminfo"), re.MULTILINE)
    return {name: int(number) for name, number in found}


def _tcp_counters(host: Host) -> Dict[str, int]:
    known = dict(_protocol_counters(host.text("/proc/net/netstat")))
    known.update(_protocol_counters(host.text("/proc/net/snmp")))
    names = {
        "listen_drops": "TcpExt.ListenDrops",
        "listen_overflows": "TcpExt.ListenOverflows",
        "tcp_retransmits": "Tcp.RetransSegs",
        "tcp_segments_out": "Tcp.OutSegs",
    }
    return {ours: known[theirs] for ours, theirs in names.items() if theirs in known}


def _protocol_counters(text: str) -> Iterator[Tuple[str, int]]:
    """``("Tcp.OutSegs", 12)``, ... from the pairs of lines of netstat and snmp."""
    names: Dict[str, List[str]] = {}
    for line in text.splitlines():
        protocol, _, rest = line.partition(":")
        if protocol not in names:
            names[protocol] = rest.split()
            continue
        for name, number in zip(names.pop(protocol), rest.split()):
            if number.isdigit():
                yield f"{protocol}.{name}", int(number)


def _nic_counters(host: Host) -> Dict[str, int]:
    names = {
        "rx_packets": "rx_packets",
        "rx_bytes": "rx_bytes",
        "tx_packets": "tx_packets",
        "rx_dropped": "rx_dropped",
        "rx_missed": "rx_missed_errors",
        "rx_errors": "rx_errors",
    }
    found: Dict[str, int] = {}
    for interface in interfaces(host):
        for ours, theirs in names.items():
            number = host.text(f"/sys/class/net/{interface}/statistics/{theirs}")
            if number.isdigit():
                found[ours] = found.get(ours, 0) + int(number)
    return found


def _softnet_counters(host: Host) -> Dict[str, int]:
    """Columns 1 and 2 of softnet_stat, hex, a line for each CPU; there are 11 to 15 columns."""
    rows = [line.split() for line in host.text("/proc/net/softnet_stat").splitlines()]
    try:
        columns = [(int(row[1], 16), int(row[2], 16)) for row in rows]
    except (IndexError, ValueError):
        return {}
    if not columns:
        return {}
    dropped, squeezed = zip(*columns)
    return {"backlog_dropped": sum(dropped), "time_squeeze": sum(squeezed)}


def _cpu_counters(host: Host) -> Dict[str, int]:
    """From the line of all CPUs in /proc/stat: user nice system idle iowait irq softirq steal."""
    line = re.match(r"cpu +([0-9 ]+)", host.text("/proc/stat"))
    if line is None:
        return {}
    ticks = [int(word) for word in line.group(1).split()[:8]]
    in_ms = 1000 // os.sysconf("SC_CLK_TCK")
    total = sum(ticks)
    return {"cpu_busy_ms": (total - sum(ticks[3:5])) * in_ms, "cpu_total_ms": total * in_ms}


def _health_address(request: Fields, url: str) -> Tuple[str, int, str]:
    """Name, port and path of a URL."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        name, port = parts.hostname, parts.port
    except ValueError as error:
        raise request.wrong("health_url", str(error)) from None
    if not name:
        raise request.wrong("health_url", "names no host")
    path = parts.path or "/"
    return name, port or 80, f"{path}?{parts.query}" if parts.query else path


def _health(address: Tuple[str, int, str], count: int) -> Json:
    """Ask a number of times, each over its own connection; times in ms of those that went well."""
    times = [_ask_health(address) for _ in range(count)]
    well = sorted(taken for taken in times if taken is not None)
    found: Json = {"health_failed": (count - len(well)) / count} if count else {}
    for share in (50, 95, 99) if well else ():
        # Nearest rank: the smallest time that so many per cent do not exceed.
        rank = max(-(-share * len(well) // 100), 1)
        found[f"health_p{share}_ms"] = round(well[rank - 1], 3)
    return found


def _ask_health(address: Tuple[str, int, str]) -> Optional[float]:
    import http.client

    name, port, path = address
    connection = http.client.HTTPConnection(name, port, timeout=HEALTH_TIMEOUT)
    started = time.monotonic()
    try:
        connection.request("GET", path, headers={"Connection": "close"})
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return (time.monotonic() - started) * 1000 if 200 <= answer.status < 300 else None


# ---------------------------------------------------------------------------------------------
# What runs when nobody asks


def boot(host: Host) -> List[str]:
    """Set again what nothing else keeps, and take back what was never confirmed.

    A provisional change survives ``grace_boots`` boots, and its revert timer starts anew.
    Services are not restarted: at this point of the boot they have not been started yet.
    """
    problems: List[str] = []
    with host.lock(60.0):
        for journal in reversed(host.journals.all()):
            _attempt(problems, journal.tuning, _end_if_due, host, journal)
        for journal in host.journals.all():
            if journal.state not in UNSETTLED:
                _attempt(problems, journal.tuning, _carry_on, host, journal, problems)
        _attempt(problems, "", host.hook.sync)
    return problems + list(host.journals.damaged().values())


def _end_if_due(host: Host, journal: Journal) -> None:
    if not _survives(host, journal):
        take_back(host, journal, False)


def _survives(host: Host, journal: Journal) -> bool:
    """Whether a tuning outlives this boot; one of its grace boots is used up by that."""
    if journal.state != "provisional":
        return journal.state == "confirmed"
    if journal.deadline.get("boot_id") == host.boot_id:
        return True
    if journal.grace_boots == 0:
        return False
    journal.grace_boots -= 1
    journal.deadline = {"boot_id": host.boot_id, "monotonic": time.monotonic()}
    host.journals.save(journal)
    return True


def _carry_on(host: Host, journal: Journal, problems: List[str]) -> None:
    """Set again what no file keeps; without a timer nobody would take back what is provisional."""
    if journal.provisional:
        try:
            arm_timer(host, journal)
        except Exception as error:
            take_back(host, journal, False)
            raise Failed(f"taken back, as its timer cannot be set: {complaint(error)}") from None
    _set_again(host, journal, problems)


def _set_again(host: Host, journal: Journal, problems: List[str]) -> None:
    entries = [entry for entry in in_order(journal.entries) if entry.stored and by_hook(entry)]
    _await(host, entries)
    for entry in entries:
        row = observe(host, entry.setting, journal.tuning)
        if row.problem:
            problems.append(f"{entry.setting.id}: {row.problem}")
        elif row.differs["runtime"]:
            _attempt(problems, "", set_now, host, entry)


def _await(host: Host, entries: Sequence[Entry]) -> None:
    """Drivers may bring their interfaces some time after the boot hook started."""
    end = time.monotonic() + BOOT_WAIT
    settings = [entry.setting for entry in entries]
    while time.monotonic() < end:
        if all(host.kinds[setting.kind].present(setting.target) for setting in settings):
            return
        time.sleep(0.1)


def revert(host: Host, tuning: str) -> None:
    """Wait for the deadline of a tuning, then take it back, unless somebody settled it before.

    Tries again and again: nobody else takes back a change that cut its host off.
    """
    waiting = True
    while waiting:
        try:
            waiting = _revert_if_due(host, tuning)
        except Exception as error:
            sys.stderr.write(f"edgetune: {tuning}: {complaint(error)}\n")
            time.sleep(REVERT_AGAIN)


def _revert_if_due(host: Host, tuning: str) -> bool:
    """One look at the clock; whether there is more to wait for."""
    left = time_left(host, host.journals.load(tuning))
    if left is None:
        return False
    if left > 0:
        time.sleep(min(left, 1.0))
        return True
    with host.lock(600.0):
        journal = host.journals.load(tuning)
        if journal is not None and time_left(host, journal) == 0:
            take_back(host, journal)
    return True


# ---------------------------------------------------------------------------------------------
# Start

VERBS: Dict[str, Callable[[Host, Fields], Json]] = {
    "facts": verb_facts,
    "plan": verb_plan,
    "apply": verb_apply,
    "verify": verb_verify,
    "confirm": verb_confirm,
    "restore": verb_restore,
    "ready": verb_ready,
    "reboot": verb_reboot,
    "sample": verb_sample,
}


OTHER_PROTOCOL = (
    f"is not {PROTOCOL}, which this agent speaks: it goes with the pack that it comes from, so "
    "ask with that version, or install the pack anew and restart its workers"
)


def answer(root: str, text: bytes) -> Json:
    """The reply to a request, whatever that is."""
    reply: Json = {"edgetune": PROTOCOL, "verb": None, "ok": False}
    try:
        request = Fields(_parse(text))
        protocol = request.raw("protocol")
        if protocol != PROTOCOL or isinstance(protocol, bool):
            raise request.wrong("protocol", f"{OTHER_PROTOCOL}; got {protocol!r}")
        verb = request.text("verb", "|".join(VERBS))
        reply["verb"] = verb
        return dict(reply, ok=True, result=VERBS[verb](Host(root), request))
    except AgentError as error:
        return dict(reply, error=_error(error.reason, error.field, str(error)))
    except Exception as error:
        return dict(reply, error=_error("failed", None, f"{type(error).__name__}: {error}"))


def _parse(text: bytes) -> Any:
    try:
        return json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise BadRequest(None, f"the request is not JSON: {error}") from None


def _error(reason: str, field: Optional[str], message: str) -> Json:
    return {"reason": reason, "field": field, "message": " ".join(message.split())}


USAGE = "usage: agent.py boot | agent.py revert TUNING | agent.py restore TUNING"


def _act_alone(host: Host, arguments: List[str]) -> List[str]:
    """What the command line says; what went wrong."""
    problems: List[str] = []
    verb, given = arguments[0], arguments[1:]
    if verb == "boot" and not given:
        _attempt(problems, "", lambda: problems.extend(boot(host)))
    elif verb == "revert" and len(given) == 1:
        _attempt(problems, given[0], revert, host, given[0])
    elif verb == "restore" and len(given) == 1:
        _attempt(problems, given[0], restore_by_hand, host, given[0])
    else:
        problems.append(USAGE)
    return problems


def restore_by_hand(host: Host, tuning: str) -> None:
    """Take a tuning back for a person at the console, and print what that changed.

    No epoch is asked for: whoever can run this can do anything to the host.
    """
    with host.lock():
        journal = host.journals.load(tuning) if re.fullmatch(TUNING, tuning) else None
        if journal is None:
            names = ", ".join(own.tuning for own in host.journals.all()) or "none"
            raise Refused(f"there is no such tuning on this host; there are: {names}")
        undone = take_back(host, journal)
    for row in undone.diff:
        print(f"{row['id']}: {row['before']} -> {row['after']}")
    print(f"{tuning} is taken back; restarted: {', '.join(undone.restarted) or 'nothing'}")


def outlive_the_connection() -> None:
    """Go on to the end when the SSH session is gone: half a change is no state to stop in."""
    # A handler of our own and not SIG_IGN, which the services that we restart would inherit.
    signal.signal(signal.SIGHUP, lambda *_: None)


def main(arguments: List[str]) -> int:
    """Do what the command line says, or answer the request on standard input."""
    os.umask(0o022)
    outlive_the_connection()
    root = os.environ.get("EDGETUNE_ROOT") or "/"
    if arguments:
        problems = _act_alone(Host(root), arguments)
        sys.stderr.writelines(f"edgetune: {problem}\n" for problem in problems)
        return 1 if problems else 0
    reply = json.dumps(answer(root, sys.stdin.buffer.read()), sort_keys=True) + "\n"
    # Nobody may be there to read it.
    with contextlib.suppress(BrokenPipeError), open(1, "wb", closefd=False) as output:
        output.write(reply.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
