# SPDX-License-Identifier: Apache-2.0
"""What a fleet may do without: each wing is a folder, and nothing outside imports one."""
