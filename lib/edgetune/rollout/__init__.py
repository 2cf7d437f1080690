# SPDX-License-Identifier: Apache-2.0
"""A tuning on one PoP: planned, owned, carried out batch by batch, judged, kept or taken back."""
