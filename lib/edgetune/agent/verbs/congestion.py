# SPDX-License-Identifier: Apache-2.0
"""``congestion``: give new connections of some prefixes a congestion control of their own."""

from typing import List

from edgetune.agent.appliers import APPLIERS
from edgetune.agent.appliers.base import Configuration, Wanted
from edgetune.agent.congestion import Congestion, describe, refuse_unfit
from edgetune.agent.host import Host
from edgetune.agent.protocol import Json, Refused, Request
from edgetune.agent.vocabulary.grammar import LINE
from edgetune.agent.vocabulary.places import CONGESTION_EPOCH
from edgetune.agent.vocabulary.prefixes import number_of

MOST_PREFIXES = 2000


def congestion(host: Host, request: Request) -> Json:
    """Let a ``configuration`` stand for its ``ttl`` seconds; one without prefixes takes all back.

    Telling the same one again renews it. ``skipped`` says why prefixes are not treated.
    Refused for a number below the one that stands. ``epoch`` is that of the claim on the PoP's
    congestion control, and not that of a rollout: neither keeps the other from the host. Taking all
    back needs no number: who has lost the count has to be able to.
    """
    epoch = request.epoch()
    configuration = _read(request.inside("configuration"))
    request.done()
    refuse_unfit(host, configuration)
    with host.lock():
        host.fence(epoch, CONGESTION_EPOCH)
        own = Congestion(host)
        standing = own.load()
        if configuration.prefixes and standing and own.seconds_left(standing):
            before = standing.configuration
            same = before.checksum == configuration.checksum
            if configuration.number < before.number or (
                configuration.number == before.number and not same
            ):
                raise Refused(f"configuration {before.number} of {before.pop} stands here")
        skipped = own.put(configuration)
        return dict(describe(host), skipped=skipped)


def _read(own: Request) -> Configuration:
    prefixes: List[Wanted] = []
    for each in own.each("prefixes"):
        prefix = each.text("prefix", LINE)
        try:
            number_of(prefix)
        except ValueError as error:
            raise each.wrong("prefix", str(error)) from None
        prefixes.append(Wanted(prefix, each.whole("initcwnd", 0, 100)))
        each.done()
    if len(prefixes) > MOST_PREFIXES or len({own.prefix for own in prefixes}) < len(prefixes):
        raise own.wrong("prefixes", f"has one twice, or more than {MOST_PREFIXES}")
    made = Configuration(
        pop=own.text("pop", LINE),
        number=own.whole("number", 1, 2**53),
        algorithm=own.text("algorithm", "[a-z][a-z0-9_-]{0,14}"),
        ttl=own.whole("ttl", 1, 86400),
        prefixes=prefixes,
        applier=own.text("applier", "|".join(APPLIERS)),
        checksum=own.text("checksum", LINE),
    )
    own.done()
    return made
