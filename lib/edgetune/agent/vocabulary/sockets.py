# SPDX-License-Identifier: Apache-2.0
"""What is known of a TCP connection to a client."""

MEASURED = (
    "delivery_rate",
    "goodput",
    "rtt_ms",
    "min_rtt_ms",
    "bytes_acked",
    "bytes_sent",
    "bytes_retransmitted",
)
"""How fast it delivered last, in bytes a second; how many bytes a second were acknowledged while
some were on their way; its round-trip times; and bytes of its whole life.

Of these the kernel always tells the first. Goodput is tcp_info's ``bytes_acked`` over
``busy_time``: what the application does not send yet makes it no smaller.
"""
