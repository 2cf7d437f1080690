# SPDX-License-Identifier: Apache-2.0
"""What metrics were in version 0.10, whose plans keep no definitions: those that mean another thing
today. They are of the five health checks of a sample."""

from edgetune.base.documents.metric import Metric

_SHARES = {50: "median", 95: "95th percentile", 99: "99th percentile"}
METRICS_OF_0_10 = {
    f"health_p{share}": Metric(
        title=f"health check, {name}, ms",
        phrase=f"took {{much}} time for health checks ({name})",
        mass=True,
        gauges={f"health_p{share}_ms": 1.0},
    )
    for share, name in _SHARES.items()
}
