# SPDX-License-Identifier: Apache-2.0
"""What the records say, as Prometheus metrics: to be alerted on and drawn.

families         what is exported: name, type, help and labels of each
values           values by family and labels, and the text that Prometheus reads
histories        counters of all rollouts, from the heads of their records
steps            how long steps took and how they failed, from what tasks added to records
under_way        rollouts that have not ended, or left hosts in quarantine
state            all of it, read at one moment
textfile         a file for node_exporter's textfile collector
export_metrics   the step of the action
"""
