#!/usr/bin/env python3
"""./run bench quality: what each format of `quire quantize` costs the demo model, beside llama.cpp's own quantisation.

Every format that `quire quantize` knows is written and measured by `quire perplexity --reference` against the
unquantised model. llama.cpp quantises the same file to the type of the same number (general.file_type), and quire
measures that file, too: the same evaluation, so that only the weights differ. A format of ours is worse when its mean
KL divergence is larger than llama.cpp's by more than two standard errors of the difference; then the exit status is 1.
"""
import argparse
import json
import math
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))
import llama

LOSSLESS = ("F32", "F16", "BF16")  # nothing to compare: both engines only round, or copy
SKIPPED = 77


def known_types(quire):
    """As `quire quantize` itself lists them, so that new ones appear here without being named."""
    run = subprocess.run([quire, "quantize", "in", "out.gguf", "--type", "?"], capture_output=True, text=True)
    names = re.search(r"unknown type \"\?\"; (.*) are known", run.stderr)
    if not names:
        raise SystemExit(f"quire quantize does not say which types it knows: {run.stderr}")
    return re.findall(r"[A-Z0-9_]+", names[1])


def file_type(path):
    """llama.cpp's number of what the file is mostly made of: a 32-bit value behind its key."""
    data, key = path.read_bytes(), b"general.file_type"
    return struct.unpack_from("<II", data, data.index(key) + len(key))[1]


def measure(args, model, text):
    command = [args.quire, "perplexity", model, text, "--reference", args.model, "--json", "--max-windows", args.windows]
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\n{run.stderr}")
    return json.loads(run.stdout)


def row(args, name, engine, path, text):
    report = measure(args, path, text)
    against = {key: value for key, value in report["reference"].items() if key.startswith(("kl_", "same_top", "p_change", "log_"))}
    return {"format": name, "engine": engine, "bytes": path.stat().st_size, "perplexity": report["perplexity"],
            "perplexity_error": report["perplexity_error"], **against}


def is_worse(ours, peer):
    noise = math.hypot(ours["kl_mean_error"], peer["kl_mean_error"])
    return ours["kl_mean"] - peer["kl_mean"] > 2 * noise


HEADER = (f"{'format':<8} {'made by':<10} {'MiB':>6} {'bits/w':>6} {'perplexity':>10} {'ln of the ratio':>18} {'KL mean':>19} "
          f"{'KL 99 %':>8} {'KL max':>7} {'same top %':>10} {'Δp rms %':>8}")


def row_text(row, parameters, verdict=""):
    return (f"{row['format']:<8} {row['engine']:<10} {row['bytes'] / 2**20:>6.2f} {8 * row['bytes'] / parameters:>6.2f} "
            f"{row['perplexity']:>10.4f} {row['log_ratio']:>8.4f} ± {row['log_ratio_error']:.4f} "
            f"{row['kl_mean']:>8.5f} ± {row['kl_mean_error']:.5f} {row['kl_p99']:>8.5f} {row['kl_max']:>7.4f} "
            f"{100 * row['same_top']:>10.2f} {100 * row['p_change_rms']:>8.3f}  {verdict}").rstrip()


def compare(args, library, folder, text):
    """Measures and prints; → rows, names of the formats that are worse than the peer's."""
    folder, rows, worse = pathlib.Path(folder), [], []
    source = folder / "source.gguf"
    subprocess.run([args.quire, "quantize", args.model, source, "--type", "BF16"], check=True, capture_output=True)
    inspected = json.loads(subprocess.check_output([args.quire, "inspect", source, "--json"]))
    parameters = sum(kind["parameters"] for kind in inspected["types"].values())
    for name in args.formats or known_types(args.quire):
        ours = folder / f"quire-{name}.gguf"
        subprocess.run([args.quire, "quantize", args.model, ours, "--type", name], check=True, capture_output=True)
        pair = [row(args, name, "quire", ours, text)]
        theirs = folder / f"llama-{name}.gguf"
        if library and name not in LOSSLESS and llama.quantize(library, source, theirs, file_type(ours)):
            pair.append(row(args, name, "llama.cpp", theirs, text))
        verdict = "" if len(pair) == 1 else "worse" if is_worse(*pair) else "ok"
        worse += [name] if verdict == "worse" else []
        for measured in pair:
            print(row_text(measured, parameters, verdict if measured["engine"] == "quire" else ""), flush=True)
        rows += pair
    return rows, worse


def main():
    parser = argparse.ArgumentParser(prog="./run bench quality", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--formats", type=lambda text: text.split(","), help="separated by commas (default: all)")
    parser.add_argument("--windows", type=int, default=0, help="windows of the text that are used (default: all)")
    parser.add_argument("--model", default=str(ROOT / "models" / "demo"), help="the unquantised model (default: the demo)")
    parser.add_argument("--text", help="a text file (default: conversations made by tools/demo_model/evaluation_text.py)")
    parser.add_argument("--json", metavar="FILE", help="write the rows to FILE, too")
    parser.add_argument("--quire", default=str(ROOT / "build" / "release" / "quire"), help="the program")
    parser.add_argument("--need-peer", action="store_true", help=f"exit with {SKIPPED} when llama.cpp is not installed")
    args = parser.parse_args()
    library = llama.Library() if llama.available() else None
    if not library:
        print("llama.cpp's libraries are missing (npm ci in tests/peers): quire alone", file=sys.stderr)
        if args.need_peer:
            sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as folder:
        text = args.text
        if not text:
            text = os.path.join(folder, "text")
            maker = [sys.executable, "-B", str(ROOT / "tools" / "demo_model" / "evaluation_text.py"), str(ROOT / "models" / "demo")]
            with open(text, "wb") as file:
                subprocess.run(maker, stdout=file, check=True)
        print(HEADER)
        rows, worse = compare(args, library, folder, text)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")
    if worse:
        sys.exit(f"worse than llama.cpp's beyond noise: {', '.join(worse)}")


if __name__ == "__main__":
    main()
