# SPDX-License-Identifier: Apache-2.0
"""Where a Prometheus is and how one logs in to it. Secrets stand in files of the action runner."""

from __future__ import annotations

from collections.abc import Mapping

from edgetune.base.dataclass import dataclass
from edgetune.base.errors import InputError
from edgetune.base.fields import Field
from edgetune.base.secret_files import Authorization, authorization
from edgetune.net.connection import Tls

_PATH = r"(/[^\0-\x1f\x7f]*)?"

FIELDS: Mapping[str, Field] = {
    "url": Field(
        "where its API is, without `/api/v1`",
        "http://prometheus.example.org:9090",
        r"https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?",
    ),
    "bearer_token_file": Field(
        "file with a token to log in with", "/etc/edgetune/token", _PATH, ""
    ),
    "username": Field("name to log in with", "edgetune", r"[^:\0-\x1f\x7f]*", ""),
    "password_file": Field(
        "file with the password of `username`", "/etc/edgetune/password", _PATH, ""
    ),
    "ca_file": Field(
        "file with the certificates that its own is verified with, those of the system unless "
        "given",
        "/etc/edgetune/ca.pem",
        _PATH,
        "",
    ),
    "certificate_file": Field(
        "file with a client certificate", "/etc/edgetune/client.pem", _PATH, ""
    ),
    "key_file": Field("file with the key of the certificate", "/etc/edgetune/key.pem", _PATH, ""),
    "tenant": Field("tenant, for Mimir (`X-Scope-OrgID`)", "edge", r"[!-~]*", ""),
}
"""As the inventory has them."""


@dataclass(frozen=True)
class Access:
    """The values of FIELDS; a file is read when it is needed, for it may be renewed."""

    url: str
    bearer_token_file: str = ""
    username: str = ""
    password_file: str = ""
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    tenant: str = ""

    @property
    def tls(self) -> Tls:
        """Whose certificate is believed, and the one of ours, whose key may be in its file."""
        return Tls(self.ca_file, self.certificate_file, key_file=self.key_file)

    def login(self) -> Authorization:
        """The headers of a request; InputError names the field, and never shows a secret."""
        found = {"X-Scope-OrgID": self.tenant} if self.tenant else {}
        if self.bearer_token_file and self.username:
            raise InputError("metrics", "username", "is given beside bearer_token_file")
        login = authorization(self.bearer_token_file, self.username, self.password_file, "metrics")
        return Authorization({**found, **login.headers}, login.secrets)
