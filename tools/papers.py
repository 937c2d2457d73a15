#!/usr/bin/python3
"""./run bench papers NAME: a claim of a paper, tried on this machine with the real engine, as a table, JSON and a plot.

`quire bench papers` measures; this makes the model where a random one is wanted, and draws. --docs puts the table and the
plot into docs/papers.md. Nothing else should run meanwhile.
"""
import argparse
import json
import math
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"
DOCS = ROOT / "docs"

# name: (columns that name a bar, columns that are drawn, one panel each)
PLOTS = {
    "paged-kv": (["memory"], ["waste_percent", "sequences_mean", "output_tokens_per_second"]),
    "radix": (["workload", "prefix_cache", "policy"], ["requests_per_second", "hit_percent"]),
    "continuous-batching": (["batching"], ["output_tokens_per_second", "sequences_mean", "latency_p50_seconds"]),
    "chunked-prefill": (["prefill"], ["itl_p99_ms", "itl_max_ms", "tokens_per_second"]),
    "sharing": (["decoding", "sequences_per_request"], ["saved_percent", "blocks_mean"]),
    "async": (["cores", "sequences", "async_scheduling"], ["of_0_percent", "output_tokens_per_second"]),
}
# Experiments whose gain is that of larger batches, on a model for which reading the weights is most of a small batch: a
# shape of `make_model`, its layers, its type. The others take the demo model.
MODELS = {"paged-kv": ("qwen2.5-0.5b", 4, "Q8_0")}


def make_model(shape, layers, kind):
    path = ROOT / "build" / "bench-models" / f"{shape}-{layers}-layers-{kind.lower()}.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([str(BUILD / "make_model"), shape, str(path), "--type", kind, "--layers", str(layers), "--quiet"],
                       check=True, stdout=subprocess.DEVNULL)
    return path


def cell(value):
    if isinstance(value, str):
        return value
    return f"{value:.0f}" if value == round(value) else f"{value:.{2 if abs(value) < 10 else 1}f}"


def tick_step(largest):
    """1, 2 or 5 times a power of ten, so that there are four ticks or fewer."""
    power = 10 ** math.floor(math.log10(largest / 4)) if largest > 0 else 1
    return next(step * power for step in (1, 2, 5, 10) if step * power * 4 >= largest)


def plot_script(report, path):
    """What gnuplot is told; the data stand in it. A panel of bars for each column."""
    names, columns = PLOTS[report["name"]]
    labels = [", ".join(cell(row[name]) for name in names) for row in report["rows"]]
    left = 7 * max(len(label) for label in labels) + 20
    width = left + 220 * len(columns)
    lines = [f"set terminal svg size {width},{90 + 24 * len(labels)} font 'sans-serif,11' background '#ffffff'",
             f"set output '{path}'", "set style fill solid 0.7", "set grid xtics", "unset key",
             f"set yrange [{len(labels) - 0.4}:-0.6]", f"set multiplot layout 1,{len(columns)}"]
    for index, column in enumerate(columns):
        values = [row[column] for row in report["rows"]]
        ticks = ", ".join(f"'{label if index == 0 else ''}' {i}" for i, label in enumerate(labels))
        lines += [f"set lmargin at screen {(left + 220 * index) / width:.4f}",
                  f"set rmargin at screen {(left + 220 * (index + 1) - 30) / width:.4f}",
                  f"set title '{column.replace('_', ' ')}'", f"set ytics ({ticks})", f"set xtics 0,{tick_step(max(values))}",
                  f"set xrange [0:{1.05 * max(values) or 1}]", "$data << END"]
        lines += [f"{i} {value}" for i, value in enumerate(values)]
        lines += ["END", "plot $data using ($2/2):1:($2/2):(0.35) with boxxyerror linecolor rgb '#1f77b4'"]
    return "\n".join(lines + ["unset multiplot"]) + "\n"


def draw(report, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["gnuplot"], input=plot_script(report, path), text=True, check=True)


def section(report, command, model):
    """What stands in docs/papers.md between the marks of an experiment."""
    keys = list(report["rows"][0])
    numeric = [not isinstance(report["rows"][0][key], str) for key in keys]
    lines = ["```", f"$ {command}", "```", "",
             f"Measured: {report['figure']}. The claim is {'met' if report['claim_met'] else '**not met**'} (model: {model}).", "",
             "| " + " | ".join(key.replace("_", " ") for key in keys) + " |",
             "|" + "|".join("---:" if right else "---" for right in numeric) + "|"]
    lines += ["| " + " | ".join(cell(row[key]) for key in keys) + " |" for row in report["rows"]]
    return "\n".join(lines + ["", f"![{report['name']}](plots/papers-{report['name']}.svg)"])


def put_into_page(page, name, text):
    """The page with `text` between the marks of `name`."""
    marks = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end of {re.escape(name)} -->)", re.DOTALL)
    if not marks.search(page):
        sys.exit(f"docs/papers.md has no marks for {name}")
    return marks.sub(lambda match: match[1] + text + "\n" + match[2], page)


def main():
    parser = argparse.ArgumentParser(prog="./run bench papers", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="the experiment: " + ", ".join(PLOTS))
    parser.add_argument("--json", type=pathlib.Path, help="write the figures to this file")
    parser.add_argument("--plot", type=pathlib.Path, help="of the plot (build/papers/NAME.svg)")
    parser.add_argument("--model", help="a Hugging Face folder or a .gguf file; default: the demo model, or a random one of "
                        "tools/make_model where that says more")
    parser.add_argument("--threads", type=int, help="that compute")
    parser.add_argument("--docs", action="store_true", help="put table and plot into docs/papers.md")
    args = parser.parse_args()

    command = [str(BUILD / "quire"), "bench", "papers", args.name]
    model = args.model or (str(make_model(*MODELS[args.name])) if args.name in MODELS else None)
    command += ["--model", model] if model else []
    command += ["--threads", str(args.threads)] if args.threads is not None else []
    with tempfile.TemporaryDirectory() as folder:
        target = args.json or pathlib.Path(folder) / "report.json"
        status = subprocess.run(command + ["--json", str(target)]).returncode
        if status != 0:
            return status
        report = json.loads(target.read_text())
    plot = args.plot or (DOCS / "plots" / f"papers-{args.name}.svg" if args.docs else ROOT / "build" / "papers" / f"{args.name}.svg")
    draw(report, plot)
    print(f"plot: {os.path.relpath(plot)}")
    if args.docs:
        page = DOCS / "papers.md"
        named = pathlib.Path(model).name if model else "the demo model"
        shown = shlex.join(["./run", "bench", "papers", args.name])
        page.write_text(put_into_page(page.read_text(), args.name, section(report, shown, named)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
