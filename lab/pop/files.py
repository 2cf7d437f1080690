# SPDX-License-Identifier: Apache-2.0
"""What a lab writes into its home for the pack and the person who use it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .layout import (
    ALERTMANAGER,
    LOAD_BALANCER,
    PROMETHEUS,
    REFUSED,
    SECOND_BALANCER,
    TEXTFILES,
    Address,
    LabError,
    Layout,
    Site,
)

BMC_USER = "edgetune"
CHECKOUT = Path(__file__).parents[2]
WRITTEN_BY_US = "# Written by `edgetune lab up`."

POP = """
  {0.name}:
    min_in_service: 0.5
    region: lab
    health: "http://127.0.0.1:80/health"
    load_balancer:
      {2}
    bmc: {{credentials: lab}}{1}
    hosts:
"""
HAPROXY = f'{{driver: haproxy, address: "tcp://{LOAD_BALANCER}:9999", backend: %s}}'
TWO = HAPROXY.replace(
    f'"tcp://{LOAD_BALANCER}:9999"',
    f'["tcp://{LOAD_BALANCER}:9999", "tcp://{SECOND_BALANCER}:9999"]',
)
BIRD = "{driver: bird, protocols: anycast/anycast_leaving, wait: 2s, checks: none}"
ACCESS_LOG = """
    metrics:
      source: hosts
      access_log: /var/log/nginx/access.log
      log_format: "{status} {bytes} {time} {ended}"  # as etc/nginx/nginx.conf writes it"""
# Counters from Prometheus; health and drift, which it has not, from the hosts themselves.
METRICS = f"""
    metrics:
      - source: prometheus
        url: "http://{PROMETHEUS}"
        matcher: 'host="{{name}}"'
        devices: eth0
      - source: hosts"""

# Hosts in namespaces are one stratum, and machines are another.
HOST = (
    "      {0.name}: {{address: {0.ip}, port: 22, rack: {0.rack}, hardware: {0.hardware},"
    " server: {0.name},"
    ' bmc: {{address: "https://{0.bmc}", machine: {1}}}}}'
)


@dataclass(frozen=True)
class Times:
    """Of a configuration, in seconds."""

    ssh: int = 10
    claim: int = 120
    owner: int = 20
    reset: int = 20
    boot: int = 60
    health: int = 30


# A machine boots in one to three minutes, and starts the agent in some seconds. An owner has to be
# silent for longer than the action that installs a kernel.
MACHINE_TIMES = Times(ssh=180, claim=1200, owner=900, reset=120, boot=600, health=180)

CONFIGURATION = """---
# Written by `edgetune lab up`.
inventory: {inventory}
tunings: {tunings}
campaigns: [{campaigns}]
ssh_user: root
ssh_key_file: {key}
ssh_known_hosts: {known_hosts}
ssh_timeout: {times.ssh}
ssh_threads: 8
bmc_ca_file: {authority}
bmc_credentials_file: {credentials}
bmc_timeout: 10
records: {database}
coordination: {database}
claim_ttl: {times.claim}
claim_grace: 0
owner_timeout: {times.owner}
drain_deadline: 30
reset_after: {times.reset}
reboot_deadline: {reboot_deadline}
health_deadline: {times.health}
# What a baseline of seconds says of the power is told, and refuses nothing.
detectable_effect: 0
# The next lab may have fewer hosts and PoPs.
inventory_shrink: 1
sample_retention: 172800
report_dir: {reports}
"""

MONITORING = f"""textfile_directory: {TEXTFILES}
alertmanager:
  url: "http://{ALERTMANAGER}"
  matchers: {{host: "{{name}}"}}
  # The shortest that there is: a rollout whose owner died is taken over after 20 s.
  bound: 1m
"""


# Fit to be watched, and for no real PoP: rollouts of seconds, and alphas that four hosts can reach.
CAMPAIGN = """---
# Written by `edgetune lab up`.
name: practice
tuning: accept_queue
rollout: {baseline: 15s, soak: 25s, interval: 3s, warmup: 3s, alpha_benefit: 0.2, alpha_harm: 0.2}
rings:
  - {name: canary, pops: [lab1]}
  - {name: fleet, regions: [lab]}
gates: {max_concurrent: 2}
"""


def write_inventory(
    layout: Layout,
    sites: Sequence[Site],
    prometheus: bool = False,
    anycast: bool = False,
    both: bool = False,
) -> None:
    """`prometheus`: it is asked for the counters. `anycast`: hosts announce the address. `both`:
    two load balancers send requests to the hosts.
    """
    from lab.bmc.machine import uuid_of  # late, as below

    text, metrics = "", METRICS if prometheus else ACCESS_LOG
    for site in sites:
        hosts = (f"{HOST.format(host, uuid_of(host.name))}\n" for host in site.hosts)
        balancer = BIRD if anycast else (TWO if both else HAPROXY) % site.backend
        text += POP.format(site, metrics, balancer) + "".join(hosts)
    layout.inventory.write_text(f"---\n{WRITTEN_BY_US}\npops:{text}")


def write_campaign(layout: Layout, pops: int) -> None:
    """One to practise on, unless there is but one PoP; what else lies there is somebody's own."""
    layout.campaigns.mkdir(exist_ok=True)
    path = layout.campaigns / "practice.yaml"
    if pops > 1:
        path.write_text(CAMPAIGN)
    else:
        path.unlink(missing_ok=True)


def write_known_hosts(layout: Layout, hosts: Sequence[Address], keys: Mapping[str, str]) -> None:
    """`keys` is {host name: public key}."""
    lines = [f"{host.ip} {' '.join(keys[host.name].split()[:2])}\n" for host in hosts]
    layout.known_hosts.write_text("".join(lines))


def write_configuration(
    layout: Layout, post_seconds: float = 0.0, prometheus: bool = False, machines: bool = False
) -> None:
    """The pack's configuration; a JSON string is a YAML string, whatever the path contains.

    `prometheus`: hosts tell it their boots, and alerts of those that are out are silenced.
    `machines`: some hosts are, and take their time.
    """
    times = MACHINE_TIMES if machines else Times()
    tunings = [CHECKOUT / "tunings", CHECKOUT / "lab" / "tunings"]
    text = CONFIGURATION.format(
        inventory=json.dumps(str(layout.inventory)),
        tunings=json.dumps([str(path) for path in tunings if path.is_dir()]),
        campaigns=json.dumps(str(layout.campaigns)),
        key=json.dumps(str(layout.key)),
        known_hosts=json.dumps(str(layout.known_hosts)),
        authority=json.dumps(str(layout.bmc_ca)),
        credentials=json.dumps(str(layout.bmc_credentials)),
        reboot_deadline=times.boot + round(post_seconds),
        times=times,
        reports=json.dumps(str(layout.home / "reports")),
        database=json.dumps(f"sqlite:///{layout.home / 'edgetune.sqlite'}"),
    )
    layout.configuration.write_text(text + (MONITORING if prometheus else ""))


def write_bmc_secrets(layout: Layout, ips: Iterable[str]) -> None:
    """Certificates for BMCs at these addresses, and a password that only this lab has."""
    # Late: of all that import this module only who builds a lab has to wait for it.
    from lab.bmc.certificates import make_certificates

    make_certificates(layout.lab, ips)
    password = secrets.token_urlsafe(18)
    login = {"lab": {"username": BMC_USER, "password": password}}
    for path, text in (
        (layout.bmc_password, password),
        (layout.bmc_credentials, json.dumps(login)),
    ):
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_text(text + "\n")


def prepare_home(layout: Layout) -> None:
    """Forget the records of an earlier PoP, whose hosts knew other epochs.

    A configuration that no lab wrote is somebody's own: LabError rather than overwrite it.
    """
    path = layout.configuration
    if path.exists() and WRITTEN_BY_US not in path.read_text():
        raise LabError(f"{path} is not a lab's; move it away, or set EDGETUNE_HOME", REFUSED)
    for name in ("edgetune.sqlite", "datastore.sqlite"):
        (layout.home / name).unlink(missing_ok=True)


def write_state(layout: Layout, state: Mapping[str, Any]) -> None:
    layout.state.write_text(json.dumps(state, indent=2) + "\n")
