#!/usr/bin/env python3
"""`quire perplexity` against the numpy model and tokenizer: a few windows of the demo model, alone and as the reference of
a coarser copy.   usage: check_perplexity.py QUIRE DEMO_FOLDER WORK_FOLDER

On the reference tier with F32 keys both compute from the same exact weights. The copy's weights are the demo's with the
last bits cut off, and no integers: those would round activations, where two programs may differ (see check_models.py).
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np

from reference_model import ReferenceModel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "demo_model"))
from tokenizer import Tokenizer  # noqa: E402

CONTEXT, STRIDE, NUM_TOKENS = 40, 24, 100
BOUND = 1e-4  # relative


def write_coarse_copy(demo, folder):
    """Three bits of each BF16 weight's seven are kept."""
    shutil.copytree(demo, folder, dirs_exist_ok=True)
    path = pathlib.Path(folder) / "model.safetensors"
    data = np.frombuffer(path.read_bytes(), np.uint8).copy()
    begin = 8 + int(data[:8].view("<u8")[0])
    weights = data[begin:].view("<u2")
    weights &= 0xFFF0
    path.unlink()
    path.write_bytes(data.tobytes())


def log_softmax(logits):
    top = logits.max(axis=1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))


def scored_rows(model, tokens):
    """Log probabilities of every scored position, [positions, vocab], and the tokens that stand there."""
    rows, chosen, done = [], [], 0
    for begin in range(0, len(tokens), STRIDE):
        window = tokens[begin:begin + CONTEXT]
        if begin + len(window) <= done:
            break
        first = max(done, begin + 1) - begin
        rows.append(log_softmax(model.logits(window))[first - 1:len(window) - 1])
        chosen += window[first:]
        done = begin + len(window)
    return np.concatenate(rows), np.array(chosen)


def run(program, *arguments):
    command = [program, "perplexity", *arguments, "--json", "--isa", "reference", "--kv-cache-dtype", "f32", "--context",
               str(CONTEXT), "--stride", str(STRIDE)]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=250)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def main():
    program, demo, work = sys.argv[1:]
    os.makedirs(work, exist_ok=True)
    tokenizer = Tokenizer.load(demo)
    prompts = [golden["prompt"] + golden["greedy_text"] for golden in json.loads((pathlib.Path(demo) / "golden.json").read_text())]
    tokens = tokenizer.encode("".join(prompts))[:NUM_TOKENS]
    text = pathlib.Path(work) / "text.txt"
    text.write_text(tokenizer.decode(tokens))
    tokens = tokenizer.encode(text.read_text())
    coarse = pathlib.Path(work) / "coarse"
    write_coarse_copy(demo, coarse)

    p, chosen = scored_rows(ReferenceModel.load(demo), tokens)
    q, _ = scored_rows(ReferenceModel.load(coarse), tokens)
    at = np.arange(len(chosen))
    nll, kl = -p[at, chosen], (np.exp(p) * (p - q)).sum(axis=1)
    change = np.exp(q[at, chosen]) - np.exp(p[at, chosen])
    alone, both = run(program, demo, text), run(program, coarse, text, "--reference", demo)
    compared = both["reference"]
    ok = True
    for name, got, expected in (
            ("scored tokens", alone["scored_tokens"], len(chosen)), ("nll", alone["nll"], nll.mean()),
            ("its error", alone["nll_error"], nll.std(ddof=1) / len(nll) ** 0.5),
            ("perplexity", alone["perplexity"], np.exp(nll.mean())), ("nll of the reference", compared["nll"], nll.mean()),
            ("nll of the copy", both["nll"], -q[at, chosen].mean()), ("KL mean", compared["kl_mean"], kl.mean()),
            ("its error", compared["kl_mean_error"], kl.std(ddof=1) / len(kl) ** 0.5),
            ("KL median", compared["kl_median"], np.sort(kl)[(len(kl) + 1) // 2 - 1]), ("KL max", compared["kl_max"], kl.max()),
            ("same top", compared["same_top"], (p.argmax(1) == q.argmax(1)).mean()),
            ("p change", compared["p_change"], change.mean()), ("p change rms", compared["p_change_rms"], (change**2).mean() ** 0.5)):
        good = abs(got - expected) <= BOUND * abs(expected)
        ok &= bool(good)
        print(f"{name:22} {got:.9g} expected {expected:.9g}  {'ok' if good else 'WRONG'}")
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
