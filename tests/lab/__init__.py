# SPDX-License-Identifier: Apache-2.0
"""The lab: its hosts, its BMCs, its runner, its commands."""
