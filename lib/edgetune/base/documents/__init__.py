# SPDX-License-Identifier: Apache-2.0
"""What is stored or sent: one typed definition each, with its fields, units and schema version."""
