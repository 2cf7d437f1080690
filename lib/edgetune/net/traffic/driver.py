# SPDX-License-Identifier: Apache-2.0
"""The port through which hosts are taken out of traffic, whatever steers requests to them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import ClassVar, Protocol

from edgetune.base.dataclass import dataclass
from edgetune.base.errors import DrainError
from edgetune.base.fields import Field

HEAVIEST = 256
"""The largest weight that a server can have; the least is 0, without requests."""

BACKUP = "backup"
"""Why a server is ``idle`` that gets requests by itself once no better one is left."""


@dataclass(frozen=True)
class Server:
    """A host as its load balancer sees it.

    ``withdrawn`` is "" for a server that may get new clients; else it says in the load balancer's
    own words (any but "ready") how the server was withdrawn, by us or by others. ``up`` is the
    health check's word. ``sessions`` is what the server carries or has queued now, None where
    nobody can tell. ``leaving``: it is withdrawn, and requests may still be sent to it.

    ``idle`` is why no new client is sent to a server that nobody withdrew: "weight 0", BACKUP. It
    is "" where clients are sent there, or where the failing health check alone keeps them away.
    ``state`` is what ``restore`` takes to bring the server to how it stands now, the weight too,
    where that is more than ``withdrawn``. ``overridden_by`` is what may let the server in again
    while it is withdrawn, without being asked to: "its agent check in edges".

    ``weight`` is its weight among the servers of its load balancer, up to HEAVIEST: of those that
    serve each one gets its share of the requests. It is None where ``set_weight`` is refused, and
    where several load balancers have different ones.

    ``address`` and ``port`` are where the load balancer sends its requests ("" and 0 where it does
    not tell), ``checked`` whether it checks the server's health at all, ``passing`` whether the
    last check of it passed: a server that comes back is up before it was checked. Unchecked servers
    are up, and pass.

    ``unknown`` is why nobody can tell how the server stands, though it is known by its name: its
    host tells itself, and does not answer. It counts as not serving, which is not "withdrawn".
    ``told_by_host``: the machine itself answers this, so that no other one is behind the server.

    ``parts`` is what each of several load balancers of a PoP shows, by the name of that part; None
    stands for a server that it should have and lacks. `several` says what the whole is then.
    """

    name: str
    withdrawn: str
    up: bool
    sessions: int | None
    address: str = ""
    port: int = 0
    checked: bool = True
    passing: bool = True
    leaving: bool = False
    unknown: str = ""
    told_by_host: bool = False
    idle: str = ""
    state: str = ""
    weight: int | None = None
    overridden_by: str = ""
    parts: Mapping[str, Server | None] = field(default_factory=dict)

    @property
    def is_serving(self) -> bool:
        """Whether new requests go to it, and are to go on doing so: such a server counts for
        ``min_in_service``. Each of several load balancers has to send it some."""
        return self._may_serve and not self.idle

    @property
    def gets_requests(self) -> bool:
        """Whether new requests go to it from any load balancer: without it, others get them."""
        return any(view.is_serving for view in self._views)

    @property
    def is_back(self) -> bool:
        """Whether it passes its checks, and each load balancer sends it requests, or will do so as
        soon as no better server is left."""
        views = self._views
        serve = all(v._may_serve and v.passing and v.idle in ("", BACKUP) for v in views)
        return serve and not self.lacking

    @property
    def is_let_in(self) -> bool:
        """Whether a load balancer has not withdrawn it, or has forgotten that it did.

        Nothing is done to an unknown one.
        """
        servers = [self, *self._views]
        return not self.unknown and any(not view.withdrawn for view in servers)

    @property
    def fails_every_check(self) -> bool:
        """Whether no load balancer's check has it up."""
        return not any(view.up for view in self._views) and not self.up

    @property
    def lacking(self) -> str:
        """The load balancers that lack a server that they should have, or ""."""
        return ", ".join(name for name, view in self.parts.items() if view is None)

    @property
    def addresses(self) -> Mapping[str, str]:
        """Where load balancers send its requests, by part, if these are several addresses."""
        addresses = {name: view.address for name, view in self.parts.items() if view is not None}
        return addresses if len({*addresses.values()}) > 1 else {}

    @property
    def _views(self) -> Sequence[Server]:
        """The server as each load balancer that knows it shows it."""
        return [view for view in self.parts.values() if view is not None] or [self]

    @property
    def _may_serve(self) -> bool:
        return not self.withdrawn and self.up and not self.unknown


class Balancer(Protocol):
    """What takes servers of one load balancer out of traffic; see `DrainDriver`."""

    @abstractmethod
    def servers(self) -> Mapping[str, Server]:
        """All servers by name, as they are now. A server that is missing counts as lost."""

    @abstractmethod
    def withdraw(self, server: str) -> None:
        """Let no new client come, while sessions go on; a withdrawn server stays as it is."""

    @abstractmethod
    def isolate(self, server: str) -> None:
        """Let nothing come any more, not even clients that were there before.

        A driver that has but one way to withdraw a server does the same here as in ``withdraw``.
        """

    @abstractmethod
    def restore(self, server: str, withdrawn: str = "") -> None:
        """Let new clients come, whoever withdrew the server.

        With ``withdrawn``, a text that ``servers`` gave for it before, it is withdrawn in that way.
        That text may be a ``state``, too: then the server stands as it did, be that without
        requests.
        """

    def set_weight(self, server: str, weight: int) -> None:
        """Give a server a weight, and leave all else of it as it is, withdrawn or not.

        A driver without weights refuses it, and tells none of its servers.
        """
        raise DrainError(f"{server}: this load balancer has no weights for edgetune to set")

    @abstractmethod
    def refuses_changes(self) -> str:
        """Why a change of a server of this PoP would be refused, or ""; changes nothing."""


class DrainDriver(Balancer, Protocol):
    """A way to take hosts out of traffic; servers are named as in the inventory.

    Each call ends within a deadline of the driver's own. It raises DrainError when it fails:
    unanswered, answered by half, refused, or asked for a server that is not there, which the error
    names. So nothing that was not seen reads as "does not serve" or as "carries no session".

    A call that changes something can be repeated. It returns once ``servers`` shows what was asked
    for. Routers and other systems may need longer to follow: until then a withdrawn server is shown
    as ``leaving``, and one that was restored as not ``up`` or not ``passing``. A driver whose load
    balancer keeps no such table keeps one itself, which all action runners see.

    Where hosts steer their own traffic, each is asked alone. A call for one of them raises
    ServerError where that host fails. ``servers`` tells it as ``unknown``, and raises DrainError
    where none answers.
    """

    fields: ClassVar[Mapping[str, Field]]
    """Of its entry in the inventory; the driver is made with their values, by name."""

    advice: ClassVar[str]
    """What an operator does where the load balancer refuses changes, as an imperative."""

    override_advice: ClassVar[str] = ""
    """The same where servers are ``overridden_by`` something."""

    @classmethod
    def misfits(cls, fields: Mapping[str, str]) -> Mapping[str, str]:
        """By field, why it does not fit the others; {} where all do."""
        return {}

    def under(self, epoch: int) -> DrainDriver:
        """The driver, acting under an epoch: hosts that steer themselves obey no older one."""
        return self

    def refuses_changes_of(self, servers: Collection[str]) -> str:
        """Why changes of these servers would be refused, where each one can refuse for itself."""
        return self.refuses_changes()

    def answering(self) -> tuple[DrainDriver, str]:
        """Those of several load balancers that answer, as if there were no others, and why the
        others do not; itself and "" where all do, or none does."""
        return self, ""

    def certificates(self) -> Mapping[str, bytes]:
        """In DER, those that load balancers show us, by where they are; what fails is left out."""
        return {}
