#!/usr/bin/env python3
"""`quire simulate` and `quire bench papers` as a user types them.

usage: simulate_test.py PROGRAM [unittest arguments]
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = None  # set by main


def quire(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=300)


class SimulateTest(unittest.TestCase):
    def expect_success(self, run):
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def simulate(self, *arguments):
        return json.loads(self.expect_success(quire("simulate", "--json", "--num-prompts", "50", *arguments)))

    def test_a_curve_has_a_row_for_each_point(self):
        report = self.simulate("--device", "rtx-4090", "--model", "llama-3.2-1b", "--request-rate", "1,10", "--replicas", "1,3",
                               "--router", "prefix-affinity")
        points = [(row["replicas"], round(row["request_rate"], 6)) for row in report["rows"]]
        self.assertEqual(points, [(1, 1), (1, 10), (3, 1), (3, 10)])
        for row in report["rows"]:
            self.assertEqual((row["requests"], row["finished"], row["router"]), (50, 50, "prefix-affinity"))
            self.assertGreater(row["ttft_seconds"]["p50"], 0)
            self.assertLess(row["wall_seconds"], row["duration_seconds"])
        self.assertEqual(report["step_cost"], "roofline")

    def test_the_table_names_what_is_simulated(self):
        text = self.expect_success(quire("simulate", "--num-prompts", "20", "--device", "h200"))
        self.assertIn("llama-3.1-8b on h200", text)
        self.assertIn("20 requests of 512 + 128 tokens", text)
        self.assertIn("at once", text)

    def test_a_trace_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "trace.jsonl")
            with open(trace, "w") as file:
                for i in range(3):
                    file.write(json.dumps({"timestamp": 1000 * i, "input_length": 600, "output_length": 4, "hash_ids": [0, i + 1]}) + "\n")
            report = json.loads(self.expect_success(quire("simulate", "--json", "--trace", trace)))
            row = report["rows"][0]
            self.assertEqual((row["requests"], row["input_tokens"], row["output_tokens"]), (3, 1800, 12))
            self.assertEqual(row["request_rate"], 1)
            self.assertAlmostEqual(row["prefix_cache_hit_rate"], 2 * 512 / (3 * 599))
            plot = os.path.join(folder, "plot.svg")
            self.expect_success(quire("simulate", "--trace", trace, "--plot", plot, "--request-rate", "1,2"))
            with open(plot) as file:
                self.assertTrue(file.read().startswith("<svg"))

    def test_the_device_file_can_be_edited(self):
        devices = json.loads(self.expect_success(quire("simulate", "--print-devices")))
        before = self.simulate("--device", "h100")["rows"][0]
        for device in devices["devices"]:
            if device["name"] == "h100":
                device.update(bandwidth_gb_per_second=33500, tflops=9890, step_overhead_us=0, sequence_overhead_us=0)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "devices.json")
            with open(path, "w") as file:
                json.dump(devices, file)
            after = self.simulate("--device", "h100", "--devices", path)["rows"][0]
        self.assertGreater(after["output_tokens_per_second"], 9 * before["output_tokens_per_second"])

    def test_ablations_are_experiments(self):
        report = self.simulate("--ablation", "static-batching", "--max-num-seqs", "8")
        self.assertEqual(report["ablations"], ["static-batching"])
        self.assertIn("Experiments", self.expect_success(quire("simulate", "--help")))
        self.assertNotIn("ablation", self.expect_success(quire("serve", "--help")))

    def test_this_machine_is_measured_and_used(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "devices.json")
            text = self.expect_success(quire("simulate", "calibrate", "--output", path, "--repeats", "1", "--max-num-seqs", "4",
                                             "--max-num-batched-tokens", "64", "--threads", "1"))
            self.assertIn("--device this-machine --model demo", text)
            report = self.simulate("--devices", path, "--device", "this-machine", "--model", "demo", "--input-len", "64")
            self.assertEqual(report["step_cost"], "measured")
            self.assertEqual(report["rows"][0]["finished"], 50)

    def test_wrong_usage_has_status_2_and_names_what_is_wrong(self):
        for arguments, words in ((["--device", "abacus"], "known are rtx-4090"), (["--model", "abacus"], "--model"),
                                 (["--device", "rtx-4090", "--model", "llama-3.1-70b-fp8"], "--kv-memory"),
                                 (["--ablation", "magic"], "--ablation"), (["--router", "magic"], "--router"),
                                 (["--replicas", "0"], "--replicas"), (["--request-rate", "-1"], "--request-rate"),
                                 (["--prefix-len", "512"], "--prefix-len"), (["--num-prompts", "0"], "--num-prompts"),
                                 (["--ablation", "whole-prompts"], "--max-num-batched-tokens"),
                                 (["--weight-bits", "65"], "--weight-bits"), (["calibrate"], "--output"),
                                 (["check", "--repeats", "0"], "--repeats")):
            run = quire("simulate", *arguments)
            self.assertEqual(run.returncode, 2, f"{arguments}: {run.stdout}{run.stderr}")
            self.assertIn(words, run.stderr)
            self.assertEqual(run.stdout, "")
        run = quire("simulate", "--trace", "/does/not/exist")
        self.assertEqual(run.returncode, 1)
        self.assertIn("/does/not/exist", run.stderr)

    def test_papers_know_their_names(self):
        for name, words in (("magic", "known are paged-kv, radix"), ("", "known are paged-kv, radix")):
            run = quire("bench", "papers", name)
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertIn(words, run.stderr)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
