# SPDX-License-Identifier: Apache-2.0
"""Mistakes that would promote what hurts, or see harm where chance was at work."""

from __future__ import annotations

from tests.mutants.mutation import mutations_of

FOLDER = "lib/edgetune/judge"

JUDGE = (
    *mutations_of(
        FOLDER,
        ["lib/judge/test_permutation", "lib/judge/test_sequential", "lib/judge/test_look"],
        (
            "ties count for the draw that happened",
            "permutation.py",
            "np.mean(statistics >= statistics[0] - TIE)",
            "np.mean(statistics > statistics[0] + TIE)",
        ),
        (
            "a stratum of one group only is compared",
            "permutation.py",
            "if test and control]",
            "if test or control]",
        ),
        (
            "alpha is rounded up to a draw",
            "sequential.py",
            "return math.floor(alpha * spent * draws + TIE)",
            "return math.ceil(alpha * spent * draws + TIE)",
        ),
        (
            "the first look spends the whole alpha",
            "sequential.py",
            "    return passed if budget(alpha, 1.0, draws) >= looks else passed**1.5\n",
            "    return 1.0\n",
        ),
        (
            "of draws that tie some are taken out",
            "sequential.py",
            "return alive & ~(scores > stays + TIE)",
            "return alive & ~(scores >= stays - TIE)",
        ),
        (
            "draws that are out already spend no alpha",
            "sequential.py",
            "    left = most - int(np.sum(~alive))\n",
            "    left = most\n",
        ),
        (
            "each look begins with all draws",
            "look.py",
            "return _Earlier(unpack(test.alive, len(everyone)), test.forgone)",
            "return _Earlier(everyone, test.forgone)",
        ),
        (
            "a biased look spends alpha",
            "look.py",
            "take_out(score, earlier.alive, 0 if waits else most)",
            "take_out(score, earlier.alive, most)",
        ),
        (
            "other groups than before go on with the draws of before",
            "look.py",
            "if previous.drawn_from != _drawn_from(compared):",
            "if False:",
        ),
    ),
    *mutations_of(
        FOLDER,
        [
            "lib/judge/test_verdict",
            "lib/judge/test_soundness",
            "lib/judge/test_standardise",
            "lib/judge/test_look",
        ],
        (
            "a biased comparison decides",
            "look.py",
            "    if not biases or _blind(biases):\n",
            "    if True:\n",
        ),
        (
            "what is doubtful is promoted",
            "verdict.py",
            "self.last and self.helped and not self.harmed and not self.doubts",
            "self.last and self.helped and not self.harmed",
        ),
        (
            "it is held before the soak is over",
            "verdict.py",
            "    if not found.last:\n        return Decision.WAIT\n",
            "",
        ),
        (
            "it is proven before the soak is over",
            "verdict.py",
            "self.last and self.helped and not self.harmed and not self.doubts",
            "self.helped and not self.harmed and not self.doubts",
        ),
        (
            "a changed host beyond the limits is promoted",
            "verdict.py",
            "Decision.PROMOTE if found.proven and not found.unwell else",
            "Decision.PROMOTE if found.proven else",
        ),
        ("hosts without data are no doubt", "soundness.py", "ENOUGH = 0.8", "ENOUGH = 0.0"),
        (
            "test hosts that carry more are no imbalance",
            "soundness.py",
            "if min(ratio, 1 / ratio) < 1 - IMBALANCE and",
            "if ratio < 1 - IMBALANCE and",
        ),
        (
            "chance is an imbalance",
            "soundness.py",
            " and p <= max(IMBALANCE_P, 2 / len(draws)):",
            ":",
        ),
        (
            "an outage of both groups is spill-over",
            "soundness.py",
            "<= max(IDLE_TIME, SYMMETRIC * min(shares.values())):\n        return\n    idle",
            "<= IDLE_TIME:\n        return\n    idle",
        ),
        (
            "a soak above the baseline's peak is no doubt",
            "soundness.py",
            "median > PEAK * peak",
            "False",
        ),
        ("a short window is blamed on hosts", "soundness.py", "if most < LEAST:", "if False:"),
        (
            "a soak without any sample is no doubt",
            "soundness.py",
            '        yield Doubt("stale", "there is no sample of the soak", biased=True)\n',
            "        return\n",
        ),
        (
            "old samples are no doubt",
            "soundness.py",
            "    elif end - max(known) > max(STALE_AFTER * interval, STALE_LEAST):\n",
            "    elif False:\n",
        ),
        (
            "a reboot in the soak is no doubt",
            "soundness.py",
            "    if rebooted:\n",
            "    if False:\n",
        ),
        ("a reset counter is no doubt", "soundness.py", "    if fallen:\n", "    if False:\n"),
        (
            "unknown changes are none",
            "change.py",
            "values[known].mean() if known.any() else 0.0",
            "0.0",
        ),
        (
            "harm within its margin counts",
            "scores.py",
            "(statistics > margins + _NOTHING)",
            "(statistics > _NOTHING)",
        ),
        (
            "a host that never counted anything has no rate",
            "standardise.py",
            "half = 0.5 * observed",
            "half = 0.0 * observed",
        ),
    ),
    *mutations_of(
        FOLDER,
        ["lib/judge/test_coverage", "lib/judge/test_bias", "lib/judge/test_work"],
        (
            "what is not measured is no doubt",
            "coverage.py",
            "if host not in silent and shares[host] < ENOUGH]",
            "if host not in silent and shares[host] < 0]",
        ),
        (
            "what one group alone loses is no finding",
            "coverage.py",
            " or len(hosts) < 2:\n",
            " or True:\n",
        ),
        (
            "packets that nobody counts are no doubt",
            "coverage.py",
            "without = guard.metric == WORK and ",
            "without = guard.metric == WORK or ",
        ),
        (
            "records that do not say what was measured are taken as whole",
            "coverage.py",
            '        return [_unrecorded("soak")]\n',
            "        return []\n",
        ),
        (
            "half a soak without samples is no doubt",
            "coverage.py",
            "    if 0 < share < WATCHED_LEAST:\n",
            "    if False:\n",
        ),
        (
            "what the baseline lacks was lost in the soak",
            "coverage.py",
            "own = _watched(metric, groups, baseline)",
            "own = {group: [*hosts] for group, hosts in groups.items()}",
        ),
        (
            "a reboot between baseline and soak is no doubt",
            "soundness.py",
            'return [Doubt("reboot", text)] if found else []',
            "return []",
        ),
        (
            "a bias that could explain anything vetoes nothing",
            "soundness.py",
            "return 1 / (1 - share) if share < 1 else None",
            "return 1 / (1 - min(share, 0.9))",
        ),
        (
            "hosts without traffic are compared",
            "look.py",
            "{host for doubt in biases for host in doubt.hosts}",
            "set()",
        ),
        (
            "a bias explains nothing",
            "look.py",
            "return math.log(max(ratios, default=1.0))",
            "return 0.0",
        ),
        (
            "a bias explains the metric that shows it",
            "look.py",
            " for doubt in biases if doubt.shown_by != metric]",
            " for doubt in biases]",
        ),
        (
            "lost work counts against the look alone",
            "scores.py",
            "return margin * max(planned / lasted, 1.0)",
            "return margin",
        ),
    ),
    *mutations_of(
        "lib/edgetune/metrics",
        [
            "lib/metrics/test_facts",
            "lib/metrics/test_series",
            "lib/judge/test_coverage",
            "lib/judge/test_work",
        ],
        (
            "lost traffic is saved CPU time",
            "series.py",
            "            return metric.per_if_known\n",
            "            return SECONDS\n",
        ),
        (
            "a reboot between two looks is none",
            "facts.py",
            "        between = dict.fromkeys(rebooted_between(boots, part), REBOOTED)\n",
            "        between: dict[str, str] = {}\n",
        ),
        (
            "a sample that is stored twice counts twice",
            "series.py",
            "    return order[fresh]\n",
            "    return order\n",
        ),
    ),
    *mutations_of(
        FOLDER,
        ["lib/judge/test_hypotheses"],
        (
            "the margin of no harm is not divided out",
            "comparison.py",
            "self.worse(self.metric) * self.allowed)",
            "0.0)",
        ),
        (
            "the smaller counts are made larger",
            "hypotheses.py",
            "np.where(test, 1 / max(ratio, 1.0), min(ratio, 1.0))",
            "np.where(test, 1 / ratio, 1.0)",
        ),
        (
            "the ratio is read off the rates without effect",
            "hypotheses.py",
            "    return between - supposed * test\n",
            "    return rates[:, NO_EFFECT] - supposed * test\n",
        ),
    ),
    *mutations_of(
        FOLDER,
        ["lib/judge/test_limits", "lib/rollout/test_guard", "lib/rollout/steps/test_rollout"],
        (
            "a silent host is within limits",
            "limits.py",
            '        return "does not answer"\n',
            '        return ""\n',
        ),
        ("every check may fail", "limits.py", "FAILED = 0.5\n", "FAILED = 1.0\n"),
        (
            "a host is held against the better of both",
            "limits.py",
            "usual = max(baseline, others)",
            "usual = min(baseline, others)",
        ),
        (
            "a host is held against those that were changed, too",
            "limits.py",
            "if name not in changed] or list(now.values())",
            "] or list(now.values())",
        ),
    ),
)
