# SPDX-License-Identifier: Apache-2.0
"""The pack on a running StackStorm, against the hosts of a running lab: see README.md."""
