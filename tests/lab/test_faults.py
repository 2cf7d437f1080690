# SPDX-License-Identifier: Apache-2.0
"""What can be broken in the lab of namespaces: each fault does what it says, and can be undone."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgetune.net.hosts.conversation import BOOTSTRAP
from edgetune.net.hosts.fleet import packed
from lab import cli, pop
from lab.pop.pop import FAULTS
from tests.lab.test_pop import (
    ROOT,
    entering,
    family,
    haproxy,
    is_alive,
    is_serving,
    on,
    server,
    ssh,
    state_of,
    try_on,
)
from tests.support.practice import needs_lab
from tests.support.waiting import wait_until

pytestmark = needs_lab
HOSTS = ("e000", "e001", "e002", "e003")
MARK = "/var/lib/edgetune-not-ready"
NO_FAULTS: dict[str, list[str]] = {name: [] for name in FAULTS}
LISTENS = ":0016 00000000:0000 0A"  # on port 22, as the kernel says it
CONSOLE = """
import sys, pathlib
sys.path.insert(0, {root!r})
from lab import pop
pop.console(pathlib.Path({home!r}), "e001", ["sleep", "60"], timeout=60)
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("lab") / ("long" * 30)
    pop.up(home, hosts=len(HOSTS))
    yield home
    pop.down(home)


@pytest.fixture
def home(running: Path) -> Iterator[Path]:
    """A lab without faults, all of it in service."""
    wait_until(lambda: is_serving(running, *HOSTS), "all in service")
    yield running
    pop.heal(running)
    for host in HOSTS:
        clear = f"rm -f {MARK} && echo ready"
        wait_until(lambda: try_sh(running, host, clear) == "ready", host)  # noqa: B023
    haproxy(running, "; ".join(f"set server edges/{host} state ready" for host in HOSTS))


def sh(home: Path, host: str, command: str) -> str:
    return pop.console(home, host, ["sh", "-c", command]).strip()


def reboot(home: Path, host: str) -> None:
    """Reboot from the console, and wait for its sshd."""
    before = pop.boots(home)[host]
    try_sh(home, host, "reboot")  # which may end the console before it answers
    wait_until(lambda: pop.boots(home)[host] == before + 1, "the reboot")
    wait_until(lambda: LISTENS in try_sh(home, host, "cat /proc/net/tcp"), "sshd")


def try_sh(home: Path, host: str, command: str) -> str:
    try:
        return sh(home, host, command)
    except pop.LabError:
        return ""


def count(home: Path, what: str) -> int:
    """Of the client, once everything that has happened by now is in it."""
    now = time.time()
    wait_until(lambda: bool(pop.client_counts(home)["time"] > now), "the client's counts")
    return int(pop.client_counts(home)[what])


def lost_since(home: Path, began: float) -> list[dict[str, object]]:
    """The lost requests that began after that moment: the fault of the test before may cost more,
    after it was healed."""
    count(home, "lost")
    lost = lines_of(home / "lab/client-lost.jsonl")
    return [line for line in lost if float(line["time"]) - float(line["after"]) > began]  # type: ignore[arg-type]


def is_answered(home: Path) -> bool:
    """Whether the client gets answers."""
    answered = count(home, "ok")
    time.sleep(1.2)
    return count(home, "ok") > answered


def comm_of(pid: int) -> str:
    """Empty once it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def lines_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class TestConsole:
    def test_runs_on_the_host_as_its_init_would_without_sshd_and_network(self, home: Path) -> None:
        pop.set_link(home, "e001", False)
        pop.kill(home, "e001", "sshd")
        bounding = "grep CapBnd /proc/self/status"
        assert sh(home, "e001", f"hostname; pwd; {bounding}") == "\n".join(
            ["e001", "/", sh(home, "e001", "grep CapBnd /proc/1/status")]
        )
        assert sh(home, "e001", "command -v reboot") == "/usr/local/sbin/reboot"
        assert pop.console(home, "e001", ["cat"], stdin=b"a\nb") == "a\nb"

    def test_a_failing_command_is_one_line_and_leaves_nothing(self, home: Path) -> None:
        state = pop.status(home)
        assert state is not None
        open_ones = Path(f"/proc/{state['pid']}/fd")
        before = len(list(open_ones.iterdir()))
        for command, message in (
            (["sh", "-c", "echo one >&2; echo two >&2; exit 3"], "e001: sh: two$"),
            (["false"], "e001: false: exit status 1$"),
            (["no-such"], "e001: no-such: .*No such file or directory$"),
        ):
            with pytest.raises(pop.LabError, match=message):
                pop.console(home, "e001", command)
        with pytest.raises(pop.LabError, match=r"did not end in 0\.3 s"):
            pop.console(home, "e001", ["sh", "-c", "sleep 987; true"], timeout=0.3)
        look = "cat /proc/[0-9]*/cmdline | grep -a ^sleep || true"
        wait_until(lambda: "987" not in sh(home, "e001", look), "its end")
        wait_until(lambda: len(list(open_ones.iterdir())) <= before + 1, "as few descriptors")


def test_what_there_is_not_is_named_and_breaks_nothing(home: Path) -> None:
    for call, given, why in (
        (pop.console, ("e999", ["true"]), "no host e999"),
        (pop.up, (), "already running"),
        (pop.power, ("e999", "cut"), "no host e999"),
        (pop.power, ("e000", "sideways"), "not sideways"),
        (pop.balancer, ("dance",), "reload, forget, kill, mute, not dance"),
        (pop.set_link, ("e9", True), "a port is a host, .*bmc, not e9"),
        (pop.slow_link, ("e9", True), "a port is a host, .*bmc, not e9"),
        (pop.fill_disk, ("e9", True), "no host e9"),
        (pop.kill, ("e000", "init"), "sshd, nginx, agent, not init"),
        (pop.kill, ("e9", "sshd"), "no host e9"),
        (pop.inject, ("fire", "e001"), "a fault is cut, slow, .*not fire"),
    ):
        with pytest.raises(pop.LabError, match=why):
            call(home, *given)  # type: ignore[operator]
    assert pop.balancer_state(home)
    assert pop.status(home)["faults"] == NO_FAULTS  # type: ignore[index]


class TestReadiness:
    def test_a_host_that_is_not_ready_says_so_over_a_reboot_too(self, home: Path) -> None:
        ask = "curl -s -o /dev/null -D - http://127.0.0.1/"
        assert sh(home, "e002", f"{ask}health").startswith("HTTP/1.1 200")
        sh(home, "e002", f"umask 022; echo rollout > {MARK}")
        head = sh(home, "e002", f"{ask}health")
        assert head.startswith("HTTP/1.1 503")
        for path in ("health", "short", "busy", "slow"):
            head = sh(home, "e002", f"{ask}{path}")
            assert "X-Lab-Host: e002" in head, path
            assert "X-Lab-Ready: no" in head, path
        wait_until(lambda: not pop.balancer_state(home)["e002"]["up"], "down by its check")
        reboot(home, "e002")
        time.sleep(1)
        assert not pop.balancer_state(home)["e002"]["up"]
        sh(home, "e002", f"rm {MARK}")
        assert "X-Lab-Ready: yes" in sh(home, "e002", f"{ask}short")
        wait_until(lambda: pop.balancer_state(home)["e002"]["up"], "up by its check")

    def test_the_client_counts_answers_of_hosts_that_are_not_ready_and_what_is_lost(
        self, home: Path
    ) -> None:
        unready, lost = count(home, "unready"), count(home, "lost")
        for host in HOSTS:
            sh(home, host, f"touch {MARK}")
        wait_until(lambda: count(home, "unready") > unready, "an unready answer")
        log = home / "lab/client-unready.jsonl"
        last = lines_of(log)[-1]
        assert {"time", "path", "host"} <= set(last) and last["host"] in HOSTS
        for host in HOSTS:
            sh(home, host, f"rm {MARK}")
        wait_until(lambda: is_serving(home, *HOSTS), "in service")
        wait_until(lambda: len(lines_of(log)) == count(home, "unready"), "each in the log")
        wait_until(lambda: count(home, "in_flight") > 3, "requests under way")
        pop.balancer(home, "kill")
        wait_until(lambda: count(home, "lost") > lost, "lost requests")
        last = lines_of(home / "lab/client-lost.jsonl")[-1]
        assert {"time", "path", "after", "reason", "host"} <= set(last)


def drained(home: Path, host: str) -> None:
    """Take a host out, and have it say so."""
    haproxy(home, f"set server edges/{host} state drain")
    wait_until(lambda: server(home, host)["scur"] == "0", "drain")
    sh(home, host, f"touch {MARK}")


class TestBalancer:
    def test_state_is_what_haproxy_says_and_many_reloads_lose_no_request_of_it(
        self, home: Path
    ) -> None:
        haproxy(home, "set server edges/e000 state drain")
        haproxy(home, "set server edges/e001 state maint")

        def states(what: str) -> list[object]:
            state = pop.balancer_state(home)
            return [state[host][what] for host in HOSTS]

        assert states("admin") == ["drain", "maint", "ready", "ready"]
        wait_until(lambda: states("up") == [True, False, True, True], "all up but one")
        wait_until(lambda: int(str(states("sessions")[2])) > 0, "sessions")
        wait_until(lambda: states("sessions")[0] == 0 == int(server(home, "e000")["scur"]), "drain")
        began, requests = time.time(), count(home, "requests")
        for _ in range(12):
            pop.balancer(home, "reload")
            assert states("admin") == ["drain", "maint", "ready", "ready"]
            time.sleep(0.23)
        wait_until(lambda: count(home, "requests") > requests + 50, "requests")
        time.sleep(4)  # a slow body takes three seconds
        assert not lost_since(home, began)
        pid = pop.status(home)["pid"]  # type: ignore[index]

        def balancers() -> int:
            return sum(comm_of(member) == "haproxy" for member, _ in family(pid))

        wait_until(lambda: balancers() == 1, "the end of the former ones")

    def test_one_that_forgets_sends_nothing_to_a_host_that_is_not_ready_or_reboots(
        self, home: Path
    ) -> None:
        drained(home, "e000")
        began, requests, unready = time.time(), count(home, "requests"), count(home, "unready")
        for _ in range(6):
            pop.balancer(home, "forget")
            assert pop.balancer_state(home)["e000"]["admin"] == "ready"
        before = pop.boots(home)["e000"]
        try_sh(home, "e000", "reboot")
        for _ in range(6):
            pop.balancer(home, "forget")
        wait_until(lambda: pop.boots(home)["e000"] == before + 1, "the reboot")
        pop.balancer(home, "forget")
        time.sleep(2)
        assert count(home, "requests") > requests
        assert (lost_since(home, began), count(home, "unready")) == ([], unready)


def test_other_cables_can_be_cut(home: Path) -> None:
    for port in ("controller", "balancer", "client"):
        wait_until(lambda: is_answered(home), "answers")
        pop.set_link(home, port, False)
        of_controller = port == "controller"
        if of_controller:
            assert try_on(home, "e000", "true").returncode != 0
        else:
            on(home, "e000", "true")
        wait_until(lambda: is_answered(home) == of_controller, "answers, or the end of them")  # noqa: B023
        if port == "balancer":  # which can be asked all the same
            wait_until(lambda: not pop.balancer_state(home)["e000"]["up"], "all down")
            pop.balancer(home, "reload")
        pop.set_link(home, port, True)
    wait_until(lambda: is_answered(home), "answers again")
    on(home, "e000", "true")


def copy_seconds(home: Path, host: str) -> float:
    """How long 120 kB take from a host over SSH, from the first of them on."""
    with session(home, host, "exec dd if=/dev/zero bs=120k count=1 status=none") as process:
        assert process.stdout is not None
        process.stdout.read(1)
        start = time.monotonic()
        assert len(process.stdout.read()) == 120 * 1024 - 1
        return time.monotonic() - start


def is_full(home: Path) -> bool:
    """Whether e001 takes no byte, but what is in memory; and keeps what it has."""
    write = "dd if=/dev/zero of=/var/lib/new bs=1 count=1 status=none"
    assert sh(home, "e000", f"{write} 2>/dev/null; rm /var/lib/new; echo room") == "room"
    sh(home, "e001", "sysctl -qw vm.swappiness=3; touch /var/lib/empty")
    said = try_sh(home, "e001", f"{write} 2>&1; rm /var/lib/new; cat /var/lib/there")
    return "No space left on device" in said and said.endswith("old")


# How each fault of e001 is seen, and how e000 is all the while.
SEEN: dict[str, Callable[[Path], bool]] = {
    "cut": lambda home: try_on(home, "e001", "true").returncode != 0,
    "slow": lambda home: copy_seconds(home, "e001") > 0.6 and copy_seconds(home, "e000") < 0.3,
    "full": is_full,
    "busy": lambda home: health_seconds(home, "e001") > 0.15 > health_seconds(home, "e000"),
}


@pytest.mark.parametrize("fault", SEEN)
def test_a_fault_is_seen_over_a_reboot_until_it_is_healed(home: Path, fault: str) -> None:
    """But a host that is busy, which its reboot ends."""
    sh(home, "e001", "echo old > /var/lib/there")
    pop.set_load(home, False)
    wait_until(lambda: not SEEN[fault](home), "a host that is well")
    pop.inject(home, fault, "e001")
    pop.inject(home, fault, "e001")
    assert pop.status(home)["faults"] == {**NO_FAULTS, fault: ["e001"]}  # type: ignore[index]
    wait_until(lambda: SEEN[fault](home), "the fault")
    if fault == "busy":
        pop.heal(home)
        wait_until(lambda: "keep_busy" not in programs(home, "e001"), "the end of it")
        pop.inject(home, fault, "e001")
    reboot(home, "e001")
    assert (pop.status(home)["faults"] == NO_FAULTS) is (fault == "busy")  # type: ignore[index]
    wait_until(lambda: SEEN[fault](home) is (fault != "busy"), "the fault after a reboot")
    assert "keep_busy" not in programs(home, "e001")
    pop.heal(home)
    wait_until(lambda: not SEEN[fault](home), "a host that is well again")
    assert pop.status(home)["faults"] == NO_FAULTS  # type: ignore[index]
    sh(home, "e001", "rm -f /var/lib/there /var/lib/new /var/lib/empty")
    pop.set_load(home, True)


def programs(home: Path, host: str) -> list[str]:
    """What runs on a host."""
    return sh(home, host, "cat /proc/[0-9]*/comm 2>/dev/null; true").splitlines()


def health_seconds(home: Path, host: str) -> float:
    """The median of five health checks on the host itself."""
    ask = "curl -s -o /dev/null -w '%{time_total} ' http://127.0.0.1/health"
    return sorted(map(float, sh(home, host, "; ".join([ask] * 5)).split()))[2]


def test_what_is_killed_with_its_sessions_is_started_again_and_no_other_host_s(home: Path) -> None:
    other = sh(home, "e001", "cat /run/nginx.pid")
    source = b"import time\nprint('there', flush=True)\ntime.sleep(60)\n"
    for program, command, least in (("sshd", "echo there; sleep 60", 2), ("agent", BOOTSTRAP, 1)):
        with session(home, "e000", command) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(packed(source))
            process.stdin.close()
            assert process.stdout.readline() == b"there\n"
            assert pop.kill(home, "e000", program) >= least
            assert process.wait(60) != 0
        wait_until(lambda: try_on(home, "e000", "true").returncode == 0, "sshd again")
    assert pop.kill(home, "e000", "agent") == 0
    assert pop.kill(home, "e000", "nginx") == 2
    wait_until(lambda: is_serving(home, "e000"), "nginx again")
    assert sh(home, "e001", "cat /run/nginx.pid") == other
    on(home, "e001", "true")


def session(home: Path, host: str, command: str) -> subprocess.Popen[bytes]:
    """An SSH session with pipes."""
    words = entering(home, *ssh(home, host, command, patience=30))
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


class TestTheWhole:
    def test_heal_undoes_all(self, home: Path) -> None:
        for fault in ("cut", "slow", "full"):
            pop.inject(home, fault, "e001")
        pop.inject(home, "cut", "client")
        pop.inject(home, "off", "e002")
        pop.inject(home, "balancer", "forget")
        pop.inject(home, "sshd", "e003")
        wait_until(lambda: state_of(home, "e002") == "off", "off")
        with pytest.raises(pop.LabError, match="host e002 is off"):
            pop.console(home, "e002", ["true"])
        boots = pop.boots(home)["e002"]
        pop.power(home, "e002", "on")
        pop.power(home, "e002", "cut")  # right after it was switched on
        pop.power(home, "e002", "on")
        pop.heal(home)
        wait_until(lambda: pop.boots(home)["e002"] > boots, "the boot")
        assert pop.status(home)["faults"] == NO_FAULTS  # type: ignore[index]
        for host in HOSTS:
            wait_until(lambda: try_on(home, host, "true").returncode == 0, host)  # noqa: B023

    def test_from_the_command_line(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("EDGETUNE_HOME", str(home))
        assert cli.main(["lab", "console", "e001", "--", "hostname"]) == 0
        assert capsys.readouterr().out == "e001\n"
        assert cli.main(["lab", "console", "e001", "false"]) == 3
        told = "edgetune: e001: false: exit status 1\n  next:       edgetune lab status\n"
        assert capsys.readouterr().err == told

    def test_nothing_is_left_of_a_broken_lab(self, tmp_path: Path) -> None:
        mounts = Path("/proc/self/mountinfo").read_text()
        links = subprocess.getoutput("ip -brief link; tc qdisc")
        pid = pop.up(tmp_path, hosts=2)["pid"]
        for fault, target in (
            *(("cut", "e000"), ("slow", "e001"), ("full", "e001"), ("slow", "balancer")),
            *(("balancer", "reload"), ("nginx", "e000")),
        ):
            pop.inject(tmp_path, fault, target)
        members = family(pid)
        code = CONSOLE.format(root=str(ROOT), home=str(tmp_path))
        console = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
        wait_until(lambda: "sleep" in programs(tmp_path, "e001"), "it")
        assert pop.down(tmp_path)
        assert console.wait(60) != 0
        wait_until(lambda: not any(is_alive(member) for member in members), "end of all")
        assert pop.status(tmp_path) is None
        assert Path("/proc/self/mountinfo").read_text() == mounts
        assert subprocess.getoutput("ip -brief link; tc qdisc") == links

    def test_without_a_lab_every_fault_is_one_line(self, tmp_path: Path) -> None:
        assert pop.status(tmp_path) is None and pop.down(tmp_path) is False
        for call in (pop.boots, pop.heal, pop.balancer_state, pop.enter_controller):
            with pytest.raises(pop.LabError, match="no lab is running"):
                call(tmp_path)
        for fault in ("cut", "slow", "full", "off", "sshd", "balancer"):
            with pytest.raises(pop.LabError, match="no lab is running"):
                pop.inject(tmp_path, fault, "e000")
        with pytest.raises(pop.LabError, match="no lab is running"):
            pop.console(tmp_path, "e000", ["true"])
