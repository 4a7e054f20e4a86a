# SPDX-License-Identifier: Apache-2.0
"""The checks of the load tests against what they are there to notice. Starts no server."""

import copy
import unittest

from figures import Figures, fallen_counters, not_free, unbalanced, unbalanced_pages
from memory_curve import MIB, MemoryCurve

PAGES = {"total": 10, "free": 4, "reserved": 1, "held_attention": 1, "held_state": 1,
         "cached_attention": 2, "cached_state": 1, "draining": 0, "slab": 1}
CACHE = {
    "budget_bytes": 1100, "arena_bytes": 1050, "row_bytes": 50, "sequences": 1, "running": 1,
    "waiting": 0, "kept": {"blocks": 1, "checkpoints": 1, "rows": 0},
    "pools": [{"name": "shared", "bytes": 1000, "pages": PAGES, "slots": {"total": 4, "used": 1}}],
}


def changed(**pages: int) -> dict:
    cache = copy.deepcopy(CACHE)
    cache["pools"][0]["pages"] |= pages
    return cache


class Conservation(unittest.TestCase):
    def test_a_page_with_no_owner_or_two_is_noticed(self) -> None:
        self.assertEqual(unbalanced(CACHE), [])
        self.assertEqual(len(unbalanced(changed(free=3))), 1)
        self.assertEqual(len(unbalanced(changed(cached_state=2))), 1)
        self.assertEqual(len(unbalanced(changed(free=6, reserved=-1))), 1)

    def test_an_arena_beyond_the_budget_is_noticed(self) -> None:
        self.assertEqual(len(unbalanced(CACHE | {"budget_bytes": 1000})), 1)
        self.assertEqual(len(unbalanced(CACHE | {"row_bytes": 49})), 1)

    def test_what_is_left_after_a_clear_is_noticed(self) -> None:
        left = not_free(CACHE)
        self.assertEqual(len(left), 5)  # pages, sequences, running, blocks, checkpoints
        self.assertIn("pool shared: 4 of 10 are free", left)

    def test_a_page_missing_from_the_map_is_noticed(self) -> None:
        runs = {"pools": [{"name": "shared", "pages": 10, "runs": [[4, "free"], [6, "held"]]}]}
        self.assertEqual(unbalanced_pages(runs, CACHE), [])
        runs["pools"][0]["runs"].pop()
        self.assertEqual(len(unbalanced_pages(runs, CACHE)), 1)


class Counters(unittest.TestCase):
    @staticmethod
    def page(steps: int, running: int) -> Figures:
        return Figures(f"# TYPE steps_total counter\nsteps_total {steps}\n"
                       f'# TYPE running gauge\nrunning{{a="b"}} {running}\n')

    def test_a_counter_that_falls_is_noticed_and_a_gauge_may(self) -> None:
        self.assertEqual(fallen_counters(self.page(3, 9), self.page(3, 2)), [])
        self.assertEqual(fallen_counters(self.page(3, 9), self.page(2, 9)),
                         ["steps_total fell from 3.0 to 2.0"])


class Memory(unittest.TestCase):
    @staticmethod
    def curve(*mib: float) -> MemoryCurve:
        return MemoryCurve([int(value * MIB) for value in mib])

    def test_growth_after_the_warm_up_is_noticed_and_growth_in_it_is_not(self) -> None:
        warm_up = [30 + step for step in range(25)]
        self.assertEqual(self.curve(*warm_up, *[55] * 75).not_flat(1200), [])
        leak = [55 + step * 0.2 for step in range(75)]
        self.assertEqual(len(self.curve(*warm_up, *leak).not_flat(1200)), 1)

    def test_a_short_run_may_warm_up_but_not_without_end(self) -> None:
        warm_up = [30 + step for step in range(25)]
        self.assertEqual(self.curve(*warm_up).not_flat(30), [])
        self.assertEqual(len(self.curve(*warm_up, 100).not_flat(30)), 1)

    def test_a_single_peak_is_not_growth(self) -> None:
        flat = [55.0] * 100
        flat[90] = 200
        self.assertEqual(self.curve(*flat).not_flat(1200), [])


if __name__ == "__main__":
    unittest.main()
