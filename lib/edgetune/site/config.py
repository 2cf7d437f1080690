# SPDX-License-Identifier: Apache-2.0
"""The pack's configuration, checked again here: StackStorm lets misspelt keys pass."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from edgetune import PACK
from edgetune.agent.vocabulary.grammar import DIRECTORY
from edgetune.base.dataclass import dataclass
from edgetune.base.durations import DAY, duration
from edgetune.base.errors import InputError, UnconfiguredError
from edgetune.base.fields import Fields
from edgetune.base.freezes import Event, Freeze, open_from, read_event, read_freeze
from edgetune.base.options import option, options_of, read_options, span
from edgetune.site.alertmanager import Alertmanager, read_alertmanager

FILE = f"/opt/stackstorm/configs/{PACK}.yaml"
# Any will do; that of today would refuse tomorrow what it took today, where clocks are changed.
_SOME_WEEK = 1_768_000_000.0
PACK_TUNINGS = Path(__file__).resolve().parents[3] / "tunings"
PACK_METRICS = PACK_TUNINGS.with_name("metrics")


@dataclass(frozen=True)
class Config:
    """Every option of the pack's configuration; times are in seconds."""

    inventory: Path = option(
        "Path of the inventory file (PoPs, hosts, load balancers) on every action runner."
    )
    ssh_key_file: Path = option(
        "Path of the private SSH key on every action runner. The key itself never goes into a "
        "configuration."
    )
    ssh_known_hosts: Path = option(
        "Path of the known_hosts file with the key of every host. An unknown or changed key is "
        "refused."
    )
    ssh_certificate_file: str = option(
        "Path of the certificate of that key on every action runner, read anew for each call; "
        "empty for the file KEY-cert.pub beside it, where there is one.",
        "",
    )
    ssh_agent: str = option(
        "Path of the socket of an ssh-agent on every action runner, which holds the private key; "
        "ssh_key_file is then the public key. Empty for none.",
        "",
    )
    inventory_source: str = option(
        "What the inventory is kept in: the name of a file in lib/edgetune/net/inventories.",
        "yaml",
    )
    inventory_max_age: float = span(
        "How old what was read of an inventory in NetBox, Ansible or Prometheus may be for a plan; "
        "an older one is read anew. A YAML file is read for each plan.",
        900,
        least=0,
    )
    inventory_shrink: float = option(
        "Largest share of a PoP's hosts that may be gone from the inventory since the last plan; "
        "one host may be in any case. With more gone, and for campaigns with a PoP gone, plans are "
        "refused until accept_inventory. With 1 none is refused.",
        0.1,
        least=0,
        most=1,
    )
    tunings: tuple[Path, ...] = option(
        "Directories with tunings of your own, looked at before the pack's catalogue. One that "
        "does not exist counts as empty.",
        (),
    )
    metrics: tuple[Path, ...] = option(
        "Directories with metrics of your own, looked at before the pack's. One that does not "
        "exist counts as empty.",
        (),
    )
    campaigns: tuple[Path, ...] = option(
        "Directories with campaigns, one YAML file each. One that does not exist counts as empty.",
        (),
    )
    plan_approval: bool = option(
        "Whether a rollout begins only with an approved plan, and a campaign begins a ring only "
        "once that ring is approved.",
        False,
    )
    self_approval: bool = option(
        "Whether a person may begin a rollout with a plan that they approved themselves. A file "
        "of a campaign says it for that campaign.",
        False,
    )
    approval_expires: float = span("How long the approval of a plan holds.", DAY, least=60)
    system_user: str = option(
        "User as which StackStorm runs the actions of rules ([system_user] of st2.conf). What it "
        "does is signed as the rule says; what another user does, by that user.",
        "stanley",
    )
    chat_channel: str = option(
        "Chat channel that is told how rollouts and campaigns get on that were not asked for in "
        "chat, empty for none.",
        "",
    )
    ssh_user: str = option(
        "User on the hosts. Another one than root needs ssh_command, or a forced command.", "root"
    )
    ssh_command: str = option(
        "The one command that ssh_user may run on a host, such as sudo -n "
        "/usr/local/sbin/edgetune-agent; it reads the agent from its standard input and runs it "
        "as root. Empty for python3.",
        "",
        pattern=r"([!-~]+( [!-~]+)*)?",
    )
    ssh_timeout: float = span(
        "Longest time to connect to a host, log in and start the agent there, all together.",
        10,
        least=0.1,
    )
    ssh_threads: int = option(
        "Hosts that one action talks to at once. To take samples it connects to up to eight "
        "times as many, so that silent hosts keep no others waiting.",
        16,
        least=1,
        most=256,
    )
    bmc_ca_file: str = option(
        "Path of a file with the certificates that BMCs are verified with, empty for those of the "
        "system. Certificates that a BMC signed itself can stand there, too.",
        "",
    )
    bmc_verify: bool = option(
        "Whether the certificate of a BMC is verified. Without it anybody on the management "
        "network can read the password.",
        True,
    )
    bmc_credentials_file: str = option(
        "Path of a YAML file with NAME, username and password of BMCs on every action runner, "
        "readable by its owner only; empty for none. It is asked after the encrypted key "
        "edgetune.bmc.NAME of the datastore and before the environment.",
        "",
    )
    bmc_timeout: float = span("Longest time one conversation with a BMC may take.", 60, least=1)
    bmc_threads: int = option("BMCs reached at once by one action.", 32, least=1, most=256)
    records: str = option(
        "Where records of rollouts live, st2 (StackStorm's datastore) or sqlite:///PATH.",
        "st2",
        pattern=r"st2|sqlite:///\S.*",
    )
    records_api_key_file: str = option(
        "Path of a file with an API key of StackStorm under which records are read and written; "
        "empty for the user of each execution. With RBAC that user could read and write next to "
        "none of them.",
        "",
    )
    coordination: str = option(
        "Where claims and samples live, redis://HOST:PORT/DB or sqlite:///PATH.",
        "redis://127.0.0.1:6379/0",
        pattern=r"rediss?://[^\s?@]+|sqlite:///\S.*",
    )
    coordination_password_file: str = option(
        "Path of a file that holds the password of Redis, empty for none.", ""
    )
    claim_ttl: float = span(
        "How long a claim on a PoP outlives the last step of its owner. It must be longer than "
        "the longest action, and than owner_timeout.",
        DAY,
        least=60,
    )
    claim_grace: float = span(
        "How long a PoP stays claimed after a rollout that was taken over has ended. An action of "
        "its old owner may run that long, so give at least the longest timeout of an action.",
        600,
        least=0,
    )
    owner_timeout: float = span(
        "How long a rollout may go without a step until its workflow counts as dead and "
        "recover_orphans takes it over. Give more than the longest timeout of an action.",
        900,
        least=1,
    )
    surge_factor: float = option(
        "Load of a whole PoP, in multiples of the most it carried during the baseline, above "
        "which nothing is drained, not even for a rollback.",
        2,
        least=1,
    )
    detectable_effect: float = option(
        "The effect on a tuning's metric, as a share, that must be seen with 80 % power. When the "
        "baseline shows that only greater ones would be, the rollout ends before anything is "
        "touched. 0 lets all pass.",
        0.9,
        least=0,
        most=10,
    )
    drain_deadline: float = span(
        "How long a draining host may carry sessions before it is put back and skipped.",
        300,
        least=1,
    )
    reset_after: float = span(
        "How long a host that was told to reboot may go on answering from the same boot until its "
        "BMC is asked to restart it.",
        300,
        least=1,
    )
    reboot_deadline: float = span(
        "How long a host may take to come back from a reboot. A BIOS that trains memory takes 3 "
        "to 15 minutes.",
        1200,
        least=1,
    )
    health_deadline: float = span(
        "How long a host may take until its service answers and its load balancer takes it back.",
        120,
        least=1,
    )
    sample_retention: float = span("How long samples of hosts are kept.", 14 * DAY, least=60)
    sample_memory: int = option(
        "Megabytes that the samples of one PoP may take; a plan that needs more is refused. What "
        "Prometheus or ClickHouse keep does not count.",
        4000,
        least=1,
    )
    certificate_warning: float = span(
        "How long before a certificate expires doctor_pop warns of it.", 14 * DAY, least=0
    )
    textfile_directory: str = option(
        "Directory on the hosts from which Prometheus' node_exporter reads text files, such as "
        "/var/lib/prometheus/node-exporter; write_textfiles has the agents keep edgetune.prom "
        "there. Empty for no such file.",
        "",
        pattern=f"({DIRECTORY})?",
    )
    freezes: tuple[Freeze, ...] = option(
        "Windows of each week in which no rollout and no batch begins: days (mon to sun, all "
        "unless given), start and end in quotes, name, and timezone (UTC unless given).",
        (),
        item=read_freeze,
    )
    events: tuple[Event, ...] = option(
        "Dates on which no rollout and no batch begins: name, from and to in quotes, and timezone "
        "(UTC unless given); a day alone is all of it.",
        (),
        item=read_event,
    )
    alertmanager: Alertmanager = option(
        "Where alerts of hosts are silenced that edgetune takes out of service: url, matchers, "
        "bound (30m unless given) and credentials, as docs/how-to/silences.md explains; nowhere "
        "unless given.",
        Alertmanager(),
        item=read_alertmanager,
    )
    report_dir: str = option(
        "Directory that report_rollout writes its pages to, an absolute path on every action "
        "runner; empty for no reports.",
        "",
        pattern=r"(/.*)?",
    )
    report_url: str = option(
        "Address under which a web server of yours shows report_dir, without the name of the "
        "page; empty for none.",
        "",
        pattern=r"(https?://\S+)?",
    )
    report_renderer: str = option(
        "A Chromium that draws the headline of each report as a PNG for chat, beside the page: an "
        "absolute path, or a name on the PATH of the action runner; empty for no picture.",
        "",
        pattern=r"(/\S+|[A-Za-z0-9._-]+)?",
    )
    metrics_file: str = option(
        "Path of the file that export_metrics writes for node_exporter's textfile collector on "
        "every action runner, absolute and with the ending .prom; empty for none.",
        "",
        pattern=r"(/.*\.prom)?",
    )

    @property
    def closed(self) -> tuple[Freeze | Event, ...]:
        """When nothing may begin, be it a rollout or a batch of one."""
        return (*self.freezes, *self.events)

    @property
    def own_directories(self) -> list[tuple[str, Path]]:
        """Those of the site, each with its option."""
        named = {name: getattr(self, name) for name in ("tunings", "metrics", "campaigns")}
        pack = (PACK_TUNINGS, PACK_METRICS)
        return [(name, path) for name, every in named.items() for path in every if path not in pack]

    @property
    def absent(self) -> list[str]:
        """In a sentence each, those that do not exist."""
        return [
            f"{name}: {directory} does not exist, and counts as empty"
            for name, directory in self.own_directories
            if not os.path.exists(directory)  # noqa: PTH110 - of Python 3.9, Path.exists raises
        ]


def config_file() -> Path:
    """What the configuration was read from, if it lies on this node."""
    return Path(os.environ.get("EDGETUNE_CONFIG") or FILE)


def refuse_unconfigured(given: Mapping[str, object]) -> None:
    """UnconfiguredError names the file that nobody has written."""
    defaults = {each.name: each.written for each in options_of(Config)}
    # Where nobody wrote a configuration, StackStorm hands over the schema's defaults.
    is_default = all(name in defaults and value == defaults[name] for name, value in given.items())
    if is_default and "inventory" not in given:
        raise UnconfiguredError(
            FILE,
            None,
            f"is not there, or not registered: write it as {PACK}.yaml.example of the pack shows, "
            "then run: st2ctl reload --register-configs",
        )


def read_config(given: Mapping[str, object]) -> Config:
    """Check a configuration mapping; InputError names the key."""
    fields = Fields(given, "configuration")
    _refuse_secrets(given)
    config = read_options(fields, Config)
    too_short = f"must be longer than owner_timeout, {duration(config.owner_timeout)}"
    if config.claim_ttl <= config.owner_timeout:
        raise fields.wrong("claim_ttl", too_short)
    if config.alertmanager.url and config.alertmanager.bound <= config.owner_timeout:
        raise fields.wrong("alertmanager.bound", too_short)
    if open_from(config.freezes, _SOME_WEEK) is None:
        raise fields.wrong("freezes", "leave no minute of the week in which a rollout may begin")
    return replace(
        config,
        tunings=(*config.tunings, PACK_TUNINGS),
        metrics=(*config.metrics, PACK_METRICS),
    )


def _refuse_secrets(data: Mapping[str, object]) -> None:
    # StackStorm puts decrypted configuration into the arguments of every action process.
    for key, value in data.items():
        if isinstance(value, str) and ("st2kv" in value or "PRIVATE KEY" in value):
            raise InputError("configuration", key, "holds a secret; give a file or a key's name")
        if isinstance(value, str) and "://" in value and "@" in value:
            raise InputError(
                "configuration", key, "holds a password; use coordination_password_file"
            )
