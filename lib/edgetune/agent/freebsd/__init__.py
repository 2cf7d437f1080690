# SPDX-License-Identifier: Apache-2.0
"""What the agent reads of hosts with FreeBSD, where /proc and /sys tell it of those with Linux."""
