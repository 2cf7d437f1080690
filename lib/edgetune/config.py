# SPDX-License-Identifier: Apache-2.0
"""The pack's configuration, checked again here: StackStorm lets misspelt keys pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgetune import PACK
from edgetune.errors import InputError, UnconfiguredError
from edgetune.fields import Fields
from edgetune.files import load_yaml

_STORE = r"st2|sqlite:///\S.*"
_COORDINATION = r"rediss?://[^\s?@]+|sqlite:///\S.*"
_REPORT_DIR = r"(/.*)?"
_REPORT_URL = r"(https?://\S+)?"
FILE = f"/opt/stackstorm/configs/{PACK}.yaml"
_SCHEMA = Path(__file__).resolve().parents[2] / "config.schema.yaml"
PACK_TUNINGS = Path(__file__).resolve().parents[2] / "tunings"


@dataclass(frozen=True)
class Config:
    """Every value of ``config.schema.yaml``; times are seconds."""

    inventory: Path
    tunings: tuple[Path, ...]
    campaigns: tuple[Path, ...]
    plan_approval: bool
    self_approval: bool
    approval_expires: float
    chat_channel: str
    ssh_user: str
    ssh_key_file: Path
    ssh_known_hosts: Path
    ssh_timeout: float
    ssh_threads: int
    bmc_ca_file: str
    bmc_verify: bool
    bmc_credentials_file: str
    bmc_timeout: float
    bmc_threads: int
    records: str
    records_api_key_file: str
    coordination: str
    coordination_password_file: str
    claim_ttl: float
    claim_grace: float
    owner_timeout: float
    surge_factor: float
    detectable_effect: float
    drain_deadline: float
    reset_after: float
    reboot_deadline: float
    health_deadline: float
    sample_retention: float
    report_dir: str
    report_url: str


def read_config(data: Mapping[str, Any]) -> Config:
    """Check a configuration mapping; InputError names the key, UnconfiguredError the file."""
    if _is_none(data or {}):
        raise UnconfiguredError(
            FILE,
            None,
            f"is not there, or not registered: write it as {PACK}.yaml.example of the pack shows, "
            "then run: st2ctl reload --register-configs",
        )
    fields = Fields(data or {}, "configuration")
    _refuse_secrets(data or {})
    config = Config(
        inventory=Path(fields.text("inventory")),
        tunings=(*(Path(path) for path in fields.texts("tunings", [])), PACK_TUNINGS),
        campaigns=tuple(Path(path) for path in fields.texts("campaigns", [])),
        plan_approval=fields.flag("plan_approval", False),
        self_approval=fields.flag("self_approval", False),
        approval_expires=fields.number("approval_expires", 86400, minimum=60),
        chat_channel=fields.text("chat_channel", ""),
        ssh_user=fields.text("ssh_user", "root"),
        ssh_key_file=Path(fields.text("ssh_key_file")),
        ssh_known_hosts=Path(fields.text("ssh_known_hosts")),
        ssh_timeout=fields.number("ssh_timeout", 10, minimum=0.1),
        ssh_threads=fields.whole("ssh_threads", 16, minimum=1, maximum=256),
        bmc_ca_file=fields.text("bmc_ca_file", ""),
        bmc_verify=fields.flag("bmc_verify", True),
        bmc_credentials_file=fields.text("bmc_credentials_file", ""),
        bmc_timeout=fields.number("bmc_timeout", 60, minimum=1),
        bmc_threads=fields.whole("bmc_threads", 32, minimum=1, maximum=256),
        records=fields.text("records", "st2", pattern=_STORE),
        records_api_key_file=fields.text("records_api_key_file", ""),
        coordination=fields.text("coordination", "redis://127.0.0.1:6379/0", pattern=_COORDINATION),
        coordination_password_file=fields.text("coordination_password_file", ""),
        claim_ttl=fields.number("claim_ttl", 86400, minimum=60),
        claim_grace=fields.number("claim_grace", 600, minimum=0),
        owner_timeout=fields.number("owner_timeout", 900, minimum=1),
        surge_factor=fields.number("surge_factor", 2, minimum=1),
        detectable_effect=fields.number("detectable_effect", 0.9, minimum=0, maximum=10),
        drain_deadline=fields.number("drain_deadline", 300, minimum=1),
        reset_after=fields.number("reset_after", 300, minimum=1),
        reboot_deadline=fields.number("reboot_deadline", 1200, minimum=1),
        health_deadline=fields.number("health_deadline", 120, minimum=1),
        sample_retention=fields.number("sample_retention", 1209600, minimum=60),
        report_dir=fields.text("report_dir", "", pattern=_REPORT_DIR),
        report_url=fields.text("report_url", "", pattern=_REPORT_URL),
    )
    fields.done()
    if config.claim_ttl <= config.owner_timeout:
        raise fields.wrong(
            "claim_ttl", f"must be longer than owner_timeout, {config.owner_timeout}"
        )
    return config


def _is_none(data: Mapping[str, Any]) -> bool:
    """Whether nobody wrote a configuration: StackStorm then hands over the schema's defaults."""
    if "inventory" in data:
        return False
    schema = load_yaml(_SCHEMA)
    defaults = {name: own["default"] for name, own in schema.items() if "default" in own}
    return all(name in defaults and value == defaults[name] for name, value in data.items())


def _refuse_secrets(data: Mapping[str, Any]) -> None:
    # StackStorm puts decrypted configuration into the arguments of every action process.
    for key, value in data.items():
        if isinstance(value, str) and ("st2kv" in value or "PRIVATE KEY" in value):
            raise InputError("configuration", key, "holds a secret; give a file or a key's name")
        if isinstance(value, str) and "://" in value and "@" in value:
            raise InputError(
                "configuration", key, "holds a password; use coordination_password_file"
            )
