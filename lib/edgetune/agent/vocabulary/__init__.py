# SPDX-License-Identifier: Apache-2.0
"""What the controller and the agent on a host both say: kinds of settings, their values, their ids.

Standard library and Python 3.6 only: all of it is sent to hosts as a part of the agent. It imports
nothing else of edgetune.
"""

SYSTEMS = {"linux": "Linux", "freebsd": "FreeBSD"}
"""The operating systems of hosts, by the names that agents give them, as people write them."""
