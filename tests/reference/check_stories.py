#!/usr/bin/env python3
"""The public stories260K model (a GGUF of the llama family, F32): quire's greedy text must equal the numpy model's, and
be English.   usage: check_stories.py PROGRAM MODEL.gguf

Exits 77 (skipped) when the model is not there.
"""
import pathlib
import re
import subprocess
import sys

from reference_model import ReferenceModel, read_gguf

COUNT = 120
# What the model is known to say: the story of the 260K model begins so wherever it was published.
BEGINNING = ("Once upon a time, there was a little girl named Lily. She loved to play outside in the park. "
             "One day, she saw a big, red ball. She wanted to play with it, but it was too high.")
COMMON = set("a and she he the to was in it her his they with had day you said that of so there is on for one "
             "big little girl boy named loved play very happy saw wanted mom time not but them park outside".split())


def encode(texts, prompt):
    """SentencePiece BPE would merge by score; for these few words the longest match from the left is the same."""
    ids, rest = [1], "▁" + prompt.replace(" ", "▁")
    while rest:
        match = max((t for t in texts if rest.startswith(t)), key=len)
        ids.append(texts.index(match))
        rest = rest[len(match):]
    return ids


def main():
    program, path = sys.argv[1:]
    if not pathlib.Path(path).exists():
        print(f"skipped: {path} is not there")
        sys.exit(77)
    texts = read_gguf(path)[0]["tokenizer.ggml.tokens"]
    model = ReferenceModel.load(path)
    prompt = encode(texts, "Once upon a time")
    tokens = list(prompt)
    for _ in range(COUNT):
        tokens.append(int(model.logits(tokens)[-1].argmax()))
    expected = tokens[len(prompt):]

    ok = True
    for isa, kv in (("reference", "f32"), ("auto", "f32"), ("auto", "bf16")):
        done = subprocess.run([program, path, isa, kv, "0", "0", "2", "greedy", str(COUNT), *map(str, prompt)],
                              capture_output=True, text=True, timeout=200)
        got = [int(line) for line in done.stdout.split()]
        same = next((i for i, (a, b) in enumerate(zip(got, expected)) if a != b), min(len(got), COUNT))
        # BF16 keys may turn a near tie later on; the exact ones may not.
        enough = COUNT if kv == "f32" else 30
        print(f"{isa} {kv}: {same} of {COUNT} tokens equal {done.stderr.strip()}")
        ok &= same >= enough
    text = "".join(texts[t] for t in tokens[1:])
    text = re.sub("<0x(..)>", lambda m: chr(int(m.group(1), 16)), text).replace("▁", " ").strip()
    print(text)
    words = re.findall("[a-z]+", text.lower())
    share = sum(word in COMMON for word in words) / len(words)
    if not text.startswith(BEGINNING) or share < 0.4:
        print(f"not the story that is known ({share:.0%} common words)")
        ok = False
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
