# SPDX-License-Identifier: Apache-2.0
"""The pack on a running StackStorm, named by ST2_API_URL, against the hosts of a running lab.

    edgetune lab up                  # and once more with --pops 2, for campaigns
    edgetune lab exec sh -c 'start StackStorm; ST2_API_URL=http://127.0.0.1:9101 pytest tests/st2'

StackStorm's services run inside the lab's controller namespace, with the pack installed and a
configuration that names the lab's inventory. EDGETUNE_HOME names the lab's home, ST2_AUTH_TOKEN a
token if StackStorm wants one.
"""
