# SPDX-License-Identifier: Apache-2.0
"""Where the agent keeps what is its own on a host."""

SYSTEMD = "/etc/systemd/system"
STATE = "/var/lib/edgetune"
CONGESTION = "/var/lib/edgetune/congestion.json"
CONGESTION_EPOCH = "/var/lib/edgetune/congestion-epoch"
NOT_READY = "/var/lib/edgetune-not-ready"
INIT_SCRIPT = "/etc/init.d/S99edgetune"
UNIT = SYSTEMD + "/edgetune.service"
UNIT_LINK = SYSTEMD + "/multi-user.target.wants/edgetune.service"
OURS = "90-edgetune-"
"""What the names of the files begin with that keep a tuning over a boot."""
