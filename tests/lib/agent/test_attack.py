# SPDX-License-Identifier: Apache-2.0
"""A user who can write a directory of a host tries to steer what the agent does there as root."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import struct
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edgetune.agent import unattended
from edgetune.agent.disk import opened
from edgetune.agent.host import Host
from edgetune.agent.journal import Journals
from tests.support.agent_root import AgentRoot, NearRoot, file, near_root, request, sysctl, thp

NOBODY = 65534
CONF = "/srv/app/conf.d/app.conf"
OWN = file(CONF, "workers 4\n")
SECRET = "only root reads this\n"
MOST_SECONDS = 3.0

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="another user can only be played by a test that runs as root"
)


@pytest.fixture
def host() -> Iterator[NearRoot]:
    """In a directory that another user can reach, unlike pytest's."""
    place = Path(tempfile.mkdtemp(prefix="edgetune-attack-"))
    try:
        place.chmod(0o755)
        with near_root(place / "host", init="systemd") as root:
            root.write("etc/secret", SECRET).chmod(0o600)
            yield root
    finally:
        shutil.rmtree(place)


def give_away(host: AgentRoot, name: str, mode: int = 0o755) -> Path:
    """Make a directory that belongs to another user."""
    path = host.path / name
    path.mkdir(parents=True, exist_ok=True)
    os.chown(path, NOBODY, NOBODY)
    path.chmod(mode)
    return path


@contextlib.contextmanager
def attacker(step: Callable[[], None]) -> Iterator[None]:
    """A process of another user that does something again and again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            while os.getppid() != 1:
                step()
        finally:
            os._exit(1)
    try:
        yield
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "the attacker died on the way"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def put_link(path: Path, target: Path) -> None:
    """In one step, whatever is there."""
    new = path.with_name(f"new-{path.name}")
    with contextlib.suppress(OSError):
        new.unlink()
    with contextlib.suppress(OSError):
        new.symlink_to(target)
        new.replace(path)


def swap_drafts(directory: Path, victim: Path) -> None:
    """Be there with a link under the name that the agent is going to write."""
    for _ in range(50):
        put_link(directory / ".app.conf.edgetune", victim)
    put_own_file(directory)


def put_own_file(directory: Path) -> None:
    with contextlib.suppress(OSError):
        (directory / "own").write_text("mine\n")
        (directory / "own").replace(directory / "app.conf")


def swap_file(directory: Path, victim: Path) -> None:
    """Now a file of one's own, now a link to root's."""
    put_own_file(directory)
    put_link(directory / "app.conf", victim)


def swap_directory(directory: Path, victim: Path) -> None:
    """Now a directory of one's own, now a link to root's."""
    aside = directory.with_name("aside")
    with contextlib.suppress(OSError):
        directory.rename(aside)
    put_link(directory, victim.parent)
    with contextlib.suppress(OSError):
        directory.unlink()
        aside.rename(directory)


def change_and_take_back(host: NearRoot) -> list[dict[str, Any]]:
    """One try of each verb, from the journal of an earlier one, too; the answers."""
    change = {"tuning": "t", "digest": "sha256:1", "settings": [OWN]}
    planned = host.send(request("plan", **change))
    rows = planned["result"]["settings"] if planned["ok"] else []
    expect = {row["id"]: {key: row[key] for key in ("runtime", "persistent")} for row in rows}
    applied = host.send(request("apply", epoch=1, rollout="r1", expect=expect, **change))
    return [planned, applied, host.send(request("restore", epoch=1, tuning="t"))]


@pytest.mark.processes
@needs_root
@pytest.mark.parametrize("swap", [swap_drafts, swap_file, swap_directory])
def test_who_writes_a_directory_neither_writes_nor_reads_with_root(
    host: NearRoot, swap: Callable[[Path, Path], None]
) -> None:
    """What root alone may read stays as it is, and untold, however the names are swapped."""
    give_away(host, "srv/app")
    directory = give_away(host, "srv/app/conf.d")
    host.write("etc/app.conf", SECRET).chmod(0o600)
    victims = [host.path / "etc/secret", host.path / "etc/app.conf"]
    before = [(path.stat().st_ino, path.read_text(), path.stat().st_mode) for path in victims]
    (directory / "app.conf").write_text("theirs\n")
    os.chown(directory / "app.conf", NOBODY, NOBODY)
    end = time.monotonic() + MOST_SECONDS
    tries = 0
    with attacker(lambda: swap(directory, victims[1])):
        while tries < 20 or time.monotonic() < end:
            told = json.dumps(change_and_take_back(host))
            tries += 1
            assert SECRET.strip() not in told, f"read in try {tries}"
            now = [(path.stat().st_ino, path.read_text(), path.stat().st_mode) for path in victims]
            assert now == before, f"written in try {tries}"
    # What they have of ours they could have made themselves.
    own = [path for path in directory.parent.rglob("*") if not path.is_symlink()]
    assert all(path.stat().st_uid == NOBODY for path in own)
    assert Journals(Host(str(host.path))).all() == []


@needs_root
@pytest.mark.parametrize(
    ("mode", "owner", "group"),
    [(0o755, NOBODY, 0), (0o777, 0, 0), (0o1777, 0, 0), (0o775, 0, NOBODY), (0o2775, 0, NOBODY)],
)
@pytest.mark.parametrize("level", ["srv", "srv/app", "srv/app/conf.d"])
def test_a_directory_that_others_can_change_is_refused_and_named(
    host: NearRoot, level: str, mode: int, owner: int, group: int
) -> None:
    host.write(CONF[1:], "theirs\n")
    os.chown(host.path / level, owner, group)
    (host.path / level).chmod(mode)
    row = host.plan(OWN)[0]
    says = f"others than root can change /{level} (owner {owner}, group {group}, mode {mode:04o})"
    assert row["status"] == "unsupported" and says in row["reason"], row
    error = host.fail("apply", **host.change(OWN))
    assert error["reason"] == "refused" and says in error["message"]
    assert (host.path / CONF[1:]).read_text() == "theirs\n"
    # Root and its group may write it.
    os.chown(host.path / level, 0, 0)
    (host.path / level).chmod(0o775)
    assert host.plan(OWN)[0]["status"] == "change"


@pytest.mark.processes
@needs_root
def test_what_was_given_away_since_gets_nothing_of_the_journal(host: NearRoot) -> None:
    """The content that a journal holds goes to no path that became somebody else's."""
    host.write(CONF[1:], SECRET).chmod(0o600)
    host.apply(OWN)
    directory = give_away(host, "srv/app/conf.d")
    (directory / "app.conf").unlink()
    (directory / "app.conf").symlink_to(host.path / "etc/secret")
    victim = (host.path / "etc/secret").stat()
    error = host.fail("restore", epoch=1, tuning="t")
    assert "others than root can change /srv/app/conf.d" in error["message"]
    assert (host.path / "etc/secret").stat().st_mtime_ns == victim.st_mtime_ns
    assert host.state() == "restoring"
    os.chown(directory, 0, 0)
    assert host.restore()["changed"]
    assert (directory / "app.conf").read_text() == SECRET


@needs_root
@pytest.mark.parametrize("level", ["var/lib", "var/lib/edgetune", "var/lib/edgetune/tunings"])
def test_a_journal_that_others_could_have_written_is_not_obeyed(host: NearRoot, level: str) -> None:
    host.apply(sysctl("4096"))
    journal = host.path / "var/lib/edgetune/tunings/t.json"
    own = json.loads(journal.read_text())
    own["files"] = {"/etc/secret": {"content": "aGVyZQo=", "mode": 0o4755, "uid": 0, "gid": 0}}
    journal.write_text(json.dumps(own))
    give_away(host, level)
    error = host.fail("restore", epoch=1, tuning="t")
    assert f"others than root can change /{level}" in error["message"]
    problems = unattended.boot(Host(str(host.path)))
    assert any(f"others than root can change /{level}" in problem for problem in problems)
    assert host.read("etc/secret") == SECRET


@needs_root
@pytest.mark.parametrize(
    ("verb", "place"),
    [
        ("ready", "run"),
        ("ready", "var/lib"),
        ("ready", "var/lib/edgetune"),
        ("apply", "etc/systemd/system"),
        ("apply", "etc/systemd/system/multi-user.target.wants"),
        ("apply", "etc/sysctl.d"),
    ],
)
def test_where_the_agent_keeps_its_own_nobody_else_may_write(
    host: NearRoot, place: str, verb: str
) -> None:
    drain = {"epoch": 1, "rollout": "r", "ready": False}
    fields = host.change(sysctl("4096"), thp("never")) if verb == "apply" else drain
    give_away(host, place)
    error = host.fail(verb, **fields)
    assert f"others than root can change /{place}" in error["message"]
    assert host.read("proc/sys/net/core/somaxconn") == "128\n"
    assert [path for path in (host.path / place).rglob("*") if path.is_file()] == []


@needs_root
@pytest.mark.parametrize("name", ["run/edgetune.lock", "var/lib/edgetune/reserve"])
def test_no_link_is_followed_to_what_the_agent_opens(host: NearRoot, name: str) -> None:
    (host.path / "var/lib/edgetune").mkdir(parents=True, exist_ok=True)
    (host.path / "run").mkdir(exist_ok=True)
    (host.path / name).unlink(missing_ok=True)
    (host.path / name).symlink_to(host.path / "etc/secret")
    reply = host.send(request("apply", **host.change(sysctl("4096"))))
    assert not reply["ok"]
    assert host.read("etc/secret") == SECRET


def test_links_of_root_lead_on_below_its_own_root(host: NearRoot) -> None:
    """As /var/run to /run and /lib to usr/lib, and /var to another disk."""
    (host.path / "data/var").mkdir(parents=True)
    shutil.rmtree(host.path / "var", ignore_errors=True)
    (host.path / "var").symlink_to("data/../data/./var")
    (host.path / "data/run").symlink_to("/data/var")
    with opened(str(host.path), "/data/run") as directory:
        assert os.fstat(directory.descriptor).st_ino == (host.path / "data/var").stat().st_ino
    before = host.tree()
    host.apply(sysctl("4096"))
    assert (host.path / "data/var/lib/edgetune/tunings/t.json").exists()
    host.restore()
    kept = {name for name in host.tree() if not name.startswith("data/var/lib")}
    assert kept == {name for name in before if not name.startswith("data/var/lib")}


@needs_root
def test_links_of_others_and_in_a_circle_lead_nowhere(host: NearRoot) -> None:
    (host.path / "srv").mkdir()
    (host.path / "srv/app").symlink_to("/etc")
    os.chown(host.path / "srv/app", NOBODY, NOBODY, follow_symlinks=False)
    refused = pytest.raises(PermissionError, match="others than root can change /srv/app")
    with refused, opened(str(host.path), "/srv/app"):
        pass
    (host.path / "srv/a").symlink_to("b")
    (host.path / "srv/b").symlink_to("a")
    with pytest.raises(OSError, match="too many links"), opened(str(host.path), "/srv/a/x"):
        pass


def test_an_access_list_counts_as_well(host: NearRoot) -> None:
    """Its mask is what the group's bits show."""
    (host.path / "srv").mkdir()
    (host.path / "srv").chmod(0o755)
    # Version 2; user::rwx, user:65534:rwx, group::r-x, mask::rwx, other::r-x.
    entries = [(1, 7, -1), (2, 7, NOBODY), (4, 5, -1), (0x10, 7, -1), (0x20, 5, -1)]
    packed = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(host.path / "srv", "system.posix_acl_access", packed)
    except OSError as error:
        pytest.skip(f"this file system knows no access lists: {error}")
    refused = pytest.raises(PermissionError, match="others than root can change /srv")
    with refused, opened(str(host.path), "/srv"):
        pass


def test_what_a_killed_agent_left_is_removed(host: NearRoot) -> None:
    """Also of an agent before this one, whose drafts had no random part."""
    left = ["etc/sysctl.d/.90-edgetune-0001-t.conf.edgetune", "var/lib/edgetune/.epoch.edgetune"]
    left += [f"{name}-{'0a' * 8}" for name in left]
    kept = "etc/sysctl.d/.90-edgetune-0001-t.conf.edgetune-mine"
    for name in (*left, kept):
        host.write(name, "half")
    host.apply(sysctl("4096"))
    host.restore()
    assert [name for name in left if host.exists(name)] == [] and host.exists(kept)
