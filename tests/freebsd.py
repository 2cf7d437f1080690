# SPDX-License-Identifier: Apache-2.0
"""A host with FreeBSD for the agent, below a directory: its kernel and programs are doubles.

What they print has the form of FreeBSD's own sources (releng/13 and releng/14: sbin/sysctl,
sbin/bectl, sbin/kldload, sbin/kldstat, sbin/kldunload, sbin/ifconfig, usr.bin/netstat,
usr.bin/vmstat, usr.sbin/service). They share no code with the agent. All that they know is in files
below ROOT/stub, so it outlives a process that is killed.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable

import pytest

from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.unattended import boot
from tests.agent_programs import Answer, instead
from tests.agent_root import NearRoot

WRITABLE, TUNABLE, FIXED, BOTH = "writable", "tunable", "fixed", "both"
"""What may change a parameter: sysctl(8), the boot loader, nobody, or either."""

PARAMETERS = {
    "kern.hostname": ("f000", WRITABLE),
    "kern.osrelease": ("14.1-RELEASE-p5", FIXED),
    "kern.module_path": ("/boot/kernel;/boot/modules;/boot/dtb", WRITABLE),
    "kern.ipc.maxsockbuf": ("2097152", BOTH),
    "kern.ipc.soacceptqueue": ("128", WRITABLE),
    "kern.ipc.nmbclusters": ("1018000", BOTH),
    "kern.ipc.mb_use_ext_pgs": ("1", BOTH),
    "kern.cp_time": ("321 0 188 10 61683", FIXED),
    "kern.clockrate": ("{ hz = 1000, tick = 1000, profhz = 8128, stathz = 127 }", FIXED),
    "hw.pagesize": ("4096", FIXED),
    "vm.loadavg": ("{ 0.32 0.16 0.06 }", FIXED),
    "vm.stats.vm.v_free_count": ("482182", FIXED),
    "vm.stats.vm.v_inactive_count": ("528", FIXED),
    "hw.model": ("Intel(R) Xeon(R) Silver 4210R CPU @ 2.40GHz", FIXED),
    "hw.ncpu": ("8", FIXED),
    "hw.physmem": ("34208714752", FIXED),
    "hw.ix.rxd": ("2048", TUNABLE),
    "vm.ndomains": ("1", FIXED),
    "vm.swap_total": ("2147483648", FIXED),
    "dev.ix.0.fc": ("3", WRITABLE),
    "dev.ix.0.%domain": ("0", FIXED),
    "net.inet.tcp.functions_default": ("freebsd", WRITABLE),
    "net.inet.tcp.mssdflt": ("536", WRITABLE),
    "net.inet.tcp.sendbuf_max": ("2097152", WRITABLE),
    "net.inet.tcp.tcbhashsize": ("262144", TUNABLE),
}
STACKS = {"tcp_rack": "rack", "tcp_bbr": "bbr"}
SYSCTL_CONF = """\
# $FreeBSD$
#
#  This file is read when going to multi-user and its contents piped thru
#  ``sysctl'' to adjust kernel values.  ``man 5 sysctl.conf'' for details.
#

# Uncomment this to prevent users from seeing information about processes that
# are being run under another UID.
#security.bsd.see_other_uids=0
vfs.zfs.min_auto_ashift=12
"""
# As releng/14 prints them, from hosts with an 82599 and one with cards by Intel and Mellanox.
IFCONFIG = """\
ix0: flags=1008843<UP,BROADCAST,RUNNING,SIMPLEX,MULTICAST,LOWER_UP> metric 0 mtu 1500
\toptions=4e53fbb<RXCSUM,TXCSUM,VLAN_MTU,VLAN_HWTAGGING,JUMBO_MTU,VLAN_HWCSUM,TSO4,TSO6,LRO,WOL>
\tether 90:e2:ba:00:00:01
\tinet 192.0.2.2 netmask 0xffffff00 broadcast 192.0.2.255
\tinet6 fe80::92e2:baff:fe00:1%ix0 prefixlen 64 scopeid 0x1
\tinet6 2001:db8::2 prefixlen 64
\tmedia: Ethernet autoselect (10Gbase-SR <full-duplex,rxpause,txpause>)
\tstatus: active
\tnd6 options=21<PERFORMNUD,AUTO_LINKLOCAL>
ix1: flags=8803<UP,BROADCAST,SIMPLEX,MULTICAST> metric 0 mtu 1500
\tether 90:e2:ba:00:00:02
\tmedia: Ethernet autoselect
\tstatus: no carrier
\tnd6 options=29<PERFORMNUD,IFDISABLED,AUTO_LINKLOCAL>
lo0: flags=1008049<UP,LOOPBACK,RUNNING,MULTICAST,LOWER_UP> metric 0 mtu 16384
\toptions=680003<RXCSUM,TXCSUM,LINKSTATE,RXCSUM_IPV6,TXCSUM_IPV6>
\tinet 127.0.0.1 netmask 0xff000000
\tinet 198.51.100.7 netmask 0xffffffff
\tinet6 ::1 prefixlen 128
\tinet6 fe80::1%lo0 prefixlen 64 scopeid 0x3
\tgroups: lo
\tnd6 options=21<PERFORMNUD,AUTO_LINKLOCAL>
"""
NETSTAT = """\
Active Internet connections (including servers)
Proto Recv-Q Send-Q Local Address          Foreign Address        (state)
tcp4       0      0 192.0.2.2.443          203.0.113.9.51234      ESTABLISHED
tcp4       0      0 192.0.2.2.443          203.0.113.9.51235      TIME_WAIT
tcp6       0      0 2001:db8::2.443        2001:db8::99.40000     CLOSE_WAIT
tcp4       0      0 127.0.0.1.443          127.0.0.1.40001        ESTABLISHED
tcp4       0     44 192.0.2.2.22           203.0.113.1.60022      ESTABLISHED
tcp46      0      0 *.443                  *.*                    LISTEN
"""
TCP = {
    "sent-packets": 1000,
    "sent-data-packets": 800,
    "sent-retransmitted-packets": 12,
    "received-packets": 1200,
    "listen-queue-overflows": 3,
    "syncache": {"entries-added": 45, "dropped": 5},
}
# Its columns are wider since FreeBSD 14, and the one of addresses may be empty.
LINKS = """\
Name    Mtu Network       Address           Ipkts Ierrs Idrop  Ibytes Opkts Oerrs  Obytes Coll Drop
ix0    1500 <Link#1>      90:e2:ba:00:00:01  7000     2     5 9000000  6000     0 8000000    0    1
ix0       - 192.0.2.0/24  192.0.2.2          6900     -     - 8900000  5900     - 7900000    -    -
ix1*   1500 <Link#2>      90:e2:ba:00:00:02   100     0     1    9000     0     0       0    0    0
lo0   16384 <Link#3>      lo0                 999     0     0  999999   999     0  999999    0    0
gif0*  1280 <Link#4>                            7     0     0     560    11     0     880    0    0
"""
VMSTAT = """\
interrupt                          total       rate
irq16: ehci0                          10          0
cpu0:timer                       1234567        100
irq264: ix0:rxq0                  123456         10
irq265: ix0:rxq1                   23456          2
irq266: ix0:aq                         2          0
irq267: ix1:rxq0                       0          0
Total                            1381491        112
"""
PLACE = "var/lib/edgetune/boot_environment"
Kernel = dict[str, Any]


class FreeBsd(NearRoot):
    """One host. ``calls`` are those of its programs; ``fails`` are told by their first words."""

    def __init__(self, path: Path, release: str = "14.1-RELEASE-p5") -> None:
        self.path, self.python, self.release = path, sys.executable, release
        self.calls: list[str] = []
        self.fails: dict[str, Answer] = {}
        self.kept_apart = True
        self.write("bin/freebsd-version", "#!/bin/sh\n")
        self.write("etc/sysctl.conf", SYSCTL_CONF)
        self.write("etc/rc.conf", 'hostname="f000"\nzfs_enable="YES"\n')
        self.write("boot/loader.conf", 'kern.geom.label.disk_ident.enable="0"\nzfs_load="YES"\n')
        for module in ("tcp_rack", "tcp_bbr", "cc_htcp"):
            self.write(f"boot/kernel/{module}.ko", "")
        for program in PROGRAMS:
            self.write(f"usr/local/sbin/{program}", "#!/bin/false\n").chmod(0o755)
        for directory in ("var/run", "usr/local/etc/rc.d", "var/lib"):
            (path / directory).mkdir(parents=True)
        known = {"names": ["default", "new"], "running": "default", "default": "default"}
        self._keep("pool", {**known, "mounts": {}})
        (path / "tmp").mkdir()
        (path / "tmp").chmod(0o1777)
        self._keep("services", {"nginx": True})
        self.start_kernel()

    # What the kernel and the pool know.

    def _keep(self, what: str, known: Kernel) -> None:
        file = self.write(f"stub/{what}.new", json.dumps(known))
        file.replace(self.path / f"stub/{what}.json")

    def _known(self, what: str) -> Kernel:
        known: Kernel = json.loads(self.read(f"stub/{what}.json"))
        return known

    @property
    def boot_id(self) -> str:
        return str(self._known("kernel")["boot_id"])

    def new_boot_id(self) -> str:
        kernel = self._known("kernel")
        self._keep("kernel", {**kernel, "boot_id": uuid.uuid4().hex})
        return self.boot_id

    def start_kernel(self) -> None:
        """As the boot loader does, which reads its files, and as rc(8) does."""
        environment = dict(self._loader_files())
        parameters = {name: value for name, (value, _) in PARAMETERS.items()}
        parameters["kern.osrelease"] = self.release
        for name, value in environment.items():
            if PARAMETERS.get(name, ("", FIXED))[1] in (TUNABLE, BOTH):
                parameters[name] = value
        loaded = [name[: -len("_load")] for name, on in environment.items() if on == "YES"]
        known = {
            "boot_id": uuid.uuid4().hex,
            "parameters": parameters,
            "environment": environment,
            "modules": loaded,
            "busy": [],
        }
        self._keep("kernel", known)

    def _loader_files(self) -> Iterator[tuple[str, str]]:
        directory = sorted((self.path / "boot/loader.conf.d").glob("*.conf"))
        files = [self.path / "boot/loader.conf", self.path / "boot/loader.conf.local", *directory]
        for file in files:
            if file.exists():
                yield from re.findall(r'^([a-z][^\s=]*)="([^"]*)"', file.read_text(), re.MULTILINE)

    def boot_anew(self) -> list[str]:
        """Boot: the problems of our hook come back."""
        pool = self._known("pool")
        running = pool.pop("once", "") or pool["default"]
        self._keep("pool", {**pool, "running": running, "mounts": {}})
        shutil.rmtree(self.path / PLACE, ignore_errors=True)
        self.start_kernel()
        for file in (self.path / "var/run").glob("*"):
            file.unlink()
        self._read_sysctl_conf()
        problems = boot(Host(str(self.path))) if self.hooked else []
        self._read_sysctl_conf()
        return problems

    @property
    def hooked(self) -> bool:
        """Whether rc(8) runs our hook."""
        return (self.path / "usr/local/etc/rc.d/edgetune").exists()

    def _read_sysctl_conf(self) -> None:
        for name in ("sysctl.conf", "sysctl.conf.local"):
            file = self.path / "etc" / name
            for line in file.read_text().splitlines() if file.exists() else []:
                if re.match("[a-z]", line):
                    self._sysctl("-i", line)

    def make_environment(self, name: str) -> None:
        """Have another boot environment."""
        pool = self._known("pool")
        self._keep("pool", {**pool, "names": [*pool["names"], name]})

    def in_use(self, module: str) -> None:
        """Have connections that use a module."""
        kernel = self._known("kernel")
        self._keep("kernel", {**kernel, "busy": [*kernel["busy"], module]})

    def parameter(self, name: str) -> str:
        """The value of a parameter."""
        return str(self._known("kernel")["parameters"][name])

    @property
    def modules(self) -> list[str]:
        """What is loaded."""
        return list(self._known("kernel")["modules"])

    @property
    def environments(self) -> dict[str, str]:
        """Which boot environment runs, is the default, and is booted once."""
        pool = self._known("pool")
        return {"once": "", **{name: own for name, own in pool.items() if type(own) is str}}

    # Programs.

    def attempt(self, program: str, *words: str) -> Answer:
        """As Host.attempt."""
        call = " ".join((program, *words))
        self.calls.append(call)
        for first, answer in self.fails.items():
            if call.startswith(first):
                return answer
        answer = getattr(self, f"_{program}")(*words)
        assert isinstance(answer, tuple)
        return answer

    def _sysctl(self, *words: str) -> Answer:
        options = "".join(word[1:] for word in words if word[0] == "-")
        kernel, output = self._known("kernel"), ""
        for name in (word for word in words if word[0] != "-"):
            name, sets, value = name.partition("=")
            if name in self._special:
                output += self._special[name](kernel, options)
                continue
            if name not in kernel["parameters"]:
                below = [own for own in kernel["parameters"] if own.startswith(f"{name}.")]
                output += "".join(f"{own}\n" for own in below)
                if not below and "i" not in options:
                    return 1, output, f"sysctl: unknown oid '{name}'\n"
                continue
            if sets:
                complaint = self._set(kernel, name, value)
                if complaint:
                    return 1, "", f"sysctl: {complaint}\n"
            output += _shown(options, name, kernel["parameters"][name])
        return 0, output, ""

    def _set(self, kernel: Kernel, name: str, value: str) -> str:
        """Set a parameter; what sysctl(8) complains of, else ""."""
        access = PARAMETERS[name][1]
        if access == TUNABLE:
            return f"oid '{name}' is a read only tunable"
        if access == FIXED:
            return f"oid '{name}' is read only"
        if kernel["parameters"][name].isdigit() and not value.isdigit():
            return f"invalid integer '{value}'"
        known = ["freebsd", *(STACKS[own] for own in kernel["modules"] if own in STACKS)]
        if name == "net.inet.tcp.functions_default" and value not in known:
            return f"{name}={value}: No such file or directory"
        if name == "net.inet.tcp.mssdflt" and not 48 <= int(value) <= 65535:
            return f"{name}={value}: Invalid argument"
        kernel["parameters"][name] = value
        self._keep("kernel", kernel)
        return ""

    @property
    def _special(self) -> dict[str, Callable[[Kernel, str], str]]:
        return {"kern.boot_id": self._boot, "net.inet.tcp.functions_available": self._stacks}

    def _boot(self, kernel: Kernel, options: str) -> str:
        """FreeBSD 12 has none, and without -x it is not shown."""
        known = "x" in options and self.release[:2] != "12"
        return f"Format: Length:16 Dump:0x{kernel['boot_id']}\n" if known else ""

    def _stacks(self, kernel: Kernel, options: str) -> str:
        default = kernel["parameters"]["net.inet.tcp.functions_default"]
        text = "\nStack                           D Alias                            PCB count\n"
        for name in ["freebsd", *(STACKS[own] for own in kernel["modules"] if own in STACKS)]:
            mark = "*" if name == default else " "
            text += f"{name:<32}{mark} {name:<32} 3\n"
        return text + "\n"

    def _kenv(self, quiet: str, name: str) -> Answer:
        assert quiet == "-q"
        own = {"smbios.system.uuid": "4c4c4544-0042-4d10-8039-b4c04f4e3232"}
        value = {**own, **self._known("kernel")["environment"]}.get(name)
        return (1, "", "") if value is None else (0, f"{value}\n", "")

    def _kldload(self, option: str, name: str) -> Answer:
        assert option == "-n"
        kernel = self._known("kernel")
        if not (self.path / f"boot/kernel/{name}.ko").exists():
            return 1, "", f"kldload: can't load {name}: No such file or directory\n"
        if name not in kernel["modules"]:
            self._keep("kernel", {**kernel, "modules": [*kernel["modules"], name]})
        return 0, "", ""

    def _kldunload(self, name: str) -> Answer:
        kernel = self._known("kernel")
        default = kernel["parameters"]["net.inet.tcp.functions_default"]
        if name in kernel["busy"] or STACKS.get(name) == default:
            return 1, "", "kldunload: can't unload file: Device busy\n"
        if name not in kernel["modules"]:
            return 1, "", f"kldunload: can't find file {name}: No such file or directory\n"
        kernel["modules"].remove(name)
        self._keep("kernel", kernel)
        return 0, "", ""

    def _kldstat(self, quiet: str, option: str, name: str) -> Answer:
        assert quiet == "-q" and option in ("-n", "-m")
        return (0 if option == "-n" and name in self.modules else 1), "", ""

    def _sysrc(self, *words: str) -> Answer:
        assert words == ("-n", "-i", "kld_list")
        found = re.findall(r'^kld_list="(.*)"$', self.read("etc/rc.conf"), re.MULTILINE)
        return 0, "".join(f"{each}\n" for each in found[-1:]), ""

    def _bectl(self, verb: str, *words: str) -> Answer:
        pool = self._known("pool")
        if verb == "list":
            flags = dict.fromkeys(pool["names"], "")
            for flag, which in (("N", "running"), ("R", "default"), ("T", "once")):
                if pool.get(which):
                    flags[pool[which]] += flag
            rows = [
                f"{name}\t{own or '-'}\t{self._mounted(name, own)}\t8.1G\t2026-03-01 10:00\n"
                for name, own in flags.items()
            ]
            return 0, "".join(rows), ""
        if verb == "activate" and words == ("-T",):
            pool.pop("once", None)
            self._keep("pool", pool)
            return 0, "Temporary activation removed\n", ""
        name = words[0] if verb in ("mount", "umount") else words[-1]
        if name not in pool["names"]:
            return 1, f"Did not successfully {verb} boot environment {name}\n", ""
        if verb in ("mount", "umount"):
            return self._mount(verb, words, pool)
        pool["once" if words[0] == "-t" else "default"] = name
        self._keep("pool", pool)
        return 0, f"Successfully activated boot environment {name}\n", ""

    def _mounted(self, name: str, flags: str) -> str:
        return "/" if "N" in flags else str(self._known("pool")["mounts"].get(name, "-"))

    def _mount(self, verb: str, words: tuple[str, ...], pool: Kernel) -> Answer:
        """What a boot environment holds is in ROOT/stub/NAME, or where it is mounted."""
        name, own = words[0], self.path / "stub/environments" / words[0]
        if (name in pool["mounts"]) == (verb == "mount"):
            return 1, "", f"Failed to {verb} bootenv {name}\n"
        # By itself below /tmp, which is everybody's.
        place = (*words, f"/tmp/be_mount.{name}")[1] if verb == "mount" else pool["mounts"][name]
        at = self.path / place[1:]
        if verb == "umount":
            shutil.rmtree(own, ignore_errors=True)
            shutil.copytree(at, own)
            for entry in at.iterdir():
                shutil.rmtree(entry)
            del pool["mounts"][name]
        else:
            own.mkdir(parents=True, exist_ok=True)
            shutil.copytree(own, at, dirs_exist_ok=True)
            pool["mounts"][name] = place
        self._keep("pool", pool)
        return 0, f"Successfully mounted {name} at {place}\n" if verb == "mount" else "", ""

    def _zfs(self, *words: str) -> Answer:
        assert words[:4] == ("list", "-H", "-o", "name")
        apart = self.kept_apart and words[4] != "/"
        return 0, "zroot/lib\n" if apart else f"zroot/ROOT/{self.environments['running']}\n", ""

    def _ifconfig(self, *words: str) -> Answer:
        assert words == ("-a",)
        return 0, IFCONFIG, ""

    def _route(self, *words: str) -> Answer:
        assert words[:2] == ("-n", "get") and words[3] == "default"
        if words[2] == "-inet6":
            return 1, "", "route: route has not been found\n"
        return 0, "   route to: 0.0.0.0\ndestination: 0.0.0.0\n    gateway: 192.0.2.1\n", ""

    def _netstat(self, *words: str) -> Answer:
        tables = {
            "-anW -p tcp": NETSTAT,
            "-ibdn": LINKS,
            "--libxo json -s -p tcp": json.dumps({"statistics": {"tcp": TCP}}),
        }
        return 0, tables[" ".join(words)], ""

    def _vmstat(self, *words: str) -> Answer:
        assert words == ("-ai",)
        return 0, VMSTAT, ""

    def _cpuset(self, *words: str) -> Answer:
        assert words == ("-g", "-d", "0")
        return 0, "domain 0 mask: 0, 1, 2, 3, 4, 5, 6, 7\n", ""

    def _service(self, name: str, verb: str) -> Answer:
        services = self._known("services")
        if name not in services:
            return 1, "", f"{name} does not exist in /etc/rc.d or the local startup directories\n"
        if verb == "restart":
            self._keep("services", {**services, name: True})
        told = f"{name} is running as pid 77.\n" if services[name] else f"{name} is not running.\n"
        return (0 if services[name] else 1), told, ""

    def _shutdown(self, *words: str) -> Answer:
        assert words == ("-r", "now")
        self.write("stub/reboots", "x")
        return 0, "Shutdown NOW!\n", ""

    @property
    def reboots(self) -> bool:
        """Whether it was told to, since it was last asked."""
        told = (self.path / "stub/reboots").exists()
        (self.path / "stub/reboots").unlink(missing_ok=True)
        return told


def _shown(options: str, name: str, value: str) -> str:
    access = PARAMETERS[name][1]
    left_out = ("W" in options and access not in (WRITABLE, BOTH)) or (
        "T" in options and access not in (TUNABLE, BOTH)
    )
    return "" if left_out else f"{name if 'N' in options else value}\n"


PROGRAMS = (
    *("sysctl", "kenv", "kldload", "kldunload", "kldstat", "sysrc", "bectl", "zfs", "ifconfig"),
    *("route", "netstat", "vmstat", "cpuset", "service", "shutdown"),
)
RELEASES = ("13.3-RELEASE-p7", "14.1-RELEASE-p5")


@contextmanager
def freebsd_host(path: Path, release: str = RELEASES[1]) -> Iterator[FreeBsd]:
    """A host for the time of a test, whose disk is as durable as it has to be."""
    with pytest.MonkeyPatch.context() as patch:
        host = instead(patch, FreeBsd(path, release))
        patch.setattr(Host, "detach", lambda *_: None)
        yield host
