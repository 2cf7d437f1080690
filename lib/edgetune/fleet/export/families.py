# SPDX-License-Identifier: Apache-2.0
"""The metric families that edgetune exports.

Labels have few values: PoPs, tunings, and words of the records. The id of a rollout stands in the
``_info`` families alone, which have a series for each rollout that is not over. Types and
units follow Prometheus' conventions; values stand by family and labels until they are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgetune.base.dataclass import dataclass

if TYPE_CHECKING:
    from prometheus_client.core import Metric


@dataclass(frozen=True)
class Family:
    """``type`` is gauge, counter or summary."""

    name: str
    type: str
    help: str
    labels: tuple[str, ...]


# Type, name and labels of each; its help stands below.
_TABLE = """
gauge   edgetune_rollouts{tuning,state}
    Rollouts by tuning and state.
gauge   edgetune_rollouts_judged{tuning,verdict,decision}
    Rollouts by the verdict of their newest look, and the decision that followed.
gauge   edgetune_effect_ratio{pop,tuning,metric}
    Change of test hosts to that of control hosts, at the newest look of the newest rollout.
gauge   edgetune_headroom_ratio{pop,tuning,metric}
    Load that test hosts carry to that of control hosts, before the metric passes its limit.
gauge   edgetune_capacity_ratio{pop,tuning,metric,bound}
    Load that tuned hosts carry to that of untuned ones, as it was measured last, or a bound.
counter edgetune_rollout_state_entries_total{tuning,state}
    Times that rollouts entered a state; of rolling_back these are the rollbacks.
counter edgetune_rollbacks_total{tuning,actor}
    Rollbacks that were begun, by who began them: person, rule, or recovery.
counter edgetune_rollout_state_seconds_total{tuning,state}
    Time that rollouts spent in a state; that of held ones counts once they go on.
counter edgetune_looks_total{tuning}
    Looks taken at soaks.
summary edgetune_step_seconds{tuning,step}
    Time that steps of rollouts took, by action; a drain and a reboot until they were over.
counter edgetune_step_failures_total{step,reason}
    Steps of rollouts that failed, by action and the reason of the error.
gauge   edgetune_rollout_info{pop,tuning,state,rollout}
    1 for each rollout that has not ended, left hosts in quarantine, or is unreadable.
gauge   edgetune_rollout_created_timestamp_seconds{pop}
    When the rollout under way was claimed.
gauge   edgetune_rollout_without_owner{pop}
    Whether the rollout under way needs a workflow and has none; 0 while all is stopped.
gauge   edgetune_owner_last_seen_timestamp_seconds{pop}
    When the owner of the rollout under way made its last step, claim_ttl ago at most.
gauge   edgetune_last_sample_timestamp_seconds{pop}
    When hosts of a PoP with a rollout under way were sampled last.
gauge   edgetune_sample_interval_seconds{pop}
    Time between two samples that the plan of the rollout under way asks for.
gauge   edgetune_last_look_timestamp_seconds{pop}
    When the newest look at the present soak was taken.
gauge   edgetune_look_due_timestamp_seconds{pop}
    When the next look at the present soak is due, or its decision was made.
gauge   edgetune_hosts_out_of_service{pop}
    Hosts that a rollout took out of service and has not put back.
gauge   edgetune_hosts_out_since_timestamp_seconds{pop}
    Since when the host is out of service that has been out longest.
gauge   edgetune_hosts_quarantined{pop}
    Hosts in quarantine.
gauge   edgetune_hosts_quarantined_in_service{pop}
    Hosts in quarantine that were not seen out of service.
gauge   edgetune_hosts_at_step{pop,step}
    Hosts of the rollout under way by the step of a batch at which they stand.
gauge   edgetune_hosts_failed{pop,step}
    Hosts that failed a batch of the rollout under way, by the step at which they stand.
summary edgetune_host_out_seconds{pop}
    Time that hosts of the rollout under way were out of service until they served again.
summary edgetune_host_boot_seconds{pop}
    Time that reboots of hosts took in the rollout under way.
gauge   edgetune_pop_paused{pop,cause}
    Whether a PoP is paused for a cause; 0 once the pause was lifted.
gauge   edgetune_rollout_paused_info{pop,rollout,execution,by}
    1 for each rollout whose execution is paused in StackStorm, and who paused it.
gauge   edgetune_stopped
    Whether stop_all is in force.
gauge   edgetune_campaigns{state}
    Campaigns by state.
gauge   edgetune_congestion_state{pop,state}
    1 for the state of a PoP's rounds of congestion control: tuning, rolled_back, unreadable.
gauge   edgetune_congestion_last_round_timestamp_seconds{pop}
    When a round last led to a configuration, or when rounds began; of a PoP that is tuned.
gauge   edgetune_congestion_prefixes{pop,group}
    Client prefixes that were chosen, by group: treated on hosts, or held_out.
gauge   edgetune_congestion_prefixes_new{pop}
    Client prefixes that the newest round chose in addition.
gauge   edgetune_congestion_configuration_timestamp_seconds{pop}
    When hosts were told the configuration that they have; of a PoP that treats prefixes.
gauge   edgetune_congestion_taken_back{pop,cause}
    Whether everything is taken back until a person resumes, by cause: harm, or request.
gauge   edgetune_congestion_hosts_without{pop}
    Hosts that do not have the configuration that the others have.
gauge   edgetune_congestion_hosts_not_taken_back{pop}
    Hosts that did not confirm a rollback of congestion control.
gauge   edgetune_congestion_effect_ratio{pop,metric}
    Ratio of treated to held-out prefixes in the newest look, by metric.
gauge   edgetune_guard_last_look_timestamp_seconds
    When the sensor rollout_guard looked last.
gauge   edgetune_records_unreadable
    Records of rollouts and campaigns that cannot be read.
gauge   edgetune_pops_unknown
    PoPs of which a record or a part of one cannot be read, so that series are missing.
gauge   edgetune_export_timestamp_seconds
    When these metrics were read from the records.
gauge   edgetune_export_duration_seconds
    How long reading them took.
gauge   edgetune_build_info{version}
    1; the version of edgetune.
"""
FAMILIES = tuple(
    Family(name, type_, help_, tuple(filter(None, labels.split(","))))
    for type_, name, labels, help_ in re.findall(
        r"^(\w+) +(\w+){?([\w,]*)}?\n +(.+)$", _TABLE, re.M
    )
)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_FAMILIES = {family.name: family for family in FAMILIES}


class Values:
    """Of each family, by the values of its labels in their order.

    A summary is how much was observed, and its sum. KeyError for a family that there is not,
    ValueError for labels that are not those of the family.
    """

    def __init__(self) -> None:
        self._found: dict[str, dict[tuple[str, ...], list[float]]] = {}

    def put(self, name: str, value: float, *labels: str) -> None:
        """The value, instead of an earlier one."""
        self._of(name, labels)[:] = [value]

    def add(self, name: str, value: float, *labels: str) -> None:
        """The value, on top of an earlier one."""
        self.put(name, self.sum(name, *labels) + value, *labels)

    def least(self, name: str, value: float, *labels: str) -> None:
        """The value, unless an earlier one is smaller."""
        self.put(name, min([value, *self._of(name, labels)]), *labels)

    def observe(self, name: str, value: float, *labels: str, count: int = 1) -> None:
        """One more observation of a summary, or the sum of so many."""
        own = self._of(name, labels)
        before, total = own or (0.0, 0.0)
        own[:] = [before + count, total + value]

    def sum(self, name: str, *labels: str) -> float:
        """What stands there, 0 of nothing."""
        return sum(self._found.get(name, {}).get(labels, []))

    def rows(self, family: Family) -> Iterator[tuple[tuple[str, ...], list[float]]]:
        """Labels and what was put there, sorted."""
        yield from sorted(self._found.get(family.name, {}).items())

    def text(self) -> str:
        """In Prometheus' text format, each family with its HELP and TYPE."""
        # It takes a quarter of a second to import, which other actions need not pay.
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry).decode()

    def collect(self) -> Iterator[Metric]:
        """Families that have a value, as a collector of prometheus_client gives them."""
        from prometheus_client import core

        classes = {
            "gauge": core.GaugeMetricFamily,
            "counter": core.CounterMetricFamily,
            "summary": core.SummaryMetricFamily,
        }
        for family in FAMILIES:
            made = classes[family.type](family.name, family.help, labels=family.labels)
            for labels, observed in self.rows(family):
                made.add_metric(labels, *observed)
            if made.samples:
                yield made

    def _of(self, name: str, labels: tuple[str, ...]) -> list[float]:
        if len(labels) != len(_FAMILIES[name].labels):
            raise ValueError(f"{name} has the labels {_FAMILIES[name].labels}, not {labels}")
        return self._found.setdefault(name, {}).setdefault(labels, [])
