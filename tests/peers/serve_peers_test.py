#!/usr/bin/env python3
"""./run bench serve-peers: its arithmetic, and the whole of it against a server that pretends to be llama.cpp's.

usage: serve_peers_test.py PROGRAM [unittest arguments]
"""
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import serve_peers

PROGRAM = None  # set by main
DEMO = pathlib.Path(__file__).resolve().parent.parent.parent / "models" / "demo"
SCRIPT = pathlib.Path(__file__).resolve().parent / "serve_peers.py"

TABLE = """
| concurrency | output tok/s | TTFT p50 / p99 | TPOT p50 | longest gaps p99 |
|---|---|---|---|---|
| 1 | 40 | 0.57 / 0.67 s | 16 ms | 22 ms |
| 16 | 63 | 9.6 / 10.8 s | 162 ms | 0.8 s |
| 32, plus a shared 512-token prefix | 30 | 18.8 / 64 s | 629 ms | 5.5 s |
| other | 1 | 2 / 3 s | | |
"""

# Answers 32 + 4 requests with the tokens that are asked for, and never computes.
FAKE_PEER = """#!/usr/bin/env python3
import argparse, http.server, json
parser = argparse.ArgumentParser()
for flag in ("-m", "--host", "--port", "-t", "-tb", "-np", "-c"):
    parser.add_argument(flag, required=True)
args = parser.parse_args()

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def answer(self, data, kind="application/json"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.answer(json.dumps({"data": [{"id": "peer", "meta": {"n_vocab": 100}}]}).encode())

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert max(body["prompt"]) < 100
        events = [{"choices": [{"text": "a", "finish_reason": None}]}] * body["max_tokens"]
        events[-1] = {"choices": [{"text": "a", "finish_reason": "length"}]}
        events.append({"choices": [], "usage": {"prompt_tokens": len(body["prompt"]), "completion_tokens": body["max_tokens"]}})
        text = "".join(f"data: {json.dumps(event)}\\n\\n" for event in events) + "data: [DONE]\\n\\n"
        self.answer(text.encode(), "text/event-stream")

http.server.ThreadingHTTPServer((args.host, int(args.port)), Handler).serve_forever()
"""


def figures(throughput, ttft):
    return {"output_throughput": throughput, "p50_ttft_ms": ttft / 2, "p99_ttft_ms": ttft, "client_cpu_share": 0.01}


class ArithmeticTest(unittest.TestCase):
    def test_figures_are_read_from_the_table(self):
        known = serve_peers.known_figures(TABLE)
        self.assertEqual(set(known), {(1, 0), (16, 0), (32, 512)})
        self.assertEqual(known[32, 512], {"output_throughput": 30, "p50_ttft_ms": 18800, "p99_ttft_ms": 64000})
        if serve_peers.FIGURES.exists():
            self.assertEqual(len(serve_peers.known_figures(serve_peers.FIGURES.read_text())), 6)

    def test_ratios_and_goals(self):
        row = serve_peers.make_row(16, 0, figures(250, 2000), figures(50, 10000), True)
        self.assertEqual((row["throughput_ratio"], row["ttft_p99_ratio"], row["goal_met"]), (5, 0.2, True))
        self.assertFalse(serve_peers.make_row(16, 512, figures(250, 2000), figures(50, 10000), True)["goal_met"])
        self.assertFalse(serve_peers.make_row(32, 0, figures(250, 2600), figures(50, 10000), True)["goal_met"])
        self.assertIsNone(serve_peers.make_row(8, 0, figures(250, 2000), figures(50, 10000), True)["goal_met"])
        alone = serve_peers.make_row(16, 0, figures(250, 2000), None, False)
        self.assertIsNone(alone["throughput_ratio"])
        self.assertIn("250.0", serve_peers.row_text(alone))

    def test_figures_of_another_day_are_marked(self):
        other = serve_peers.row_text(serve_peers.make_row(16, 0, figures(250, 2000), figures(50, 10000), False))
        self.assertTrue(other.endswith("*"), other)
        same = serve_peers.row_text(serve_peers.make_row(16, 0, figures(250, 2000), figures(50, 10000), True))
        self.assertFalse(same.endswith("*"), same)


class WholeTest(unittest.TestCase):
    def run_script(self, folder, *arguments, path=""):
        json_path = os.path.join(folder, "rows.json")
        command = [sys.executable, "-B", str(SCRIPT), "--quire", PROGRAM, "--model", str(DEMO), "--threads", "1",
                   "--quire-flags", "--kv-memory 64MiB", "--concurrencies", "1,4", "--rounds", "1", "--prompts-min", "2",
                   "--logs", folder, "--json", json_path, *arguments]
        environment = {**os.environ, "PATH": path + os.environ["PATH"]}
        run = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        return run.stdout, json.loads(pathlib.Path(json_path).read_text())

    def test_both_servers_are_driven(self):
        with tempfile.TemporaryDirectory() as folder:
            peer = pathlib.Path(folder) / "llama-server"
            peer.write_text(FAKE_PEER.replace("/usr/bin/env python3", sys.executable))
            peer.chmod(peer.stat().st_mode | stat.S_IXUSR)
            text, rows = self.run_script(folder, path=folder + ":")
        self.assertEqual([(row["prefix"], row["concurrency"]) for row in rows], [(0, 1), (0, 4), (512, 1), (512, 4)])
        for row in rows:
            self.assertTrue(row["is_same_run"])
            self.assertEqual((row["quire"]["failed"], row["peer"]["failed"]), (0, 0), text)
            self.assertAlmostEqual(row["throughput_ratio"],
                                   row["quire"]["output_throughput"] / row["peer"]["output_throughput"])

    def test_without_the_binary_it_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            text, rows = self.run_script(folder, "--no-peer", "--prefixes", "0")
        self.assertIn("no llama-server is on the PATH", text)
        self.assertFalse(any(row["is_same_run"] for row in rows))


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
