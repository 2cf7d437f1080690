# SPDX-License-Identifier: Apache-2.0
"""What the records say, as Prometheus metrics: to be alerted on and drawn.

families         what is exported, values of it by labels, and the text that Prometheus reads
state            all of it, read at one moment
export_metrics   the step of the action: a file for node_exporter's textfile collector
"""
