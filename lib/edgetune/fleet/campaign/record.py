# SPDX-License-Identifier: Apache-2.0
"""The record of a campaign, and who may write it.

edgetune.campaign.ID.EPOCH    what was begun: rings, PoPs, the rollout of each; state and history

Whoever writes holds the campaign's claim, and writes a document of its own epoch: the newest one
counts. The store knows no compare-and-swap; so who lost the claim just before a write has written
nothing that counts, and is told so right after it. To hold, resume or abort takes the claim from
whoever has it; an advance leaves the campaign to others.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from edgetune import CAMPAIGN_SCHEMA, PACK
from edgetune.base import clock
from edgetune.base.documents.campaign import Record
from edgetune.base.documents.reading import check_is, decoded, read_document
from edgetune.base.errors import DamagedError, FencedError, InputError, RefusedError
from edgetune.rollout.context import Context
from edgetune.rollout.store.claims import Claim

_PREFIX = f"{PACK}.campaign."
_DROPPED = "{}"
"""What earlier versions left of each epoch but the newest."""
_AT_ONCE = 25
"""How many of those one step of a campaign deletes."""


class Writer:
    """A campaign that its holder may write; FencedError once somebody else took it."""

    def __init__(self, context: Context, claim: Claim) -> None:
        self._context, self._claim = context, claim
        self._read_at, self.record = _newest(context, claim.rollout)
        self._written = asdict(self.record)

    def save(self) -> None:
        """Write the record down, if anything in it is new; to be called before side effects.

        When it returns, whoever takes the campaign from now on finds what was written.
        """
        if asdict(self.record) != self._written:
            put_record(self._context, self.record, self._claim.epoch)
            self._written = asdict(self.record)
            if self._read_at != self._claim.epoch:
                self._read_at = self._claim.epoch
                self._forget_earlier()
        ttl = self._context.config.owner_timeout
        self._context.claims.renew(_claim_of(self.record.id), self._claim, ttl)

    def _forget_earlier(self) -> None:
        """Delete what was written under earlier epochs: every step would read it again."""
        start, store = f"{_PREFIX}{self.record.id}.", self._context.store
        epochs = sorted(int(key[len(start) :]) for key in store.list(start) if _has_epoch(key))
        for epoch in [own for own in epochs if own < self._claim.epoch][-_AT_ONCE:]:
            store.delete(_key(self.record.id, epoch))


@contextmanager
def seized(context: Context, campaign: str) -> Iterator[Writer]:
    """A campaign, taken from whoever is at work on it; InputError if there is none."""
    epoch, _ = _newest(context, campaign)
    ttl = context.config.owner_timeout
    claim = context.claims.take(_claim_of(campaign), campaign, ttl, above=epoch)
    writer = Writer(context, claim)
    try:
        yield writer
    except Exception:
        context.claims.release(_claim_of(campaign), claim)
        raise
    context.claims.release(_claim_of(campaign), claim)


@contextmanager
def taken_if_free(context: Context, campaign: str) -> Iterator[Writer]:
    """The same, but FencedError while somebody is at work on it.

    Of two who take it at the same moment the second one goes on: the first has it taken away
    before it does anything.
    """
    if context.claims.holder(_claim_of(campaign)) is not None:
        raise FencedError(f"somebody else is at work on campaign {campaign}")
    with seized(context, campaign) as writer:
        yield writer


def new_id(name: str) -> str:
    """An id that nobody had before."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(clock.wall()))
    return f"{name}-{stamp}-{secrets.token_hex(2)}"


def read_record(context: Context, campaign: str) -> Record:
    """The record of that id; InputError if there is none."""
    return _newest(context, campaign)[1]


def put_record(context: Context, record: Record, epoch: int = 0) -> None:
    """Write a record as the holder of an epoch, or 0 for who begins it."""
    document = {"schema": CAMPAIGN_SCHEMA, **asdict(record)}
    context.store.put(_key(record.id, epoch), json.dumps(document))


def all_records(context: Context) -> list[Record]:
    """Every campaign, oldest first; RefusedError if one cannot be read."""
    records, unreadable = readable_records(context)
    if unreadable:
        raise RefusedError("; ".join(unreadable))
    return records


def readable_records(context: Context) -> tuple[list[Record], list[str]]:
    """Every campaign that can be read, oldest first, and why others cannot."""
    records, unreadable = [], []
    for campaign, (epoch, text) in _texts(context, _PREFIX).items():
        try:
            records.append(_load(campaign, epoch, text))
        except RefusedError as error:
            unreadable.append(str(error))
    return sorted(records, key=lambda record: record.created), unreadable


def _newest(context: Context, campaign: str) -> tuple[int, Record]:
    """A record and the epoch that it was written under; InputError if there is none."""
    found = _texts(context, f"{_PREFIX}{campaign}.").get(campaign)
    if found is None:
        raise InputError("parameter", "campaign", f"there is no campaign {campaign!r}")
    epoch, text = found
    return epoch, _load(campaign, epoch, text)


def _texts(context: Context, prefix: str) -> dict[str, tuple[int, str]]:
    """For each campaign its newest epoch and what was written under it."""
    found: dict[str, tuple[int, str]] = {}
    for key, text in context.store.list(prefix).items():
        campaign, _, epoch = key[len(_PREFIX) :].rpartition(".")
        if text != _DROPPED and _has_epoch(key) and int(epoch) >= found.get(campaign, (0, ""))[0]:
            found[campaign] = (int(epoch), text)
    return found


def _load(campaign: str, epoch: int, text: str) -> Record:
    key = _key(campaign, epoch)
    try:
        document = read_document(key, text)
        schema = document.pop("schema", None)
        check_is(key, "schema", type(schema) is int, "is missing or no number")
        if schema == CAMPAIGN_SCHEMA:
            record = decoded(key, Record, document)
            check_is(key, "id", record.id == campaign, "is that of another campaign")
            return record
    except DamagedError as error:
        raise RefusedError(f"campaign {campaign}: its record {error}") from None
    raise RefusedError(f"campaign {campaign} was written by another version of the pack")


def _key(campaign: str, epoch: int) -> str:
    return f"{_PREFIX}{campaign}.{epoch}"


def _has_epoch(key: str) -> bool:
    return key.rpartition(".")[2].isdecimal()


def _claim_of(campaign: str) -> str:
    return f"campaign/{campaign}"
