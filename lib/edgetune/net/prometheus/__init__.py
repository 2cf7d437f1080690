# SPDX-License-Identifier: Apache-2.0
"""The HTTP API of Prometheus, as Thanos, Mimir and VictoriaMetrics answer it, too."""
