#!/usr/bin/python3
"""./run bench growth: how the cost of a token grows with the context, the batch and the threads. Writes JSON and plots.

A random model of a real shape, cut to a few layers so that 32k tokens are computed in minutes, runs as `quire bench
model --stdin`. gnuplot draws the plots. Nothing else should run meanwhile.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"
CONTEXTS = [128, 512, 2048, 8192, 32000]
BATCHES = [1, 2, 4, 8, 16, 32, 64]
LONG = 8192  # tokens

# name: (title, what x counts, the series in order)
CURVES = {
    "context": ("Cost of a token against the context", "tokens of context", ["prefill", "decode"]),
    "batch": ("Cost of a generated token against the batch", "sequences that generate together", ["decode"]),
    "threads": ("Cost of a token against the threads", "threads", ["prefill", "decode"]),
}


class Quire:
    def __init__(self, model, threads):
        command = [str(BUILD / "quire"), "bench", "model", str(model), "--stdin", "--threads", str(threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, case):
        """One run of a case: milliseconds a token, of the prompt and of the steps."""
        self.process.stdin.write(case + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"quire ended while measuring \"{case}\" (exit status {self.process.wait()})")
        answer = json.loads(line)
        prompt = answer["num_tokens"] if answer["kind"] == "prefill" else answer["context"]
        return {"prefill": 1000 * answer["prompt_seconds"] / prompt, "decode": 1000 / answer["tokens_per_second"]}

    def runs(self, case, repeats):
        """Several; one before them is not counted, unless it would take long: then its start matters little."""
        if int(case.split()[-1]) < LONG:
            self.run(case)
        return [self.run(case) for _ in range(repeats)]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def point(curve, series, x, runs):
    values = [run[series] for run in runs]
    row = {"curve": curve, "series": series, "x": x, "milliseconds": statistics.median(values),
           "milliseconds_min": min(values), "milliseconds_max": max(values)}
    print(f"{curve:<8} {series:<8} {x:>6} {row['milliseconds']:>10.4f} ms a token "
          f"({row['milliseconds_min']:.4f} – {row['milliseconds_max']:.4f})", flush=True)
    return row


def measure(args, model):
    """All points, one after the other."""
    quire = Quire(model, args.threads)
    for context in (count for count in CONTEXTS if count <= args.context_max):
        runs = quire.runs(f"decode {args.steps} 1 {context}", args.repeats)
        yield from (point("context", series, context, runs) for series in ("prefill", "decode"))
    for batch in (count for count in BATCHES if count <= args.batch_max):
        yield point("batch", "decode", batch, quire.runs(f"decode {args.steps} {batch}", args.repeats))
    quire.close()
    for threads in range(1, args.threads + 1):
        quire = Quire(model, threads)
        yield point("threads", "prefill", threads, quire.runs("prefill 512", args.repeats))
        yield point("threads", "decode", threads, quire.runs(f"decode {args.steps} 1", args.repeats))
        quire.close()


def plot_script(curve, points, folder):
    """What gnuplot is told; the data stand in it."""
    title, x_label, names = CURVES[curve]
    lines = ["set terminal svg size 640,400 font 'sans-serif,12' background '#ffffff'",
             f"set output '{folder / (curve + '.svg')}'", f"set title '{title}'", f"set xlabel '{x_label}'",
             "set ylabel 'milliseconds a token'", "set grid", "set key top left", "set yrange [0:*]", "set offsets graph 0.02, graph 0.02"]
    ticks = sorted({p["x"] for p in points})
    lines += [] if curve == "threads" else ["set logscale x 2"]
    lines.append("set xtics (" + ", ".join(f"'{x}' {x}" for x in ticks) + ")")
    for name in names:
        rows = [p for p in points if p["series"] == name]
        lines += [f"${name} << END"] + [f"{p['x']} {p['milliseconds']} {p['milliseconds_min']} {p['milliseconds_max']}" for p in rows]
        lines.append("END")
    draw = [f"${name} using 1:2:3:4 with yerrorlines linewidth 2 pointtype 7 title '{name}'" for name in names]
    return "\n".join(lines + ["plot " + ", ".join(draw)]) + "\n"


def draw(points, folder):
    for curve in CURVES:
        chosen = [p for p in points if p["curve"] == curve]
        if chosen:
            subprocess.run(["gnuplot"], input=plot_script(curve, chosen, folder), text=True, check=True)


def make_model(args):
    if args.model:
        return args.model
    path = ROOT / "build" / "bench-models" / f"{args.shape}-{args.layers}-layers-{args.type.lower()}.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([str(BUILD / "make_model"), args.shape, str(path), "--type", args.type, "--layers", str(args.layers), "--quiet"],
                       check=True, stdout=subprocess.DEVNULL)
    return path


def main():
    parser = argparse.ArgumentParser(prog="./run bench growth", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", default=str(ROOT / "build" / "growth"), help="folder of the plots and growth.json (build/growth)")
    parser.add_argument("--model", help="measure this model instead of a random one")
    parser.add_argument("--shape", default="qwen2.5-0.5b", help="of the random model (qwen2.5-0.5b)")
    parser.add_argument("--layers", type=int, default=2, help="of the random model (2)")
    parser.add_argument("--type", default="Q8_0", help="of the random model (Q8_0)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="at most (all CPUs)")
    parser.add_argument("--context-max", type=int, default=CONTEXTS[-1], help=f"longest context ({CONTEXTS[-1]})")
    parser.add_argument("--batch-max", type=int, default=BATCHES[-1], help=f"most sequences ({BATCHES[-1]})")
    parser.add_argument("--steps", type=int, default=32, help="of generation (32)")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each point (3)")
    parser.add_argument("--redraw", action="store_true", help="only draw the plots again, from growth.json")
    args = parser.parse_args()
    folder = pathlib.Path(args.output)
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "growth.json"
    if not args.redraw:
        points = list(measure(args, make_model(args)))
        data.write_text(json.dumps(points, indent=1) + "\n")
    draw(json.loads(data.read_text()), folder)


if __name__ == "__main__":
    main()
