# SPDX-License-Identifier: Apache-2.0
"""The host: its files and its programs, below one root directory."""

import contextlib
import errno
import fcntl
import os
import re
import sys
import time
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    ContextManager,
    Dict,
    Iterator,
    List,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
)

from edgetune.agent import kept_copy
from edgetune.agent.disk import MOST_LINKS, NEW_FILE, Directory, Metadata, opened
from edgetune.agent.protocol import Failed, Refused
from edgetune.agent.vocabulary.places import AGENT, NOT_READY, STATE

if TYPE_CHECKING:
    import subprocess

SOURCE = AGENT + kept_copy.SOURCE
COMPILED = AGENT + kept_copy.COMPILED
EPOCH = STATE + "/epoch"
RESERVE = STATE + "/reserve"
RESERVE_BYTES = 512 * 1024
LOCK = "/run/edgetune.lock"
PROGRAMS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LOCK_WAIT = 10.0
COMMAND_TIMEOUT = 60.0
TO_THE_END = {"apt-get": 420.0, "dnf": 420.0, "update-grub": 120.0}
"""Programs that are never killed half way, with the seconds for which we wait for them."""
OF_FREEBSD = "/bin/freebsd-version"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
NOT_WRITABLE = (*NO_ROOM, errno.EROFS)


# What changes the host itself, not by asking a server of its: see Host.attempt.
CHANGES_ITSELF = (
    *("ethtool", "ip", "mount", *TO_THE_END),
    *("sysctl", "kldload", "kldunload", "bectl", "nextboot", "cpuset"),
)
T = TypeVar("T")


class Host:
    """This host, below one root directory."""

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)
        # Whether the boot hook acts: no service has been started yet.
        self.booting = False
        # Whether that goes on late: some services run by now.
        self.late = False
        # By interface the answers of ethtool, since it was last changed.
        self.answers: Dict[str, Any] = {}
        self._locked: Sequence[int] = ()
        self._boot_id = ""
        self._read: Optional[Dict[str, Any]] = None

    def path(self, name: str) -> str:
        """Where the absolute path ``name`` of the host really is."""
        name = self._system_path(name)
        return name if self.root == "/" else self.root + name

    def _system_path(self, name: str) -> str:
        """A path by the name that it has here: /run of Linux is /var/run of FreeBSD."""
        here = f"{name}/".startswith("/run/") and self.system == "freebsd"
        return f"/var{name}" if here else name

    def real(self, name: str) -> str:
        """The same, to be opened; PermissionError when links lead out of a private root."""
        if self.root == "/":
            return self._system_path(name)
        path = os.path.realpath(self.path(name))
        if not path.startswith(self.root + "/"):
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

    def matching(self, pattern: str) -> List[str]:
        """The files there are of a path in which `*` may stand for an interface, or `default`."""
        top, star, rest = pattern.partition("/*/")
        # What the kernel copies to interfaces, it does not copy to `all`.
        names = [name for name in self.names(top) if name != "all"]
        paths = [f"{top}/{name}/{rest}" for name in names] if star else [pattern]
        return [path for path in paths if self.exists(path)]

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

    @contextlib.contextmanager
    def read_cache(self) -> Iterator[None]:
        """While nothing is changed: what is read ``once`` is not read again."""
        outer, self._read = self._read, {} if self._read is None else self._read
        try:
            yield
        finally:
            self._read = outer

    def once(self, what: str, read: Callable[[], T]) -> T:
        """What ``read`` gives; with a ``read_cache`` it is called once for each ``what``."""
        if self._read is None:
            return read()
        if what not in self._read:
            self._read[what] = read()
        found: T = self._read[what]
        return found

    def write_attribute(self, name: str, text: str) -> None:
        """Write into a file of the kernel, which must be there; OSError as it comes."""
        descriptor = os.open(self.real(name), os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def directory(self, name: str) -> ContextManager[Directory]:
        """A directory, open; PermissionError when others than root can change what it holds."""
        return opened(self.root, self._system_path(name))

    def kept(self, name: str) -> Tuple[bytes, Metadata]:
        """A plain file that nobody but root can have put there, with what it has beside its bytes.

        OSError as it comes; Refused for what is no plain file.
        """
        with self.directory(os.path.dirname(name)) as directory:
            return directory.read(os.path.basename(name))

    def followed(self, name: str) -> str:
        """The file that a name leads to; PermissionError for a link that is not root's own."""
        for _ in range(MOST_LINKS):
            try:
                with self.directory(os.path.dirname(name)) as directory:
                    target = directory.link_target(os.path.basename(name))
            except (FileNotFoundError, NotADirectoryError):
                return name
            if target is None:
                return name
            name = os.path.join(os.path.dirname(name), target)
        raise OSError(errno.ELOOP, "too many links", name)

    def write(
        self,
        name: str,
        data: bytes,
        mode: Optional[int] = None,
        like: str = "",
        exactly: Optional[Metadata] = None,
    ) -> None:
        """Replace a file in one step, and durably; its directory must be there.

        A file of the host keeps what it has beside its bytes, and links that lead to it stay; one
        that is made is as the file ``like`` is, else of mode 0644. OSError where other names of it
        would be left behind. A file of ours has its ``mode``; one that is put back is ``exactly``
        as it was.

        On a full disk it is made of the room that ``reserve`` kept, and new room is kept if
        there is any.
        """
        if mode is None and exactly is None:
            name = self.followed(name)
        wanted = exactly or self._wanted(name, mode, like)
        try:
            self._replace(name, data, wanted)
        except OSError as error:
            if error.errno not in NO_ROOM or not self.exists(RESERVE):
                raise
            with self.directory(STATE) as state:
                status = state.status(os.path.basename(RESERVE))
                self._replace(name, data, wanted, (state, os.path.basename(RESERVE)))
            with contextlib.suppress(OSError):
                self.reserve(status.st_size if status else RESERVE_BYTES)

    def replace(self, name: str, data: bytes, mode: int = 0o644) -> None:
        """The same for a file of ours, without the reserve."""
        self._replace(name, data, self._wanted(name, mode, ""))

    def _replace(
        self,
        name: str,
        data: bytes,
        wanted: Metadata,
        room: Optional[Tuple[Directory, str]] = None,
    ) -> None:
        """``room`` is a file that is used up for it."""
        with _named(name), self.directory(os.path.dirname(name)) as directory:
            directory.replace(os.path.basename(name), data, wanted, room)

    def _wanted(self, name: str, mode: Optional[int], like: str) -> Metadata:
        """What a file is to have beside its bytes."""
        with _named(name), self.directory(os.path.dirname(name)) as directory:
            there = directory.metadata(os.path.basename(name))
            why = directory.why_not_parted(os.path.basename(name))
        if mode is not None:
            return there.label_alone(mode) if there else Metadata(mode)
        if why:
            raise OSError(errno.EMLINK, why, name)
        if there is None and like:
            with contextlib.suppress(FileNotFoundError):
                there = self.kept(self.followed(like))[1]
        return there.for_other_bytes() if there else NEW_FILE

    def drafts(self, name: str) -> List[str]:
        """What is left of a ``write`` that was killed."""
        try:
            with self.directory(os.path.dirname(name)) as directory:
                return directory.drafts(os.path.basename(name))
        except OSError:
            return []

    def holds(self, name: str, data: bytes) -> bool:
        """Whether a file is there with this very content."""
        try:
            return self.kept(name)[0] == data
        except (OSError, Refused):
            return False

    def reserve(self, room: int = RESERVE_BYTES) -> None:
        """Keep room for what is written when a change is taken back: the disk may be full then."""
        self.make_directory(STATE, 0o700)
        with self.directory(STATE) as state:
            descriptor = state.open(os.path.basename(RESERVE), os.O_RDWR | os.O_CREAT)
        try:
            try:
                os.posix_fallocate(descriptor, 0, room)
            except OSError as error:
                # ZFS cannot, and would compress zeros to nothing.
                if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                    raise
                if os.fstat(descriptor).st_size < room:
                    os.write(descriptor, os.urandom(room))
                    os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self, name: str, only_draft: bool = False) -> None:
        """Remove a file, and what a killed ``write`` left of it."""
        missing = contextlib.suppress(FileNotFoundError, NotADirectoryError)
        with missing, _named(name), self.directory(os.path.dirname(name)) as directory:
            if only_draft:
                directory.remove_drafts(os.path.basename(name))
            else:
                directory.remove(os.path.basename(name))

    def missing(self, directory: str) -> List[str]:
        """Which directories have to be made for this one to be there, outermost first."""
        levels = [directory]
        while os.path.dirname(levels[0]) != "/":
            levels.insert(0, os.path.dirname(levels[0]))
        return [level for level in levels if not self.exists(level)]

    def make_directory(self, directory: str, mode: int = 0o755) -> None:
        """Make it and what it stands in, durably; ``mode`` is its own."""
        for level in self.missing(directory):
            with self.directory(os.path.dirname(level)) as parent:
                level_mode = mode if level == directory else 0o755
                parent.make_directory(os.path.basename(level), level_mode)

    def remove_directory(self, name: str) -> None:
        """Remove an empty directory; OSError as it comes."""
        with self.directory(os.path.dirname(name)) as parent:
            os.rmdir(os.path.basename(name), dir_fd=parent.descriptor)

    def why_not_writable(self, file: str) -> Optional[str]:
        """Why a file, with the directories it needs, cannot be made or replaced; None if it can."""
        directory, name = os.path.split(file)
        while True:
            try:
                with self.directory(directory) as there:
                    return there.why_not_writable(name)
            except (FileNotFoundError, NotADirectoryError):
                if self.exists(directory):
                    return f"{directory} is not a directory"
                directory, name = os.path.dirname(directory), ""
            except OSError as error:
                return error.strerror

    def program(self, name: str) -> Optional[str]:
        """The path of a program; below a private root none of the machine's is ever found."""
        where = PROGRAMS if self.root == "/" else self.path("/usr/local/sbin")
        places = [f"{place}/{name}" for place in where.split(":")]
        return next((place for place in places if os.access(place, os.X_OK)), None)

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
        # Most requests start no program, and its import takes a tenth of what they take.
        import subprocess

        program = self._program_path(name)
        try:
            if name in TO_THE_END:
                return self._run_to_the_end(name, [program, *arguments])
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
        return done.returncode, decode(done.stdout), decode(done.stderr)

    def _run_to_the_end(self, name: str, command: Sequence[str]) -> Tuple[int, str, str]:
        """One that takes too long goes on without us: half an installation helps nobody."""
        import subprocess
        import tempfile

        # Not into pipes: it would die of them once we are gone.
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as complaint:
            process = self._detached(command, output, complaint, pass_fds=self._locked)
            try:
                status = process.wait(TO_THE_END[name])
            except subprocess.TimeoutExpired:
                # Else Popen complains of what it leaves behind.
                process.returncode = 0
                text = f"{name} has not ended after {TO_THE_END[name]:g} s, and goes on"
                raise Failed(text) from None
            for file in (output, complaint):
                file.seek(0)
            return status, decode(output.read()), decode(complaint.read())

    def attempt_within(self, seconds: float, name: str, *arguments: str) -> Tuple[int, str]:
        """Exit status and all output of a program; Failed if it cannot be run.

        After so many seconds it is ended, with what it started, and that is Failed, too.
        """
        import signal
        import subprocess
        import tempfile

        words = f"{name} {' '.join(arguments)}"
        # Not a pipe: a daemon that it starts may keep that open.
        with tempfile.TemporaryFile() as output:
            try:
                process = self._detached([self._program_path(name), *arguments], output, output)
                status = process.wait(seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise Failed(f"{words}: has not ended after {seconds:g} s") from None
            except OSError as error:
                raise Failed(f"{words}: {error}") from None
            output.seek(0)
            return status, decode(output.read())

    def _program_path(self, name: str) -> str:
        program = self.program(name)
        if program is None:
            raise Failed(f"there is no program {name}")
        return program

    @property
    def reboot_command(self) -> List[str]:
        """What reboots this host, with a clean end of its services."""
        if self.system == "freebsd":
            return ["shutdown", "-r", "now"]
        return ["systemctl", "reboot"] if self.init == "systemd" else ["reboot"]

    def detach(self, command: Sequence[str]) -> None:
        """Start a process that outlives this one and the SSH connection."""
        self._detached(command, None, None, cwd="/")

    def _detached(
        self, command: Sequence[str], output: Any, complaint: Any, **more: Any
    ) -> "subprocess.Popen[bytes]":
        """A process in a session of its own, without input, and where None is given also without
        output."""
        import subprocess

        given: Dict[str, Any] = {"stdin": None, "stdout": output, "stderr": complaint}
        streams: Dict[str, Any] = {
            n: subprocess.DEVNULL if to is None else to for n, to in given.items()
        }
        env = self._environment()
        return subprocess.Popen(command, env=env, start_new_session=True, **streams, **more)

    def _environment(self) -> Dict[str, str]:
        added = {"LC_ALL": "C", "EDGETUNE_ROOT": self.root, "DEBIAN_FRONTEND": "noninteractive"}
        return dict(os.environ, **added)

    @property
    def system(self) -> str:
        """The operating system, ``linux`` or ``freebsd``; below a private root its files tell."""
        if self.root == "/":
            return sys.platform.rstrip("0123456789")
        return "freebsd" if self.exists(OF_FREEBSD) else "linux"

    @property
    def boot_id(self) -> str:
        """Changes with every boot; empty when the host does not tell."""
        if self.system == "freebsd":
            self._boot_id = self._boot_id or self._read_boot_id()
            return self._boot_id
        return self.text("/proc/sys/kernel/random/boot_id")

    def _read_boot_id(self) -> str:
        """That of FreeBSD; Failed where there is none, as on FreeBSD 12, or it is not whole.

        kern.boottime proves no boot: it moves when the clock is set.
        """
        # Without -x sysctl(8) shows nothing of what is no number and no text.
        status, output, complaint = self.attempt("sysctl", "-n", "-x", "kern.boot_id")
        found = re.search(r"Dump:0x([0-9a-f]{32})$", output.strip())
        if status == 0 and found:
            return found.group(1)
        if "unknown oid" in complaint:
            why = "tells no boot: FreeBSD 13 is needed, or newer"
        elif status != 0:
            lines = (complaint or output).strip().splitlines() or [f"exit status {status}"]
            why = f"failed, so nothing proves a boot: {lines[0]}"
        else:
            why = f"tells no whole boot, but {output.strip()[:60]!r}"
        raise Failed(f"sysctl -n -x kern.boot_id {why}")

    @property
    def init(self) -> str:
        """``systemd``, ``sysv`` (an /etc/init.d/rcS that runs /etc/init.d/S??*) or ``other``.

        ``rc`` is rc(8) of FreeBSD, which runs what is in /usr/local/etc/rc.d.
        """
        if self.system == "freebsd":
            return "rc"
        if self.exists("/run/systemd/system"):
            return "systemd"
        # That of Debian's sysvinit runs /etc/rcS.d/S* only.
        return "sysv" if "/etc/init.d/S??" in self.text("/etc/init.d/rcS") else "other"

    @contextlib.contextmanager
    def lock(self, wait: float = LOCK_WAIT) -> Iterator[None]:
        """Be the only one to change this host; Refused when that takes longer than ``wait`` s."""
        deadline = time.monotonic() + wait
        descriptor = self._open_lock()
        try:
            _lock_until(descriptor, deadline)
            # Whoever had it may have removed it since: the next one may hold another file already.
            while not self._is_lock(descriptor):
                os.close(descriptor)
                descriptor = self._open_lock()
                _lock_until(descriptor, deadline)
            # Whoever had it may have changed everything.
            self.answers.clear()
            self._locked = (descriptor,)
            yield
        finally:
            self._locked = ()
            os.close(descriptor)

    def _is_lock(self, descriptor: int) -> bool:
        """Whether an open file is still the one that others would lock."""
        try:
            there = os.lstat(self.path(LOCK))
        except OSError:
            return False
        return os.path.samestat(there, os.fstat(descriptor))

    def _open_lock(self) -> int:
        try:
            self.make_directory(os.path.dirname(LOCK))
            with _named(LOCK), self.directory(os.path.dirname(LOCK)) as directory:
                return directory.open(os.path.basename(LOCK), os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise Refused(f"nobody can be kept from changing this host: {error}") from None

    def fence(self, epoch: int, file: str = EPOCH) -> None:
        """Refuse an epoch older than the newest this host has seen, and remember a newer one.

        Each ``file`` counts the epochs of claims of its own.
        """
        seen = self.epoch(file)
        if epoch < seen:
            raise Refused(f"epoch {epoch} is older than {seen}, which this host has seen")
        if epoch > seen:
            self.make_directory(STATE, 0o700)
            self._remember(b"%d\n" % epoch, file)

    def _remember(self, data: bytes, file: str) -> None:
        try:
            self.replace(file, data)
        except OSError as error:
            if error.errno not in NO_ROOM or not self.exists(file):
                raise
            # In its own block, and no shorter than what it replaces. The reserve is for more.
            with self.directory(STATE) as state:
                descriptor = state.open(os.path.basename(file), os.O_WRONLY)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(descriptor)

    @property
    def ready(self) -> bool:
        """Whether the host's own health check may say so; a boot does not change it."""
        return not self.exists(NOT_READY)

    def refuse_in_service(self, drained: bool) -> None:
        """Refused when a request is for a ``drained`` host and this one may serve.

        The controller may have drained another machine than the one that it reached here.
        """
        if drained and self.ready:
            raise Refused(f"this machine was not drained: it has no {NOT_READY}")

    def epoch(self, file: str = EPOCH) -> int:
        """The newest epoch this host has seen; 0 when it saw none."""
        try:
            return int(self.kept(file)[0])
        except FileNotFoundError:
            return 0
        except (OSError, ValueError, Refused) as error:
            raise Failed(f"{file} is damaged: {error}") from None


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Let an error name the whole path: what is done in an open directory has but its last part."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, name) from None


def decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _lock_until(descriptor: int, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            if time.monotonic() > deadline:
                raise Refused("busy: another change of this host is under way") from None
        time.sleep(0.05)


@contextlib.contextmanager
def room_or_not() -> Iterator[None]:
    """Do without what a disk cannot take that is full, or read-only."""
    try:
        yield
    except OSError as error:
        if error.errno not in NOT_WRITABLE:
            raise
