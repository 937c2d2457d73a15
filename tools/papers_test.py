#!/usr/bin/python3
"""What ./run bench papers makes of a report: the section of the page, and the plot's script."""
import unittest

import papers

REPORT = {"name": "paged-kv", "claim": "c", "figure": "half the waste", "claim_met": False, "rows": [
    {"memory": "reserved", "waste_percent": 71.25, "sequences_mean": 4, "output_tokens_per_second": 300},
    {"memory": "paged", "waste_percent": 2.346, "sequences_mean": 17.31, "output_tokens_per_second": 901.5}]}


class Papers(unittest.TestCase):
    def test_the_section_has_command_claim_and_table(self):
        text = papers.section(REPORT, "./run bench papers paged-kv", "demo")
        self.assertIn("$ ./run bench papers paged-kv\n", text)
        self.assertIn("Measured: half the waste. The claim is **not met** (model: demo).", text)
        self.assertIn("| memory | waste percent | sequences mean | output tokens per second |\n|---|---:|---:|---:|\n", text)
        self.assertIn("| paged | 2.35 | 17.3 | 901.5 |", text)
        self.assertIn("plots/papers-paged-kv.svg", text)

    def test_only_the_marked_part_of_the_page_is_replaced(self):
        page = "# A\n<!-- one -->\nold\n<!-- end of one -->\n<!-- two -->\nkept\n<!-- end of two -->\n"
        self.assertEqual(papers.put_into_page(page, "one", r"new \1"),
                         "# A\n<!-- one -->\nnew \\1\n<!-- end of one -->\n<!-- two -->\nkept\n<!-- end of two -->\n")
        with self.assertRaises(SystemExit):
            papers.put_into_page(page, "three", "new")

    def test_every_experiment_has_a_plot_and_its_marks(self):
        page = (papers.DOCS / "papers.md").read_text()
        for name in papers.PLOTS:
            papers.put_into_page(page, name, "x")

    def test_the_plot_has_a_panel_for_each_column_and_a_bar_for_each_row(self):
        script = papers.plot_script(REPORT, "out.svg")
        self.assertEqual(script.count("\nplot "), 3)
        self.assertIn("1 17.31\n", script)
        self.assertIn("set ytics ('reserved' 0, 'paged' 1)", script)

    def test_ticks_are_round(self):
        self.assertEqual([papers.tick_step(x) for x in (0, 3, 75, 901.5)], [1, 1, 20, 500])


if __name__ == "__main__":
    unittest.main()
