# SPDX-License-Identifier: Apache-2.0
"""What a host's agent and its BMC answer, as far as the controller itself reads it.

Expressions of tunings may use more of its facts (see ``rendering``).
"""

from __future__ import annotations

from dataclasses import field

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.settings import ProofRow, SettingRow, Standing


@dataclass(frozen=True)
class Os:
    """``id`` is that of os-release, empty if unknown."""

    id: str = ""


@dataclass(frozen=True)
class Cpus:
    """Their ``vendor`` as in /proc/cpuinfo, and by number of each NUMA node its CPUs."""

    count: int = 1
    vendor: str | None = None
    nodes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Nic:
    """A network interface."""

    driver: str | None = None
    up: bool = True


@dataclass(frozen=True)
class Machine:
    """What firmware tells of a machine; empty where it tells nothing."""

    uuid: str = ""
    serial: str = ""


@dataclass(frozen=True)
class Watchdog:
    """What resets a host that hangs: the name of the ``device``, and whether it is ``armed``."""

    device: str = ""
    armed: bool = False


@dataclass(frozen=True)
class Address:
    """One of the addresses of a host's interfaces."""

    address: str


@dataclass(frozen=True)
class AppliedTuning:
    """A tuning that a host has a journal of: its ``state``, ``digest`` and rollout."""

    state: str
    digest: str
    rollout: str


@dataclass(frozen=True)
class AgentState:
    """``ready`` is False on a host that was drained and has not been verified since."""

    ready: bool = True
    tunings: dict[str, AppliedTuning] = field(default_factory=dict)


@dataclass(frozen=True)
class HostFacts:
    """``addresses`` is None where the host cannot tell them, ``time`` what it takes for the
    time; nobody has checked that.

    ``system`` is one of ``SYSTEMS`` (``agent.vocabulary``). ``unwritable`` are directories in which
    nothing can be kept, ``kexec_loaded`` says that its next reboot may skip the firmware.
    """

    boot_id: str = ""
    system: str = "linux"
    time: object = None
    os: Os = Os()
    kernel: str = ""
    machine: Machine = Machine()
    cpus: Cpus = Cpus()
    nics: dict[str, Nic] = field(default_factory=dict)
    addresses: list[Address] | None = None
    unwritable: list[str] = field(default_factory=list)
    kexec_loaded: bool = False
    watchdog: Watchdog = Watchdog()
    agent_state: AgentState = AgentState()

    def applied(self, tuning: str) -> AppliedTuning | None:
        """What stands there of a tuning."""
        return self.agent_state.tunings.get(tuning)


@dataclass(frozen=True)
class Steered:
    """How a host that steers its traffic stands, as in `edgetune.net.traffic.driver.Server`; of
    ``drain``. ``refuses`` is why a change would be refused, or ""."""

    withdrawn: str
    up: bool
    leaving: bool
    refuses: str
    sessions: int | None


@dataclass(frozen=True)
class Changed:
    """Whether a host changed something, and a row of each setting; of ``apply`` and ``restore``."""

    changed: bool = False
    diff: list[dict[str, object]] = field(default_factory=list)


@dataclass(frozen=True)
class SeenSettings:
    """What a host says of each setting to ``plan``."""

    settings: list[SettingRow]


@dataclass(frozen=True)
class VerifiedSettings:
    """What a host says of each setting to ``verify``, and in which ``state`` its journal is.

    ``lost_connections`` says by peer how many the peer answers no more since the change.
    """

    verified: bool
    state: str
    settings: list[ProofRow]
    lost_connections: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ProvenSettings(VerifiedSettings):
    """The same of ``confirm``, and whether the change is kept now."""

    confirmed: bool = False


@dataclass(frozen=True)
class Textfile:
    """Why a host does not keep the file for node_exporter that it is to keep, or ""."""

    missing: str


@dataclass(frozen=True)
class Uninstalled:
    """The ``files`` of ours that a host had, what is ``left`` since it is not ours, and the
    ``tunings`` that stand there."""

    files: list[str]
    left: list[str]
    tunings: list[str]


@dataclass(frozen=True)
class HandedOver:
    """The new names of the ``files`` that keep a tuning. Where it was not ``found``, which settings
    are not as wanted (``wrong``)."""

    files: dict[str, str]
    found: bool
    wrong: list[str]


@dataclass(frozen=True)
class WayBack:
    """What taking a tuning back leads to, by id of each setting; of ``verify``. None where a tuning
    that came later holds it."""

    way_back: dict[str, Standing | None]


@dataclass(frozen=True)
class SocketColumns:
    """Lists of one length with a row for each connection; None for what is not known.

    ``prefix`` numbers the client's prefix (``vocabulary.prefixes``), the others are MEASURED
    (``vocabulary.sockets``).
    """

    prefix: list[int]
    delivery_rate: list[float]
    goodput: list[float | None]
    rtt_ms: list[float | None]
    min_rtt_ms: list[float | None]
    bytes_acked: list[float | None]
    bytes_sent: list[float | None]
    bytes_retransmitted: list[float | None]


@dataclass(frozen=True)
class SocketsAnswer:
    """What a host answers to ``sockets``: how many connections it has ``seen`` in a ``share`` of
    the clients' ports, and ``columns`` of those whose rate the application does not limit."""

    seen: int
    share: float
    cpu_ms: float
    columns: SocketColumns


@dataclass(frozen=True)
class CongestionAnswer:
    """What stands on a host for prefixes of clients, 0 and "" if nothing does; of ``congestion``.

    ``kept`` says whether a process there moves next hops, and takes it back in ``seconds_left``.
    ``skipped`` says by prefix why there is no route of ours.
    """

    number: int
    checksum: str
    prefixes: int
    seconds_left: float
    kept: bool
    skipped: dict[str, str]


@dataclass(frozen=True)
class BmcFacts:
    """The machine of a BMC, ``system`` being its UUID, and the ``resets`` that it takes."""

    system: str
    serial: str
    sku: str
    resets: list[str]


@dataclass(frozen=True)
class BiosPlan(BmcFacts):
    """What settings would change in the BIOS, which has this version and these ``attributes``."""

    bios_version: str
    attributes: dict[str, object]
    settings: list[SettingRow]


@dataclass(frozen=True)
class BiosState:
    """Whether attributes of a BIOS are as they should be: ``state`` and ``reason`` as
    ``bmc.setting`` says, what is ``current`` and ``pending`` of them, and what else is pending."""

    state: str
    reason: str
    current: dict[str, object]
    pending: dict[str, object]
    foreign: list[str]


@dataclass(frozen=True)
class BiosSet:
    """Attributes were set: by which ``job`` ("" for none), and whether that needs a ``boot``."""

    job: str = ""
    boot: bool = False
