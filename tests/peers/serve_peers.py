#!/usr/bin/env python3
"""./run bench serve-peers: quire and llama.cpp's server under the same load, side by side on this machine.

Both hold the same GGUF file and are driven by `quire bench serve` in turn, case by case, with the same prompts (ids, so
that lengths are exact), closed loop. llama.cpp's side is the binary `llama-server` of the PATH. Where there is none,
quire is compared with the figures of ../shared/performance.md, which are of another day and perhaps of another machine.
Nothing else should run meanwhile.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build" / "release"
FIGURES = ROOT.parent / "shared" / "performance.md"
INPUT, OUTPUT, PREFIX = 256, 64, 512  # tokens
CONCURRENCIES = [1, 8, 16, 32]
START_SECONDS = 600


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A server process that is ready when /health says so, and is stopped at the end."""

    def __init__(self, command, port, log):
        self.url = f"http://127.0.0.1:{port}"
        self.log = open(log, "w")
        self.process = subprocess.Popen([str(word) for word in command], stdout=self.log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + START_SECONDS
        while not self.is_healthy():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise SystemExit(f"{command[0]} did not start; see {log}")
            time.sleep(0.1)

    def is_healthy(self):
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def start_quire(args):
    port = free_port()
    command = [args.quire, "serve", args.model, "--port", port, "--threads", args.threads, "--log-level", "warn",
               *args.quire_flags.split()]
    return Server(command, port, args.logs / "quire.log")


def start_peer(args, binary):
    port = free_port()
    places = max(args.concurrencies)
    context = places * (PREFIX + INPUT + OUTPUT + 64)  # each place has its share
    command = [binary, "-m", args.model, "--host", "127.0.0.1", "--port", port, "-t", args.threads, "-tb", args.threads,
               "-np", places, "-c", context, *args.peer_flags.split()]
    return Server(command, port, args.logs / "llama-server.log")


def load(args, server, concurrency, prefix, seed):
    """One run of the generator: its JSON."""
    # llama.cpp's list of models tells its vocabulary, as quire's does.
    command = [args.quire, "bench", "serve", "--base-url", server.url, "--dataset", "shared-prefix",
               "--input-len", INPUT + prefix, "--prefix-len", prefix, "--output-len", OUTPUT, "--prompt-format", "ids",
               "--max-concurrency", concurrency, "--num-prompts", max(args.prompts_min, args.rounds * concurrency),
               "--seed", seed, "--timeout", "1h", "--json", "-"]
    run = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    if run.returncode != 0:
        raise SystemExit(f"quire bench serve failed at {server.url}")
    report = json.loads(run.stdout)
    if report["failed"]:
        print(f"note: {report['failed']} requests failed at {server.url}: {next(e for e in report['errors'] if e)}")
    return {"output_throughput": report["output_throughput"], "p50_ttft_ms": report["p50_ttft_ms"],
            "p99_ttft_ms": report["p99_ttft_ms"], "p50_tpot_ms": report["p50_tpot_ms"], "p99_itl_ms": report["p99_itl_ms"],
            "client_cpu_share": report["client_cpu_share"], "failed": report["failed"]}


def known_figures(text):
    """What performance.md says of llama.cpp's server: {(concurrency, prefix): figures}."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        case = re.fullmatch(r"(\d+)(, plus a shared (\d+)-token prefix)?", cells[0])
        ttft = re.fullmatch(r"([\d.]+) / ([\d.]+) s", cells[2]) if len(cells) == 5 else None
        if case and ttft:
            found[int(case[1]), int(case[3] or 0)] = {"output_throughput": float(cells[1]),
                                                      "p50_ttft_ms": 1000 * float(ttft[1]),
                                                      "p99_ttft_ms": 1000 * float(ttft[2])}
    return found


def goal_of(concurrency, prefix):
    """(least ratio of output tokens a second, greatest ratio of TTFT p99), where there is a goal."""
    return (8 if prefix else 4, 0.25) if concurrency >= 16 else (None, None)


def make_row(concurrency, prefix, quire, peer, is_same_run):
    row = {"concurrency": concurrency, "prefix": prefix, "quire": quire, "peer": peer, "is_same_run": is_same_run,
           "throughput_ratio": None, "ttft_p99_ratio": None, "goal_met": None}
    if peer and peer["output_throughput"] and peer["p99_ttft_ms"]:
        row["throughput_ratio"] = quire["output_throughput"] / peer["output_throughput"]
        row["ttft_p99_ratio"] = quire["p99_ttft_ms"] / peer["p99_ttft_ms"]
        least, most = goal_of(concurrency, prefix)
        if least:
            row["goal_met"] = row["throughput_ratio"] >= least and row["ttft_p99_ratio"] <= most
    return row


HEADER = (f"{'in':<10} {'at a time':>9} {'quire tok/s':>11} {'peer tok/s':>10} {'ratio':>6}  "
          f"{'quire TTFT p99':>14} {'peer':>10} {'ratio':>6}  goal")


def row_text(row):
    number = lambda value, form: format(value, form) if value is not None else "–"
    peer = row["peer"] or {"output_throughput": None, "p99_ttft_ms": None}
    seconds = lambda ms: f"{ms / 1000:.2f} s" if ms is not None else "–"
    goal = {None: "", True: "met", False: "missed"}[row["goal_met"]]
    length = f"{row['prefix']} + {INPUT}" if row["prefix"] else str(INPUT)
    return (f"{length:<10} {row['concurrency']:>9} {row['quire']['output_throughput']:>11.1f} "
            f"{number(peer['output_throughput'], '.1f'):>10} {number(row['throughput_ratio'], '.2f'):>6}  "
            f"{seconds(row['quire']['p99_ttft_ms']):>14} {seconds(peer['p99_ttft_ms']):>10} "
            f"{number(row['ttft_p99_ratio'], '.2f'):>6}  {goal}{'' if row['is_same_run'] or not row['peer'] else ' *'}")


def make_model(args):
    if args.model:
        return args.model
    path = ROOT / "build" / "bench-models" / f"{args.shape}-{args.type.lower()}.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([str(BUILD / "make_model"), args.shape, str(path), "--type", args.type, "--quiet"], check=True,
                       stdout=subprocess.DEVNULL)
    return path


def parse_arguments(arguments):
    numbers = lambda text: [int(word) for word in text.split(",")]
    parser = argparse.ArgumentParser(prog="./run bench serve-peers", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="GGUF file that both serve, instead of a random one")
    parser.add_argument("--shape", default="qwen2.5-0.5b", help="of the random model (qwen2.5-0.5b)")
    parser.add_argument("--type", default="Q4_0", help="of the random model (Q4_0)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of both (all CPUs)")
    parser.add_argument("--concurrencies", type=numbers, default=CONCURRENCIES, help="requests at a time (1,8,16,32)")
    parser.add_argument("--prefixes", type=numbers, default=[0, PREFIX], help=f"shared tokens before the {INPUT} (0,{PREFIX})")
    parser.add_argument("--rounds", type=int, default=3, help="requests of a case, times its concurrency (3)")
    parser.add_argument("--prompts-min", type=int, default=8, help="but at least so many (8)")
    parser.add_argument("--quire", default=str(BUILD / "quire"), help="program (build/release/quire)")
    parser.add_argument("--quire-flags", default="", help="more flags of quire serve")
    parser.add_argument("--peer-flags", default="", help="more flags of llama-server")
    parser.add_argument("--no-peer", action="store_true", help="do not look for llama-server")
    parser.add_argument("--json", metavar="FILE", help="write the rows to FILE, as one JSON array; after each row anew")
    parser.add_argument("--logs", type=pathlib.Path, default=ROOT / "build" / "serve-peers", help="folder of the servers' logs")
    args = parser.parse_args(arguments)
    if min(args.concurrencies) < 1 or min(args.prefixes) < 0 or args.rounds < 1 or args.prompts_min < 1:
        parser.error("concurrencies, rounds and prompts are at least 1, prefixes at least 0")
    return args


def measure(args, quire, peer, known):
    for prefix in args.prefixes:
        for concurrency in args.concurrencies:
            seed = 1000 * prefix + concurrency  # no case finds the prompts of another in a cache
            ours = load(args, quire, concurrency, prefix, seed)
            theirs = load(args, peer, concurrency, prefix, seed) if peer else known.get((concurrency, prefix))
            yield make_row(concurrency, prefix, ours, theirs, is_same_run=peer is not None)


def main():
    args = parse_arguments(None)
    args.model = make_model(args)
    args.logs.mkdir(parents=True, exist_ok=True)
    binary = None if args.no_peer else shutil.which("llama-server")
    known = known_figures(FIGURES.read_text()) if FIGURES.exists() else {}
    print(f"{args.model}, {args.threads} threads, {OUTPUT} tokens out")
    if not binary:
        where = "with the figures of ../shared/performance.md (*): not of this run, perhaps not of this machine"
        print("no llama-server is on the PATH: compared " + (where if known else "with nothing, ../shared/performance.md is absent"))
    servers = []
    rows = []
    try:
        servers.append(start_quire(args))
        if binary:
            servers.append(start_peer(args, binary))
        print(f"\n{HEADER}", flush=True)
        for row in measure(args, servers[0], servers[1] if binary else None, known):
            rows.append(row)
            print(row_text(row), flush=True)
            if args.json:
                pathlib.Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")
    finally:
        for server in servers:
            server.close()
    print(f"\nthe generator took at most {100 * max(row['quire']['client_cpu_share'] for row in rows):.1f} % of a core")


if __name__ == "__main__":
    sys.exit(main())
