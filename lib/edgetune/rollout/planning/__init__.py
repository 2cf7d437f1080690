# SPDX-License-Identifier: Apache-2.0
"""From a tuning and a PoP to a plan, and all that has to be well before."""
