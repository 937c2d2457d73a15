#!/usr/bin/env python3
"""The load generator as a user runs it: `quire bench serve` and `quire bench sweep` on `quire serve` with the demo model.

usage: load_test.py PROGRAM [unittest arguments]
"""
import csv
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from serving import Server

PROGRAM = None  # set by main
CHATS = pathlib.Path(__file__).resolve().parent.parent.parent.parent / "shared" / "workloads" / "sgd_chats_sample.jsonl"
SMALL = ["--input-len", "24", "--output-len", "5", "--num-warmup", "1"]


def bench(*arguments, environment=None):
    return subprocess.run([PROGRAM, "bench", *map(str, arguments)], capture_output=True, text=True, timeout=240,
                          env={**os.environ, **(environment or {})})


class LoadTest(unittest.TestCase):
    def expect_success(self, run):
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        return run.stdout

    def test_a_run_counts_what_was_asked_for(self):
        with Server(PROGRAM) as server, tempfile.TemporaryDirectory() as folder:
            url = f"http://127.0.0.1:{server.port}"
            files = {kind: os.path.join(folder, "run." + kind) for kind in ("json", "csv", "html")}
            text = self.expect_success(bench("serve", "--base-url", url, "--num-prompts", 12, "--max-concurrency", 4, *SMALL,
                                             "--goodput", "ttft:60000", *sum((["--" + k, v] for k, v in files.items()), [])))
            self.assertIn("12 completed, 0 failed", text)
            report = json.loads(pathlib.Path(files["json"]).read_text())
            rows = list(csv.DictReader(io.StringIO(pathlib.Path(files["csv"]).read_text())))
            page = pathlib.Path(files["html"]).read_text()
        self.assertEqual((report["total_input_tokens"], report["total_output_tokens"]), (12 * 24, 12 * 5))
        self.assertEqual(report["output_lens"], [5] * 12)
        self.assertGreater(report["request_goodput"], 0)
        self.assertLess(report["client_cpu_share"], 1)
        self.assertEqual([row["input_tokens"] for row in rows], ["24"] * 12)
        self.assertTrue(page.startswith("<!doctype html>") and page.count("<svg") == 8)

    def test_a_shared_prefix_is_found_in_the_cache(self):
        with Server(PROGRAM) as server:
            out = self.expect_success(bench("serve", "--base-url", f"http://127.0.0.1:{server.port}", "--dataset", "shared-prefix",
                                            "--prefix-len", 64, "--input-len", 80, "--output-len", 4, "--num-prompts", 8,
                                            "--max-concurrency", 1, "--json", "-"))
        report = json.loads(out)
        self.assertGreaterEqual(report["total_cached_tokens"], 7 * 64)
        self.assertEqual(report["total_input_tokens"], 8 * 80)

    def test_chats_go_the_chat_route_turn_by_turn(self):
        if not CHATS.exists():
            self.skipTest("../shared/workloads is absent")
        with Server(PROGRAM) as server:
            out = self.expect_success(bench("serve", "--base-url", f"http://127.0.0.1:{server.port}", "--dataset", "chats",
                                            "--dataset-path", CHATS, "--num-prompts", 8, "--output-len", 4, "--json", "-"))
        report = json.loads(out)
        self.assertEqual((report["endpoint"], report["completed"]), ("/v1/chat/completions", 8))

    def test_a_key_is_sent(self):
        with Server(PROGRAM, environment={"QUIRE_API_KEY": "secret"}) as server:
            flags = ["serve", "--base-url", f"http://127.0.0.1:{server.port}", "--num-prompts", 2, *SMALL]
            refused = bench(*flags, environment={"QUIRE_API_KEY": ""})
            self.assertEqual(refused.returncode, 1)
            self.assertIn("HTTP 401", refused.stderr)
            self.expect_success(bench(*flags, environment={"QUIRE_API_KEY": "secret"}))
            self.expect_success(bench(*flags, "--api-key", "secret", environment={"QUIRE_API_KEY": ""}))

    def test_what_cannot_be_is_said(self):
        for arguments, words in ((["serve", "--request-rate", "0"], "--request-rate"), (["serve", "--dataset", "x"], "--dataset"),
                                 (["serve", "--dataset", "trace"], "--dataset-path"), (["serve", "--goodput", "itl:5"], "--goodput"),
                                 (["serve", "--base-url", "https://localhost"], "--base-url"),
                                 (["sweep", "--concurrencies", "0"], "--concurrencies"), (["sweep"], "--request-rates"),
                                 (["sweep", "--server", "http://x"], "--server"), (["sweep", "--plot", "x.pdf"], "--plot"),
                                 (["sweep", "--token-budgets", "0", "--concurrencies", "1"], "--token-budgets")):
            run = bench(*arguments)
            self.assertEqual(run.returncode, 2, f"{arguments}: {run.stderr}")
            self.assertIn(words, run.stderr)
        for arguments, words in ((["serve", "--base-url", "http://127.0.0.1:1"], "cannot connect"),
                                 (["serve", "--dataset", "trace", "--dataset-path", "/does/not/exist"], "/does/not/exist")):
            run = bench(*arguments)
            self.assertEqual(run.returncode, 1, f"{arguments}: {run.stderr}")
            self.assertIn(words, run.stderr)

    def test_a_sweep_starts_servers_and_draws_them(self):
        with tempfile.TemporaryDirectory() as folder:
            points = os.path.join(folder, "points.json")
            self.expect_success(bench("sweep", "--token-budgets", "16,256", "--concurrencies", "1,2", "--num-prompts", 3, *SMALL,
                                      "--serve-flags=--kv-memory 64MiB --threads 1 --log-level warn", "--json", points))
            rows = json.loads(pathlib.Path(points).read_text())
            self.assertEqual([(row["series"], row["max_concurrency"]) for row in rows],
                             [("budget 16", 1), ("budget 16", 2), ("budget 256", 1), ("budget 256", 2)])
            self.assertTrue(all(row["completed"] == 3 and row["failed"] == 0 for row in rows))
            if not shutil.which("gnuplot"):
                self.skipTest("gnuplot is missing")
            pictures = [os.path.join(folder, "sweep." + kind) for kind in ("svg", "png")]
            self.expect_success(bench("sweep", "--earlier", points, "--plot", ",".join(pictures)))
            self.assertIn("budget 256", pathlib.Path(pictures[0]).read_text())
            self.assertTrue(pathlib.Path(pictures[1]).read_bytes().startswith(b"\x89PNG"))


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
