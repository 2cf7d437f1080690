# SPDX-License-Identifier: Apache-2.0
"""The metric families that edgetune exports.

Labels have few values: PoPs, tunings, and words of the records. The id of a rollout stands in
``edgetune_rollout_info`` alone, which has a series for each rollout that is not over.
"""

from __future__ import annotations

from edgetune.base.dataclass import dataclass


@dataclass(frozen=True)
class Family:
    """``type`` is gauge, counter or summary; names and units follow Prometheus' conventions."""

    name: str
    type: str
    help: str
    labels: tuple[str, ...] = ()


_BY_STATE = ("tuning", "state")
_POP = ("pop",)

FAMILIES = (
    Family("edgetune_rollouts", "gauge", "Rollouts by tuning and state.", _BY_STATE),
    Family(
        "edgetune_rollouts_judged",
        "gauge",
        "Rollouts by the verdict of their newest look, and the decision that followed.",
        ("tuning", "verdict", "decision"),
    ),
    Family(
        "edgetune_rollout_state_entries_total",
        "counter",
        "Times that rollouts entered a state; of rolling_back these are the rollbacks.",
        _BY_STATE,
    ),
    Family(
        "edgetune_rollout_state_seconds_total",
        "counter",
        "Time that rollouts spent in a state; that of held ones counts once they go on.",
        _BY_STATE,
    ),
    Family("edgetune_looks_total", "counter", "Looks taken at soaks.", ("tuning",)),
    Family(
        "edgetune_step_seconds",
        "summary",
        "Time that steps of rollouts took, by action; a drain and a reboot until they were over.",
        ("tuning", "step"),
    ),
    Family(
        "edgetune_step_failures_total",
        "counter",
        "Steps of rollouts that failed, by action and the reason of the error.",
        ("step", "reason"),
    ),
    Family(
        "edgetune_rollout_info",
        "gauge",
        "1 for each rollout that has not ended, left hosts in quarantine, or is unreadable.",
        ("pop", "tuning", "state", "rollout"),
    ),
    Family(
        "edgetune_rollout_created_timestamp_seconds",
        "gauge",
        "When the rollout under way was claimed.",
        _POP,
    ),
    Family(
        "edgetune_rollout_without_owner",
        "gauge",
        "Whether the rollout under way needs a workflow and has none; 0 while all is stopped.",
        _POP,
    ),
    Family(
        "edgetune_owner_last_seen_timestamp_seconds",
        "gauge",
        "When the owner of the rollout under way made its last step, claim_ttl ago at most.",
        _POP,
    ),
    Family(
        "edgetune_last_sample_timestamp_seconds",
        "gauge",
        "When hosts of a PoP with a rollout under way were sampled last.",
        _POP,
    ),
    Family(
        "edgetune_sample_interval_seconds",
        "gauge",
        "Time between two samples that the plan of the rollout under way asks for.",
        _POP,
    ),
    Family(
        "edgetune_last_look_timestamp_seconds",
        "gauge",
        "When the newest look at the present soak was taken.",
        _POP,
    ),
    Family(
        "edgetune_look_due_timestamp_seconds",
        "gauge",
        "When the next look at the present soak is due, or its decision was made.",
        _POP,
    ),
    Family(
        "edgetune_hosts_out_of_service",
        "gauge",
        "Hosts that a rollout took out of service and has not put back.",
        _POP,
    ),
    Family(
        "edgetune_hosts_out_since_timestamp_seconds",
        "gauge",
        "Since when the host is out of service that has been out longest.",
        _POP,
    ),
    Family("edgetune_hosts_quarantined", "gauge", "Hosts in quarantine.", _POP),
    Family(
        "edgetune_hosts_quarantined_in_service",
        "gauge",
        "Hosts in quarantine that were not seen out of service.",
        _POP,
    ),
    Family(
        "edgetune_hosts_at_step",
        "gauge",
        "Hosts of the rollout under way by the step of a batch at which they stand.",
        ("pop", "step"),
    ),
    Family(
        "edgetune_hosts_failed",
        "gauge",
        "Hosts that failed a batch of the rollout under way, by the step at which they stand.",
        ("pop", "step"),
    ),
    Family(
        "edgetune_host_out_seconds",
        "summary",
        "Time that hosts of the rollout under way were out of service until they served again.",
        _POP,
    ),
    Family(
        "edgetune_host_boot_seconds",
        "summary",
        "Time that reboots of hosts took in the rollout under way.",
        _POP,
    ),
    Family(
        "edgetune_pop_paused",
        "gauge",
        "Whether a PoP is paused for a cause; 0 once the pause was lifted.",
        ("pop", "cause"),
    ),
    Family("edgetune_stopped", "gauge", "Whether stop_all is in force."),
    Family("edgetune_campaigns", "gauge", "Campaigns by state.", ("state",)),
    Family(
        "edgetune_congestion_state",
        "gauge",
        "1 for the state of a PoP's rounds of congestion control: tuning, rolled_back, unreadable.",
        ("pop", "state"),
    ),
    Family(
        "edgetune_congestion_last_round_timestamp_seconds",
        "gauge",
        "When a round last led to a configuration, or when rounds began; of a PoP that is tuned.",
        _POP,
    ),
    Family(
        "edgetune_congestion_prefixes",
        "gauge",
        "Client prefixes that were chosen, by group: treated on hosts, or held_out.",
        ("pop", "group"),
    ),
    Family(
        "edgetune_congestion_prefixes_new",
        "gauge",
        "Client prefixes that the newest round chose in addition.",
        _POP,
    ),
    Family(
        "edgetune_congestion_configuration_timestamp_seconds",
        "gauge",
        "When hosts were told the configuration that they have; of a PoP that treats prefixes.",
        _POP,
    ),
    Family(
        "edgetune_congestion_taken_back",
        "gauge",
        "Whether everything is taken back until a person resumes, by cause: harm, or request.",
        ("pop", "cause"),
    ),
    Family(
        "edgetune_congestion_hosts_without",
        "gauge",
        "Hosts that do not have the configuration that the others have.",
        _POP,
    ),
    Family(
        "edgetune_congestion_hosts_not_taken_back",
        "gauge",
        "Hosts that did not confirm a rollback of congestion control.",
        _POP,
    ),
    Family(
        "edgetune_congestion_effect_ratio",
        "gauge",
        "Ratio of treated to held-out prefixes in the newest look, by metric.",
        ("pop", "metric"),
    ),
    Family(
        "edgetune_guard_last_look_timestamp_seconds",
        "gauge",
        "When the sensor rollout_guard looked last.",
    ),
    Family(
        "edgetune_records_unreadable",
        "gauge",
        "Records of rollouts and campaigns that cannot be read.",
    ),
    Family(
        "edgetune_pops_unknown",
        "gauge",
        "PoPs of which a record or a part of one cannot be read, so that series are missing.",
    ),
    Family(
        "edgetune_export_timestamp_seconds",
        "gauge",
        "When these metrics were read from the records.",
    ),
    Family("edgetune_export_duration_seconds", "gauge", "How long reading them took."),
    Family("edgetune_build_info", "gauge", "1; the version of edgetune.", ("version",)),
)
