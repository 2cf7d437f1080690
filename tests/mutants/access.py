# SPDX-License-Identifier: Apache-2.0
"""Mistakes about who is let in, and which host is believed."""

from __future__ import annotations

from tests.mutants.mutation import mutations_of

CONVERSATIONS = (
    *mutations_of(
        "lib/edgetune/hosts",
        ["lib/hosts/test_fleet"],
        (
            "packets are sealed by a MAC beside them",
            "known_hosts.py",
            'key=lambda name: "-gcm@" not in name',
            'key=lambda name: "-gcm@" in name',
        ),
        (
            "only ciphers that are quick are taken",
            "known_hosts.py",
            'sorted(wanted.ciphers, key=lambda name: "-gcm@" not in name)',
            '[name for name in wanted.ciphers if "-gcm@" in name]',
        ),
    ),
    *mutations_of(
        "lib/edgetune/hosts",
        ["lib/hosts/test_answers"],
        (
            "a text within an answer may be of any length",
            "shapes.py",
            "        return len(value) <= most and value.isascii()\n",
            "        return value.isascii()\n",
        ),
        (
            "a text within an answer may hold half a character",
            "shapes.py",
            "        return len(value) <= most and value.isascii()\n",
            "        return len(value) <= most\n",
        ),
        (
            "nothing within an answer is looked at",
            "shapes.py",
            "    return not isinstance(value, (dict, list))\n",
            "    return True\n",
        ),
    ),
)

ACCESS = mutations_of(
    "lib/edgetune/hosts",
    ["lib/hosts/test_access"],
    (
        "the certificate of a host may be by anybody",
        "certificates.py",
        "    if authority not in authorities:\n",
        "    if False:\n",
    ),
    (
        "a revoked authority is trusted",
        "certificates.py",
        "    if authority in revoked:\n",
        "    if False:\n",
    ),
    (
        "the signature of a certificate is not verified",
        "certificates.py",
        "        found.verify_cert_signature()\n",
        "",
    ),
    (
        "a signature by SHA-1 is one",
        "certificates.py",
        "        _refuse_sha1(found, blob)\n",
        "",
    ),
    (
        "a certificate is for any key",
        "certificates.py",
        '!= key:\n        raise ValueError("is for another key")\n',
        "!= key:\n        pass\n",
    ),
    (
        "the certificate of a user is that of a host",
        "certificates.py",
        "    if found.type is not _HOST:\n",
        "    if False:\n",
    ),
    (
        "a certificate is for every host",
        "certificates.py",
        "    if name.encode() not in found.valid_principals:\n",
        "    if False:\n",
    ),
    (
        "a certificate never expires",
        "certificates.py",
        "    if now >= found.valid_before:\n",
        "    if False:\n",
    ),
    (
        "a certificate is valid before its time",
        "certificates.py",
        "    if now < found.valid_after:\n",
        "    if False:\n",
    ),
    (
        "a user logs in with the certificate of another key",
        "certificates.py",
        '    if blob_of(found.public_key()) != key:\n        raise ValueError("is not for',
        '    if False:\n        raise ValueError("is not for',
    ),
    (
        "an alias is not the name in a certificate",
        "known_hosts.py",
        "return self._keys_of(alias, alias)",
        "return self._keys_of(host.address, alias)",
    ),
    (
        "known_hosts counts beside the keys of the inventory",
        "known_hosts.py",
        "        if host.host_keys:\n",
        "        if False:\n",
    ),
    (
        "a key of the inventory may be revoked",
        "known_hosts.py",
        'frozenset(self._revoked), "the inventory")',
        'none, "the inventory")',
    ),
    (
        "each host has its own connection to its jump host",
        "jumps.py",
        "self._ways.setdefault(host.jump, _Way(host.jump))",
        "_Way(host.jump)",
    ),
    (
        "each host finds out anew that its jump host is dead",
        "jumps.py",
        "            if clock.monotonic() >= until:\n",
        "            if True:\n",
    ),
    (
        "a jump host that was away is never asked again",
        "jumps.py",
        "            if clock.monotonic() >= until:\n",
        "            if not text:\n",
    ),
    (
        "an agent signs with another key",
        "ssh_agent.py",
        "return AgentKey(self, wanted)",
        "return AgentKey(self, blobs[0])",
    ),
    (
        "a certificate is read once for all calls",
        "fleet.py",
        "        key, command = load_login_key(own), own.ssh_command or BOOTSTRAP\n",
        "        key = self.__dict__.setdefault('k', load_login_key(own))\n"
        "        command = own.ssh_command or BOOTSTRAP\n",
    ),
)
HELPERS = mutations_of(
    "lib/edgetune/hosts",
    ["lib/hosts/test_helpers"],
    (
        "no helper joins",
        "helpers.py",
        "                seats.put(self)\n",
        "                pass\n",
    ),
    (
        "a helper goes on when nobody asks it any more",
        "helper.py",
        "        os._exit(0)\n",
        "        signal.pause()\n",
    ),
    (
        "hosts of a helper that died are waited for",
        "helpers.py",
        "            told.set_result(_lost(host))\n\n",
        "            pass\n\n",
    ),
    (
        "helpers stay when all hosts are through",
        "helpers.py",
        "        self._process.kill()\n        self._process.wait()\n",
        "        return\n",
    ),
)
EXPIRY = mutations_of(
    "lib/edgetune",
    ["lib/rollout/test_doctor", "lib/traffic/test_tls"],
    (
        "nobody is warned of a certificate",
        "rollout/expiring.py",
        "        if left > within:\n",
        "        if True:\n",
    ),
    (
        "the last certificate of ours to end counts",
        "rollout/expiring.py",
        'fields.get("certificate_file", ""), min)',
        'fields.get("certificate_file", ""), max)',
    ),
    (
        "the first authority to end counts",
        "rollout/expiring.py",
        'fields.get("ca_file", ""), max)',
        'fields.get("ca_file", ""), min)',
    ),
    (
        "no certificate of a user is looked at",
        "rollout/expiring.py",
        "if ends < _FOREVER else []",
        "if False else []",
    ),
    (
        "one without an end is warned of",
        "rollout/expiring.py",
        "if ends < _FOREVER else []",
        "if True else []",
    ),
    (
        "a load balancer that is not believed tells its certificate",
        "traffic/drivers/haproxy.py",
        "                with suppress(OSError):\n",
        "                if True:\n",
    ),
)
