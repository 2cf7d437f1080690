# SPDX-License-Identifier: Apache-2.0
"""Hosts that sample themselves, asked over SSH."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from edgetune.agent.log_format import FORMATS, LogFormat
from edgetune.base import clock
from edgetune.base.fields import Field, Fields
from edgetune.base.sanitize import Pattern
from edgetune.net.metrics.source import Connections, MetricNames, MetricSource, Sampled
from edgetune.site.inventory import Host, Pop

if TYPE_CHECKING:
    from edgetune.net.result import HostResult


def _known_format(text: str) -> str:
    LogFormat(text)
    return text


_WORDS = Pattern(r".*\S.*", "say where the agent reads it")


class Hosts(MetricSource):
    """The agent on each host reads the counters of its kernel, asks its service for its health, and
    tells drift. It also counts the requests in an access log, where one is named."""

    fields: ClassVar[Mapping[str, Field]] = {
        "access_log": Field(
            "the access log of the service on each host; empty where none is read",
            example="/var/log/nginx/access.log",
            pattern=r"(/[!-~]+)?",
            default="",
        ),
        "log_format": Field(
            f"how its lines are written: {', '.join(FORMATS)}, or a format of your own",
            example="nginx",
            pattern=r"[ -~]+",
            default="nginx",
            same=_known_format,
        ),
    }

    @staticmethod
    def read_reading(fields: Fields, limit: float | None) -> Mapping[str, object]:
        """The words that say where the agent reads it, ``freebsd`` on hosts with FreeBSD.

        ``from`` can be left out beside that: hosts with Linux do not have the reading then.
        """
        freebsd = fields.text("freebsd", "", pattern=_WORDS)
        alone = fields.text("from", "", pattern=_WORDS) if freebsd else None
        linux = fields.text("from", pattern=_WORDS) if alone is None else alone
        return {
            name: reading for name, reading in (("from", linux), ("freebsd", freebsd)) if reading
        }

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def sample(
        self, hosts: Mapping[Host, Pop], health_requests: int
    ) -> Iterator[Mapping[Host, Sampled]]:
        began: dict[str, float] = {}

        def request(host: Host) -> dict[str, object]:
            began.setdefault(hosts[host].name, clock.wall())
            return sample_request(hosts[host], health_requests)

        for part in self._connections.fleet.ask_in_parts([*hosts], "sample", request, ahead=True):
            kept = self._connections.catalogue
            yield {host: _sampled(answer, began[hosts[host].name], kept) for host, answer in part}


SOURCE = Hosts


def sample_request(pop: Pop, health_requests: int) -> dict[str, object]:
    """What an agent is asked, so that it asks its service so many times."""
    # A PoP that others sample has its health asked here, too.
    fields = pop.metrics.fields if pop.metrics.source == "hosts" else {}
    log = fields.get("access_log", "")
    asked = {
        "access_log": log,
        "log_format": fields.get("log_format", "") if log else "",
        "health_url": pop.health,
        "health_name": pop.health_name,
        "health_tls": pop.health_tls if pop.health_tls != "verified" else "",
    }
    given = {name: value for name, value in asked.items() if value}
    return {**given, "health_requests": health_requests}


def _sampled(answer: HostResult, began: float, catalogue: MetricNames) -> Sampled:
    if answer.error is not None:
        return Sampled(error=answer.error, silent=answer.reason == "unreachable")
    # Every action reads the inventory, and with it this file; few of them sample.
    from edgetune.base.documents.sample import sample_answer
    from edgetune.net.metrics.samples import make_sample

    answered = sample_answer(answer.data)
    sample = make_sample(answer.host, began, answered, catalogue)
    return Sampled(sample, drift=answered.drift, health=answered.health, log=answered.log)
