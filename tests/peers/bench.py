#!/usr/bin/env python3
"""./run bench peers: quire against llama.cpp, side by side on this machine.

Both engines hold the same GGUF file and are measured in turn, case by case, pair by pair; what counts is the ratio of
each pair. quire runs as `quire bench model --stdin`, a process that waits without computing; llama.cpp runs in this
process through its C API, with its own thread pool. Nothing else should run meanwhile.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import llama

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build" / "release"
SHAPES = ["qwen2.5-0.5b", "llama-3.2-1b", "qwen2.5-7b"]


class Quire:
    """A `quire bench model --stdin` process: one case a line in, one JSON line out."""

    def __init__(self, path, threads, isa):
        command = [str(BUILD / "quire"), "bench", "model", str(path), "--stdin", "--threads", str(threads)]
        environment = dict(os.environ, **({"QUIRE_ISA": isa} if isa else {}))
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def measure(self, case):
        self.process.stdin.write(case + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"quire ended while measuring \"{case}\" (exit status {self.process.wait()})")
        return json.loads(line)["tokens_per_second"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Llama:
    """Its cache is divided evenly among the sequences, so every number of sequences has a context of its own."""

    def __init__(self, library, path, threads):
        self.model = llama.Model(library, path, threads=threads)
        self.sequences = 1

    def measure(self, case):
        words = case.split()
        count = int(words[1])
        sequences = int(words[2]) if words[0] == "decode" else 1
        if sequences != self.sequences:
            self.model.open_context(n_ctx=4096 if sequences == 1 else 512 * sequences, n_batch=2048, n_seq_max=sequences)
            self.sequences = sequences
        if words[0] == "prefill":
            tokens = [1 + (i * 7919) % (self.model.n_vocab - 2) for i in range(count)]
            return count / self.model.time_prefill(tokens)
        return count * sequences / self.model.time_decode(count, sequences)

    def close(self):
        self.model.close()


def cases(args):
    for tokens in args.prefill:
        yield f"prefill {tokens}"
    for sequences in args.sequences:
        yield f"decode {args.decode if sequences == 1 else max(16, args.decode // 4)} {sequences}"


def model_file(args, shape, kind):
    """The random model, made once: the same file for both engines."""
    path = pathlib.Path(args.models) / f"{shape}-{kind.lower()}.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([str(BUILD / "make_model"), shape, str(path), "--type", kind, "--quiet"], check=True,
                       stdout=subprocess.DEVNULL)
    return path


def compare(args, library, shape, kind):
    path = model_file(args, shape, kind)
    quire, peer = Quire(path, args.threads, args.isa), Llama(library, path, args.threads)
    rows = []
    for case in cases(args):
        quire.measure(case), peer.measure(case)  # the first run warms caches and is not counted
        pairs = [(quire.measure(case), peer.measure(case)) for _ in range(args.repeat)]
        ratios = sorted(q / p for q, p in pairs)
        rows.append({
            "shape": shape, "format": kind, "case": case,
            "quire_tokens_per_second": statistics.median(q for q, _ in pairs),
            "llama_tokens_per_second": statistics.median(p for _, p in pairs),
            "ratio": statistics.median(ratios), "ratio_min": ratios[0], "ratio_max": ratios[-1],
        })
        if not args.json:
            print_row(rows[-1])
    quire.close(), peer.close()
    return rows


def print_row(row):
    print(f"{row['shape']:<14} {row['format']:<7} {row['case']:<14} {row['quire_tokens_per_second']:>9.1f} "
          f"{row['llama_tokens_per_second']:>9.1f} {row['ratio']:>7.2f}  ({row['ratio_min']:.2f} – {row['ratio_max']:.2f})",
          flush=True)


def main():
    parser = argparse.ArgumentParser(prog="./run bench peers", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    integers = lambda text: [int(word) for word in text.split(",")]
    words = lambda text: text.split(",")
    parser.add_argument("--shapes", type=words, default=["qwen2.5-0.5b"], help=f"of {', '.join(SHAPES)}")
    parser.add_argument("--formats", type=words, default=["BF16", "Q8_0"], help="BF16, Q8_0, Q4_0, Q4_K_M")
    parser.add_argument("--prefill", type=integers, default=[512], help="prompt lengths (default 512)")
    parser.add_argument("--decode", type=int, default=128, help="steps of generation (default 128; a quarter in batches)")
    parser.add_argument("--sequences", type=integers, default=[1], help="sequences at a time (default 1)")
    parser.add_argument("--repeat", type=int, default=5, help="pairs of measurements per case (default 5)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--isa", default="", help="force quire's kernel tier")
    parser.add_argument("--peer-backend", default=None, help="force llama.cpp's CPU backend, such as haswell")
    parser.add_argument("--models", default=str(ROOT / "build" / "bench-models"), help="where the random models are kept")
    parser.add_argument("--json", action="store_true", help="print one JSON array instead of the table")
    args = parser.parse_args()
    if not llama.available():
        raise SystemExit("llama.cpp's libraries are missing; ./run bench peers installs them (npm ci in tests/peers)")
    library = llama.Library(args.peer_backend)
    if not args.json:
        print(f"quire against llama.cpp (backend {library.variant}), {args.threads} threads, medians of {args.repeat} pairs, tokens/s\n")
        print(f"{'shape':<14} {'format':<7} {'case':<14} {'quire':>9} {'llama.cpp':>9} {'ratio':>7}  (min – max)")
    rows = [row for shape in args.shapes for kind in args.formats for row in compare(args, library, shape, kind)]
    if args.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
