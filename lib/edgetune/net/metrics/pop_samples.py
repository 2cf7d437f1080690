# SPDX-License-Identifier: Apache-2.0
"""Samples of PoPs, wherever they are kept: in our store, or by what measured them.

Each source of a PoP has a series of its own. That of its second source is in the store under
``POP:1``, which is the name of no PoP, and so on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Callable

from edgetune.base import clock
from edgetune.base.documents.sample import Sample
from edgetune.base.documents.table import SampleTable
from edgetune.base.errors import EdgetuneError
from edgetune.net.metrics.attached import NEAR, attached
from edgetune.net.metrics.samples import Limit, Samples
from edgetune.net.metrics.source import SOON, MetricSource, RememberingSource, thinned
from edgetune.site.inventory import Inventory, Pop

_AT_ONCE, _MOST_THREADS = 8, 128
"""Questions that one server has at once, and all of them. A server that hangs takes its own."""

_Read = Callable[[float, float], SampleTable]
_Queue = deque[tuple[str, "Pop", RememberingSource]]


class PopSamples:
    """What the sources of each PoP of an inventory told; ``opened`` gives a source by its name.

    All raise StoreError if the store fails, and SourceError if a source that remembers does. Of a
    PoP that the inventory has lost, the store tells what there is.
    """

    def __init__(
        self,
        stored: Samples,
        inventory: Callable[[], Inventory],
        opened: Callable[[str], MetricSource],
    ) -> None:
        self._stored, self._inventory, self._opened = stored, inventory, opened

    def add(self, pop: str, samples: Sequence[Sample], number: int = 0) -> None:
        """Keep those of the source of that number, unless it remembers them itself.

        Only the first source gives counters.
        """
        view = self._views(pop)[number]
        if view and self._remembering(view):
            return
        if number:
            samples = [replace(sample, counters={}) for sample in samples]
        self._stored.add(_series(pop, number), samples)

    def window(self, pop: str, start: float, end: float) -> SampleTable:
        """All with start <= time <= end, oldest first, without those that are damaged.

        Gauges of further sources are attached to the samples of the first one.
        """
        return self._joined(
            pop,
            lambda source, view: source.window(view, start, end),
            lambda read: read(start, end),
            NEAR,
        )

    def thinned(
        self, pop: str, start: float, end: float, step: float, before: float
    ) -> SampleTable:
        """Those of ``window`` that a picture needs with a slot of each ``step`` seconds: some in
        the ``before`` seconds until each border of a slot, at least. ``step`` is longer.

        A gauge of a further source is attached to a sample of the same border.
        """
        return self._joined(
            pop,
            lambda source, view: source.thinned(view, start, end, step, before),
            lambda read: thinned(read, start, end, step, before),
            min(NEAR, step / 3),
        )

    def newest(self, pops: Sequence[str]) -> dict[str, float]:
        """When each PoP was sampled last, in epoch seconds; none of a PoP without a sample."""
        views = {pop: view for pop in pops if (view := self._views(pop)[0])}
        sources = {pop: self._remembering(view) for pop, view in views.items()}
        found = self._stored.newest([pop for pop in pops if not sources.get(pop)])
        told = {pop: source.newest(views[pop]) for pop, source in sources.items() if source}
        return {**found, **{pop: time for pop, time in told.items() if time is not None}}

    def newest_known(self, pops: Sequence[str]) -> tuple[dict[str, float], dict[str, str]]:
        """The same, and by PoP why its source does not tell.

        That hides no other PoP, and keeps none of another server waiting. After SOON seconds no
        more is asked: all is told within about twice as long.
        """
        servers: dict[str, _Queue] = {}
        for pop in pops:
            view = self._views(pop)[0]
            source = view and self._remembering(view)
            if view and source:
                url = str(view.metrics.fields.get("url", pop))
                servers.setdefault(url, deque()).append((pop, view, source))
        remembered = {pop for queue in servers.values() for pop, *_ in queue}
        found, lost = self.newest([pop for pop in pops if pop not in remembered]), dict[str, str]()
        ends = clock.monotonic() + SOON
        # The first thread of each server comes before the second one of any.
        turns = [own for number in range(_AT_ONCE) for own in servers.values() if number < len(own)]
        with ThreadPoolExecutor(_MOST_THREADS) as threads:
            [*threads.map(lambda queue: _ask(queue, ends, found, lost), turns)]
        return found, lost

    def limit(self) -> Limit | None:
        """What the store may hold in all."""
        return self._stored.limit()

    def stored_series(self, pop: str) -> int:
        """How many series of samples of a PoP are in the store."""
        return sum(not (view and self._remembering(view)) for view in self._views(pop))

    def _joined(
        self,
        pop: str,
        asked: Callable[[RememberingSource, Pop], SampleTable],
        stored: Callable[[_Read], SampleTable],
        near: float,
    ) -> SampleTable:
        """What is asked of each source that remembers, or is made of what the store has of another
        one: the first one's, with the gauges of the others."""
        every = []
        for number, view in enumerate(self._views(pop)):
            source = view and self._remembering(view)
            if view and source:
                every.append(asked(source, view))
            else:
                every.append(stored(partial(self._stored.window, _series(pop, number))))
        first, *others = every
        for more in others:
            first = attached(first, more, near)
        return first

    def _views(self, pop: str) -> Sequence[Pop | None]:
        inventory = self._inventory()
        return inventory.pop(pop).views if pop in inventory.pop_names() else [None]

    def _remembering(self, view: Pop) -> RememberingSource | None:
        source = self._opened(view.metrics.source)
        return source if isinstance(source, RememberingSource) else None


def _ask(queue: _Queue, ends: float, found: dict[str, float], lost: dict[str, str]) -> None:
    """Ask when PoPs were measured last until none is in the queue of their server; of those that
    are there at ``ends`` nothing is known."""
    while True:
        try:
            pop, view, source = queue.popleft()
        except IndexError:  # another thread took the last one
            return
        if clock.monotonic() > ends:
            lost[pop] = f"{pop}: its metric source was busy with other PoPs, and was not asked"
            continue
        try:
            newest = source.newest(view)
        except EdgetuneError as error:
            lost[pop] = str(error)
        else:
            found.update({} if newest is None else {pop: newest})


def _series(pop: str, number: int) -> str:
    return f"{pop}:{number}" if number else pop
