#!/usr/bin/env python3
"""What `quire serve` tells about itself, with the real program and the demo model: timings of requests, spans for a
collector, traces.

usage: observe_test.py PROGRAM [unittest arguments]
"""
import collections
import http.server
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from serving import Server, process_is_alive, wait_for

PROGRAM = None  # set by main
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Collector:
    """Takes OTLP over HTTP as a collector does, and remembers the spans."""

    def __init__(self, delay=0.0):
        self.spans, self.headers = [], []
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                time.sleep(delay)
                collector.headers.append((self.path, self.headers["Content-Type"]))
                for resource in body["resourceSpans"]:
                    for scope in resource["scopeSpans"]:
                        collector.spans += scope["spans"]
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/traces"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def read(path):
    with open(path) as file:
        return file.read()


def attributes(holder):
    values = {}
    for attribute in holder["attributes"]:
        (kind, value), = attribute["value"].items()
        values[attribute["key"]] = int(value) if kind == "intValue" else value
    return values


def load_trace(path):
    """The events, after a check of the format: what a viewer needs, spans of a thread nested, async ones in pairs."""
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    spans, open_async = collections.defaultdict(list), collections.Counter()
    for event in events:
        assert event["ph"] in "XMCbe", event
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int), event
        if event["ph"] == "M":
            continue
        assert event["ts"] > 0, event
        if event["ph"] == "X":
            assert event["dur"] >= 0, event
            # In nanoseconds, so that sums are exact.
            begin = round(event["ts"] * 1000)
            spans[event["pid"], event["tid"]].append((begin, begin + round(event["dur"] * 1000), event["name"]))
        elif event["ph"] in "be":
            open_async[event["pid"], event["cat"], event["id2"]["local"]] += 1 if event["ph"] == "b" else -1
        else:
            assert event["args"] and all(isinstance(value, int) for value in event["args"].values()), event
    assert not any(open_async.values()), "a request's span has one end"
    for thread, of_thread in spans.items():
        # The longer first, where two begin together.
        stack = []
        for begin, end, name in sorted(of_thread, key=lambda span: (span[0], -span[1])):
            while stack and stack[-1][0] <= begin:
                stack.pop()
            assert not stack or end <= stack[-1][0], f"{name} of {thread} ends after {stack[-1][1]}, in which it began"
            stack.append((end, name))
    return events


def names_of(events, what):
    return {(event["pid"], event["tid"]): event["args"]["name"] for event in events
            if event["ph"] == "M" and event["name"] == what}


class TimingsTest(unittest.TestCase):
    def test_an_answer_tells_the_life_of_its_choices(self):
        with Server(PROGRAM) as server:
            before = time.time()
            status, answer = server.chat("Hello!", max_tokens=12, ignore_eos=True, return_timings=True, n=2)
            after = time.time()
            self.assertEqual(status, 200, answer)
            for choice in answer["choices"]:
                timings = choice["timings"]
                self.assertTrue(before - 1 <= timings["arrival_time"] <= after + 1)
                self.assertLessEqual(timings["e2e_latency_seconds"], after - before)
                self.assertGreater(timings["prefill_time_seconds"], 0)
                self.assertAlmostEqual(timings["inference_time_seconds"],
                                       timings["prefill_time_seconds"] + timings["decode_time_seconds"], places=6)
                self.assertAlmostEqual(timings["time_per_output_token_seconds"], timings["decode_time_seconds"] / 11)
                self.assertGreaterEqual(timings["inter_token_latency_max_seconds"],
                                        timings["time_per_output_token_seconds"] * 0.999)
                self.assertGreaterEqual(timings["num_steps"], 12)
                self.assertEqual(timings["num_preemptions"], 0)
                events = [event["event"] for event in timings["events"]]
                self.assertEqual(sorted(events), sorted(["arrival", "queued", "scheduled", "inference_begin",
                                                         "first_token", "inference_end", "finished"]))
                times = [event["seconds"] for event in timings["events"]]
                self.assertEqual(times, sorted(times))
                self.assertGreaterEqual(times[0], 0)

    def test_metrics_have_the_times_of_all_requests(self):
        with Server(PROGRAM) as server:
            for _ in range(3):
                server.chat("Hello!", max_tokens=10, ignore_eos=True)
            for name in ("request_queue_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds",
                         "request_inference_time_seconds", "e2e_request_latency_seconds",
                         "time_to_first_token_seconds", "request_time_per_output_token_seconds"):
                self.assertEqual(server.metric(f"vllm:{name}_count"), 3, name)
            self.assertEqual(server.metric("vllm:inter_token_latency_seconds_count"), 27)
            decode = server.metric("vllm:request_decode_time_seconds_sum")
            self.assertAlmostEqual(server.metric("vllm:inter_token_latency_seconds_sum"), decode, places=6)
            self.assertEqual(server.metric("vllm:request_max_num_generation_tokens_sum"), 30)


class SpansTest(unittest.TestCase):
    def test_each_request_is_a_span_of_its_callers_trace(self):
        with Collector() as collector, Server(PROGRAM, "--otlp-traces-endpoint", collector.url) as server:
            headers = {"traceparent": PARENT, "tracestate": "vendor=1", "X-Request-Id": "my-request"}
            status, body = server.request("POST", "/v1/completions",
                                          {"prompt": "Once", "max_tokens": 7, "ignore_eos": True, "temperature": 0.5,
                                           "top_p": 0.9}, headers)
            self.assertEqual(status, 200, body)
            server.chat("Hello!", max_tokens=3)
            unsampled = {**headers, "traceparent": PARENT[:-1] + "0"}
            server.request("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 2}, unsampled)
            wait_for("the spans", lambda: len(collector.spans) >= 2)
            wait_for("their count", lambda: server.metric("quire:otlp_spans_exported_total") == 2)
            self.assertEqual(collector.headers[0], ("/v1/traces", "application/json"))
            span = next(span for span in collector.spans if span.get("parentSpanId"))
            self.assertEqual(span["traceId"], "0af7651916cd43dd8448eb211c80319c")
            self.assertEqual(span["parentSpanId"], "b7ad6b7169203331")
            self.assertEqual(span["traceState"], "vendor=1")
            self.assertEqual((span["name"], span["kind"]), ("llm_request", 2))
            values = attributes(span)
            self.assertEqual(values["gen_ai.request.id"], "cmpl-my-request")
            self.assertEqual(values["gen_ai.usage.completion_tokens"], 7)
            self.assertEqual(values["gen_ai.request.max_tokens"], 7)
            self.assertEqual(values["gen_ai.request.temperature"], 0.5)
            self.assertEqual(values["gen_ai.request.top_p"], 0.9)
            duration = int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])
            self.assertAlmostEqual(values["gen_ai.latency.e2e"], duration / 1e9, places=6)
            self.assertGreater(values["gen_ai.latency.e2e"], values["gen_ai.latency.time_in_model_inference"])
            self.assertLess(abs(int(span["startTimeUnixNano"]) / 1e9 - time.time()), 60)
            stamps = [int(event["timeUnixNano"]) for event in span["events"]]
            self.assertEqual(stamps, sorted(stamps))
            self.assertGreaterEqual(stamps[0], int(span["startTimeUnixNano"]))
            self.assertEqual(len({span["traceId"] for span in collector.spans}), 2)

    def test_what_is_left_is_sent_at_the_end(self):
        with Collector() as collector, Server(PROGRAM, "--otlp-traces-endpoint", collector.url) as server:
            server.chat("Hello!", max_tokens=3)
            server.signal(signal.SIGTERM)
            self.assertEqual(server.wait(), 0)
            self.assertEqual(len(collector.spans), 1)

    def test_a_slow_or_dead_collector_holds_no_request_up(self):
        with Collector(delay=20) as slow:
            for url in (slow.url, "http://127.0.0.1:9/v1/traces"):
                with self.subTest(url), Server(PROGRAM, "--otlp-traces-endpoint", url) as server:
                    begin = time.monotonic()
                    for _ in range(20):
                        self.assertEqual(server.chat("Hello!", max_tokens=2)[0], 200)
                    self.assertLess(time.monotonic() - begin, 15)
                    if url != slow.url:
                        wait_for("the drop", lambda: server.metric("quire:otlp_spans_dropped_total") > 0)
                        self.assertIn("the collector at 127.0.0.1:9 took no spans", server.stderr())
                    server.signal(signal.SIGTERM)
                    self.assertEqual(server.wait(), 0)

    def test_a_wrong_endpoint_is_refused_at_the_start(self):
        for url in ("127.0.0.1:4318", "https://127.0.0.1:4318", "grpc://127.0.0.1:4317"):
            run = subprocess.run([PROGRAM, "serve", "--port", "0", "--otlp-traces-endpoint", url],
                                 capture_output=True, text=True, timeout=60)
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertIn("--otlp-traces-endpoint", run.stderr)


class TraceTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "trace.json")

    def test_a_trace_shows_all_parts_of_a_request(self):
        with Server(PROGRAM, "--trace", self.path, threads=2) as server:
            engine = server.engine_pid()
            wait_for("the engine's part", lambda: "engine demo" in read(self.path))
            load_trace(self.path)  # whole already
            server.chat("Hello!", max_tokens=20, ignore_eos=True)
            server.signal(signal.SIGTERM)
            self.assertEqual(server.wait(), 0)
            front = server.process.pid
        events = load_trace(self.path)
        processes = {pid: name for (pid, _), name in names_of(events, "process_name").items()}
        self.assertEqual(processes, {front: "quire server", engine: "engine demo"})
        threads = names_of(events, "thread_name")
        by_lane = collections.defaultdict(collections.Counter)
        for event in events:
            if event["ph"] in "Xb":
                by_lane[threads[event["pid"], event["tid"]]][event["name"]] += 1
        steps = by_lane["engine"]["step"]
        self.assertGreaterEqual(steps, 20)
        for name in ("plan", "run", "commit", "emit", "forward", "embed", "logits", "sample"):
            self.assertGreaterEqual(by_lane["engine"][name], 20, name)
        layers = {event["args"]["layer"] for event in events if event["name"] == "layer"}
        self.assertEqual(layers, set(range(len(layers))))
        self.assertGreater(len(layers), 1)
        for name in ("qkv_proj", "attention", "o_proj", "gate_up_proj", "down_proj", "rope and store"):
            self.assertEqual(by_lane["engine"][name], by_lane["engine"]["layer"], name)
        self.assertGreater(sum(by_lane["compute 1"].values()), 0)
        self.assertEqual({name: by_lane["engine"][name] for name in ("queued", "prefill", "decode")},
                         {"queued": 1, "prefill": 1, "decode": 1})
        for lane, name in (("HTTP", "HTTP request"), ("HTTP", "write answer"), ("engine events of demo", "dispatch events"),
                           ("wire send", "send"), ("wire receive", "receive")):
            self.assertGreater(by_lane[lane][name], 0, (lane, name))
        self.assertTrue(any(by_lane[lane]["parse, render, tokenise, submit"] for lane in ("worker 0", "worker 1")))
        counters = {event["name"] for event in events if event["ph"] == "C"}
        self.assertEqual(counters, {"queue", "KV blocks", "tokens of a step"})
        # One clock: the engine computes for the request while the front end has it.
        requests = collections.defaultdict(dict)
        for event in events:
            if event["name"] == "HTTP request":
                requests[event["id2"]["local"]][event["ph"]] = event["ts"]
        decode = {event["ph"]: event["ts"] for event in events if event["name"] == "decode"}
        self.assertTrue(any(request["b"] < decode["b"] <= decode["e"] < request["e"] for request in requests.values()))

    def test_profiles_of_a_running_server(self):
        with Server(PROGRAM, "--profile-dir", self.folder.name) as server:
            self.assertEqual(server.request("POST", "/stop_profile")[0], 409)
            status, body = server.request("POST", "/start_profile")
            self.assertEqual(status, 200, body)
            path = json.loads(body)["file"]
            self.assertEqual(os.path.dirname(path), self.folder.name)
            self.assertEqual(server.request("POST", "/start_profile")[0], 409)
            wait_for("the engine's part", lambda: server.chat("Hi", max_tokens=5) and
                     "engine demo" in read(path))
            status, body = server.request("POST", "/stop_profile")
            self.assertEqual(status, 200, body)
            summary = json.loads(body)
            self.assertIsNone(summary["problem"])
            events = load_trace(path)
            self.assertEqual(summary["events"],
                             sum(event["ph"] in "XC" for event in events) + sum(event["ph"] == "b" for event in events))
            size = os.path.getsize(path)
            server.chat("Hi", max_tokens=5)
            self.assertEqual(os.path.getsize(path), size)  # it has ended

    def test_a_killed_engine_ends_no_trace(self):
        with Server(PROGRAM, "--trace", self.path) as server:
            killed = server.engine_pid()
            # The kernel gives up a write of several pages when the process is killed in the middle of it: none is under
            # way once the engine's part is there and the file is whole.
            wait_for("the engine's part", lambda: server.chat("Hi", max_tokens=5) and
                     "engine demo" in read(self.path) and read(self.path).rstrip().endswith("]}"))
            os.kill(killed, signal.SIGKILL)
            server.wait_for_new_engine(killed)
            wait_for("the new engine's part", lambda: server.chat("Hi", max_tokens=5) and
                     f'"pid":{server.engine_pid()},' in read(self.path))
            server.signal(signal.SIGTERM)
            self.assertEqual(server.wait(), 0)
        load_trace(self.path)

    def test_a_full_disk_ends_the_trace_and_nothing_else(self):
        with Server(PROGRAM, "--trace", self.path, "--max-trace-size", "200KiB") as server:
            wait_for("the end of the trace", lambda: server.chat("Hi", max_tokens=20) and
                     "the trace ends" in server.stderr())
            self.assertEqual(server.chat("Hello!", max_tokens=5)[0], 200)
            self.assertLess(os.path.getsize(self.path), 201 * 1024)
            load_trace(self.path)
            status, body = server.request("POST", "/stop_profile")
            self.assertEqual(status, 200, body)
            self.assertIn("largest size", json.loads(body)["problem"])
            self.assertEqual(server.health(), 200)
        for path in ("/dev/full", os.path.join(self.folder.name, "no", "such", "folder")):
            run = subprocess.run([PROGRAM, "serve", "--port", "0", "--trace", path], capture_output=True, text=True,
                                 timeout=60)
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertIn("--trace", run.stderr)
            self.assertIn(path, run.stderr)

    def test_a_killed_server_leaves_a_whole_trace(self):
        with Server(PROGRAM, "--trace", self.path) as server:
            wait_for("the engine's part", lambda: server.chat("Hi", max_tokens=5) and
                     "engine demo" in read(self.path))
            server.signal(signal.SIGKILL)
            server.wait()
            wait_for("the engine's end", lambda: not process_is_alive(server.engine_pid()))
        load_trace(self.path)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main(verbosity=2)
