# SPDX-License-Identifier: Apache-2.0
"""What the records say, as Prometheus metrics: to be alerted on and drawn."""
