# SPDX-License-Identifier: Apache-2.0
"""What the pack ships for Prometheus and Grafana."""
