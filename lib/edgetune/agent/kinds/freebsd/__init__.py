# SPDX-License-Identifier: Apache-2.0
"""What a host with FreeBSD does for each kind of setting that it has."""
