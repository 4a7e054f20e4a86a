# SPDX-License-Identifier: Apache-2.0
"""The order of the repeats, and what the table and the figures say (`make checks` runs it)."""

import unittest

import run  # pylint: disable=unused-import  # it makes bench/peers findable
import cells
import plot
import report


class Orders(unittest.TestCase):
    def test_every_repeat_visits_every_cell_once(self):
        for count in range(1, 21):
            for repeats in range(1, 8):
                for order in cells.orders(count, repeats, seed=3):
                    self.assertEqual(sorted(order), list(range(count)))

    def test_drift_that_is_even_in_time_adds_the_same_to_every_cell(self):
        for count in range(2, 21):
            for repeats in range(2, 8):
                orders = cells.orders(count, repeats, seed=3)
                sums = [sum(order.index(i) for order in orders) for i in range(count)]
                slack = 2 if count % 2 == 0 and repeats % 2 == 1 else 0
                self.assertLessEqual(max(sums) - min(sums), slack, (count, repeats))

    def test_orders_of_one_run_differ(self):
        orders = cells.orders(19, 3, seed=1)
        self.assertEqual(len({tuple(order) for order in orders}), 3)

    def test_names_are_unique(self):
        names = [cell.name for cell in cells.CHOSEN]
        self.assertEqual(len(set(names)), len(names))


class Report(unittest.TestCase):
    COLUMN = report.Column("x", "x", ".1f", 1e-3)

    def test_an_entry_is_the_mean_with_the_extremes(self):
        samples = [{"x": 1000}, {"x": 2000}, {"x": 6000}]
        self.assertEqual(report.entry(samples, self.COLUMN), "3.0 (1.0–6.0)")

    def test_what_a_server_does_not_say_is_a_dash_and_no_zero(self):
        self.assertEqual(report.entry([{"y": 1}], self.COLUMN), "–")
        self.assertEqual(report.entry([{"x": 0}], self.COLUMN), "0.0")

    def test_an_axis_holds_every_value(self):
        for scale in ("log", "linear"):
            for runs in ([0.3, 7.2], [1000.0], [0.0], []):
                axis = plot.Axis(plot.Panel("", scale, [plot.Series("", "a", [runs])]))
                for value in runs:
                    self.assertTrue(-1e-9 <= axis.at(value) <= 1 + 1e-9, (scale, runs))


if __name__ == "__main__":
    unittest.main()
