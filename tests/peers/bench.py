#!/usr/bin/env python3
"""./run bench peers: quire against llama.cpp, side by side on this machine, and against the machine's limit.

Both engines hold the same GGUF file and are measured in turn, pair by pair; what counts is the ratio of each pair. The
limits of the machine are measured around every pair. quire runs as `quire bench model --stdin` and the limits as
`quire bench roofline --stdin`, processes that wait without computing; llama.cpp runs in this process through its C API,
with its own thread pool. Nothing else should run meanwhile.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import limits
import llama

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build" / "release"
FORMATS = ["BF16", "Q8_0", "Q4_0", "Q4_K_M"]
WORKS = ["prefill512", "prefill2048", "decode1", "decode2", "decode4", "decode8", "decode16", "decode32"]
QUICK = {"shapes": ["qwen2.5-0.5b"], "formats": FORMATS, "works": ["prefill512", "decode1", "decode8"], "pairs": 3}
ALL = {"shapes": ["qwen2.5-0.5b", "llama-3.2-1b"], "formats": FORMATS, "works": WORKS, "pairs": 5}


class Waiting:
    """A quire command that answers each line of its input with one of JSON, and computes nothing in between."""

    def __init__(self, command, isa=""):
        environment = dict(os.environ, **({"QUIRE_ISA": isa} if isa else {}))
        self.process = subprocess.Popen([str(BUILD / "quire"), "bench", *command], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=environment)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"quire ended while measuring \"{line}\" (exit status {self.process.wait()})")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Machine(Waiting):
    def __init__(self, threads):
        super().__init__(["roofline", "--stdin", "--threads", str(threads), "--repeats", "3", "--working-set", "256MiB"])

    def measure(self):
        return self.ask("measure")


class Quire(Waiting):
    def __init__(self, path, threads, isa):
        super().__init__(["model", str(path), "--stdin", "--threads", str(threads)], isa)

    def measure(self, work):
        return self.ask(work.case)["tokens_per_second"]


class Llama:
    """Its cache is divided evenly among the sequences, so every number of sequences has a context of its own."""

    def __init__(self, library, path, threads):
        self.model = llama.Model(library, path, threads=threads)
        self.sequences = 1

    def measure(self, work):
        if work.sequences != self.sequences:
            self.model.open_context(n_ctx=4096 if work.sequences == 1 else 512 * work.sequences, n_batch=2048,
                                    n_seq_max=work.sequences)
            self.sequences = work.sequences
        if work.is_prefill:
            tokens = [1 + (i * 7919) % (self.model.n_vocab - 2) for i in range(work.tokens)]
            rate = work.tokens / self.model.time_prefill(tokens)
        else:
            rate = work.tokens * work.sequences / self.model.time_decode(work.tokens, work.sequences)
        self.model.pause()  # its threads would go on spinning into quire's turn
        return rate

    def close(self):
        self.model.close()


def model_file(folder, shape, kind):
    """The random model, made once: the same file for both engines."""
    path = pathlib.Path(folder) / f"{shape}-{kind.lower()}.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([str(BUILD / "make_model"), shape, str(path), "--type", kind, "--quiet"], check=True,
                       stdout=subprocess.DEVNULL)
    return path


def cost_of(path):
    return limits.ModelCost.of(json.loads(subprocess.check_output([str(BUILD / "quire"), "inspect", str(path), "--json"])))


def make_row(shape, kind, work, pairs):
    """`pairs`: (quire, peer, limit) tokens a second, measured in turn. Medians of each; ratios are those of pairs."""
    ratios = [quire / peer for quire, peer, _ in pairs]
    return {"shape": shape, "format": kind, "work": work.name, "quire": statistics.median(pair[0] for pair in pairs),
            "peer": statistics.median(pair[1] for pair in pairs), "unit": "tokens/s", "ratio": statistics.median(ratios),
            "ratio_min": min(ratios), "ratio_max": max(ratios),
            "limit_fraction": statistics.median(quire / limit for quire, _, limit in pairs)}


def between(before, after):
    """The limits during a measurement: the mean of those before and after it."""
    return {key: (before[key] + after[key]) / 2 for key in before}


def measure_pair(machine, quire, peer, work, limit_of):
    before = machine.measure()
    ours = quire.measure(work)
    after = machine.measure()
    return ours, peer.measure(work), limit_of(between(before, after))


def compare(args, library, machine, shape, kind):
    path = model_file(args.models, shape, kind)
    cost = cost_of(path)
    quire, peer = Quire(path, args.threads, args.isa), Llama(library, path, args.threads)
    for name in args.works:
        work = limits.Work.parse(name, args.steps)
        quire.measure(work), peer.measure(work)  # the first run warms caches and is not counted
        pairs = [measure_pair(machine, quire, peer, work, lambda found: limits.limit(cost, work, found, kind))
                 for _ in range(args.pairs)]
        yield make_row(shape, kind, work, pairs)
    quire.close(), peer.close()


HEADER = f"{'shape':<13} {'format':<7} {'work':<12} {'quire':>9} {'llama.cpp':>9} {'ratio':>7}  {'(min – max)':<14} {'of limit':>8}"


def row_text(row):
    span = f"({row['ratio_min']:.2f} – {row['ratio_max']:.2f})"
    return (f"{row['shape']:<13} {row['format']:<7} {row['work']:<12} {row['quire']:>9.1f} {row['peer']:>9.1f} "
            f"{row['ratio']:>7.2f}  {span:<14} {row['limit_fraction']:>8.2f}")


def parse_arguments(arguments):
    words = lambda text: text.split(",")
    parser = argparse.ArgumentParser(prog="./run bench peers", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="every work and format on both shapes: an hour or two")
    parser.add_argument("--shapes", type=words, help="qwen2.5-0.5b, llama-3.2-1b, qwen2.5-7b (the last with Q4_0, say)")
    parser.add_argument("--formats", type=words, help=f"of {', '.join(FORMATS)}")
    parser.add_argument("--works", type=words, help=f"such as {', '.join(WORKS)}")
    parser.add_argument("--pairs", type=int, help="pairs of measurements per row (3; with --all 5)")
    parser.add_argument("--steps", type=int, default=128, help="of decode1 (128); a quarter of it with several sequences")
    parser.add_argument("--threads", type=int, default=2, help="of both engines (2)")
    parser.add_argument("--isa", default="", help="force quire's kernel tier")
    parser.add_argument("--peer-backend", help="force llama.cpp's CPU backend, such as haswell")
    parser.add_argument("--models", default=str(ROOT / "build" / "bench-models"), help="where the random models are kept")
    parser.add_argument("--json", metavar="FILE", help="write the rows to FILE, as one JSON array; after each row anew")
    args = parser.parse_args(arguments)
    for name, value in (ALL if args.all else QUICK).items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    if args.pairs < 1 or args.steps < 1:
        parser.error("--pairs and --steps are at least 1")
    try:
        for name in args.works:
            limits.Work.parse(name)
    except ValueError as error:
        parser.error(f"--works: {error}")
    return args


def main():
    args = parse_arguments(None)
    if not llama.available():
        raise SystemExit("llama.cpp's libraries are missing; ./run bench peers installs them (npm ci in tests/peers)")
    library = llama.Library(args.peer_backend)
    machine = Machine(args.threads)
    print(f"quire against llama.cpp (backend {library.variant}), {args.threads} threads, medians of {args.pairs} pairs, tokens/s")
    rows, at_start = [], machine.measure()
    print("limits at the start: " + limits.describe(at_start))
    print(f"\n{HEADER}", flush=True)
    for shape in args.shapes:
        for kind in args.formats:
            for row in compare(args, library, machine, shape, kind):
                rows.append(row)
                print(row_text(row), flush=True)
                if args.json:
                    pathlib.Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")
    machine.close()


if __name__ == "__main__":
    main()
