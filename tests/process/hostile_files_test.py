#!/usr/bin/env python3
"""Model files from somebody who means harm (security.md 7 and 16 to 19): each ends with status 1 and one line that names
the file, in little time and memory. The parsers have unit tests and fuzzers of their own; this is the whole program.

usage: hostile_files_test.py PROGRAM [unittest arguments]
"""
import json
import os
import pathlib
import random
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

import numpy as np

from serving import SANITIZED

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "weights"))
import hf_formats

PROGRAM = None  # set by main
DEMO = pathlib.Path(__file__).resolve().parent.parent.parent / "models" / "demo"
SEED = 20240612
ADDRESS_SPACE = 2 << 30  # the demo model and its program need a tenth
TEXT_FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")


# The matrices of a layer, and the one that is damaged. Neighbours read the same inputs, so their columns are in one order.
PROJECTIONS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
               "mlp.up_proj", "mlp.down_proj")
DAMAGED = "model.layers.2.mlp.down_proj"


def read_safetensors(path):
    """→ {name: (dtype, shape, bytes)}"""
    data = path.read_bytes()
    length, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    return {name: (tensor["dtype"], tensor["shape"], data[8 + length:][slice(*tensor["data_offsets"])])
            for name, tensor in header.items()}


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


# Ways to damage one tensor (dtype, shape, bytes); None: the tensor is gone.

def value(number, format, index=0):
    """Writes `number` in place of an element."""
    def change(tensor):
        dtype, shape, data = tensor
        changed = bytearray(data)
        struct.pack_into("<" + format, changed, index * struct.calcsize(format), number)
        return dtype, shape, bytes(changed)
    return change


def dtype(name):
    return lambda tensor: (name, *tensor[1:])


def first_rows(count):
    """So many, or so many fewer where it is negative."""
    def change(tensor):
        kind, (rows, *rest), data = tensor
        left = count if count > 0 else rows + count
        return kind, [left, *rest], data[:len(data) // rows * left]
    return change


def gone(tensor):
    return None


BF16_NAN, F16_NAN, F16_INFINITY = 0x7FC0, 0x7E00, 0x7C00
DAMAGES = {
    "awq-32": [(".scales", value(F16_NAN, "H", 700)), (".scales", value(F16_INFINITY, "H")), (".scales", dtype("I16")),
               (".scales", first_rows(-1)), (".scales", gone), (".qzeros", gone), (".qzeros", first_rows(1)),
               (".qweight", first_rows(-8)), (".qweight", dtype("F32"))],
    "gptq-4-desc-act": [(".g_idx", value(16, "i", 100)), (".g_idx", value(-1, "i")), (".g_idx", value(2**31 - 1, "i", 511)),
                        (".g_idx", first_rows(-1)), (".g_idx", dtype("F32")), (".scales", value(F16_NAN, "H", 9)),
                        (".scales", gone), (".qzeros", first_rows(-1)), (".qzeros", gone), (".qweight", first_rows(-1))],
    "w4a16": [(".weight_shape", value(2**62, "q")), (".weight_shape", value(-256, "q")), (".weight_shape", value(0, "q", 1)),
              (".weight_shape", first_rows(1)), (".weight_shape", gone), (".weight_scale", value(BF16_NAN, "H", 77)),
              (".weight_scale", first_rows(-1)), (".weight_scale", gone), (".weight_packed", first_rows(-1)),
              (".weight_packed", dtype("F32"))],
    "w4a16-g-idx": [(".weight_g_idx", value(16, "i", 3)), (".weight_g_idx", value(-2**31, "i")),
                    (".weight_g_idx", first_rows(-1))],
    "w8a8": [(".weight_scale", value(float("inf"), "f", 255)), (".weight_scale", value(float("nan"), "f")),
             (".weight_scale", first_rows(-1)), (".weight_scale", gone), (".weight", first_rows(-1))],
    "fp8-tensor": [(".weight", value(0x7F, "B", 5000)), (".weight", first_rows(-1)),
                   (".weight_scale", value(float("nan"), "f")), (".weight_scale", dtype("I32")), (".weight_scale", gone)],
    "fp8-block": [(".weight", value(0xFF, "B")), (".weight_scale_inv", value(float("inf"), "f", 7)),
                  (".weight_scale_inv", first_rows(-1)), (".weight_scale_inv", gone)],
}


def limit_address_space():
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))


class HostileFilesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.model = self.folder / "model"
        shutil.copytree(DEMO, self.model)

    def run_model(self, model, *arguments):
        run = subprocess.run([PROGRAM, "run", str(model), "-p", "Hello", "--max-tokens", "2", "--kv-memory", "16MiB",
                              "--threads", "1", *arguments], capture_output=True, timeout=60,
                             preexec_fn=None if SANITIZED else limit_address_space)
        self.assertIn(run.returncode, (0, 1, 2), run.stderr)
        return run.returncode, run.stderr.decode()

    def assert_refused(self, model, *arguments, words=""):
        status, stderr = self.run_model(model, *arguments)
        self.assertEqual(status, 1, stderr)
        self.assertEqual(len(stderr.splitlines()), 1, stderr)
        self.assertLess(len(stderr), 1000)
        self.assertIn(words, stderr)

    def change(self, name, change):
        """The demo's JSON file after `change`, which takes what is in it and changes that or gives something else."""
        value = json.loads((DEMO / name).read_text())
        changed = change(value)
        (self.model / name).write_text(json.dumps(value if changed is None else changed))

    def test_what_is_no_file(self):
        for name in (*TEXT_FILES, "model.safetensors"):
            path = self.model / name
            kinds = {"nothing": lambda: path.write_bytes(b""), "noise": lambda: path.write_bytes(random.randbytes(1000)),
                     "a folder": path.mkdir, "a FIFO": lambda: os.mkfifo(path), "itself": lambda: path.symlink_to(path),
                     "/dev/zero": lambda: path.symlink_to("/dev/zero"), "/proc": lambda: path.symlink_to("/proc/self/mem")}
            for kind, make in kinds.items():
                with self.subTest(name=name, kind=kind):
                    path.rmdir() if path.is_dir() else path.unlink()
                    make()
                    self.assert_refused(self.model, words=str(self.model))
            path.unlink()
            shutil.copy(DEMO / name, path)

    def test_what_is_no_model(self):
        empty = self.folder / "empty"
        empty.mkdir()
        fifo = self.folder / "fifo.gguf"
        os.mkfifo(fifo)
        device = self.folder / "device.gguf"
        device.symlink_to("/dev/zero")
        nothing = self.folder / "nothing.gguf"
        nothing.write_bytes(b"")
        for path in (empty, fifo, device, nothing, "/dev/zero", "/etc/passwd"):
            with self.subTest(path=path):
                self.assert_refused(path, words=str(path))

    def test_spoilt_weights(self):
        print("seed", SEED, file=sys.stderr)
        chance = random.Random(SEED)
        gguf = self.folder / "model.gguf"
        subprocess.run([PROGRAM, "quantize", DEMO, gguf, "--type", "Q4_K_M"], check=True, capture_output=True)
        safetensors = self.model / "model.safetensors"
        whole = {gguf: gguf.read_bytes(), safetensors: safetensors.read_bytes()}
        for i in range(80):
            path = chance.choice([gguf, safetensors])
            data = bytearray(whole[path])
            # In most cases where the metadata are.
            place = lambda: chance.randrange(chance.choice([64, 4096, 60_000, len(data)]))
            with self.subTest(i=i, path=path.name):
                if chance.random() < 0.3:
                    del data[chance.choice([place(), len(data) - chance.randrange(1, 64)]):]
                else:
                    for _ in range(chance.choice([1, 1, 8])):
                        at = place()
                        data[at:at + 8] = chance.choice([b"\xff" * 8, bytes(8), bytes([data[at] ^ 1 << chance.randrange(8)])
                                                         + data[at + 1:at + 8]])
                path.write_bytes(data)
                model = path if path is gguf else self.model
                status, stderr = self.run_model(model)
                if status != 0:  # what hits a weight or a word of the vocabulary is no fault of form
                    self.assert_refused(model, words=str(model))
            path.write_bytes(whole[path])

    def quantise(self, case):
        """Gives self.model random weights in a quantised layout: they say nothing, but they load. → its tensors"""
        rng, tensors = np.random.default_rng(SEED), read_safetensors(DEMO / "model.safetensors")
        for layer in range(6):
            for place, projection in enumerate(PROJECTIONS):
                stem = f"model.layers.{layer}.{projection}"
                _, (rows, columns), _ = tensors.pop(stem + ".weight")
                order_seed = {0: 0, 1: 0, 2: 0, 3: 1, 4: 2, 5: 2, 6: 3}[place]
                for suffix, tensor in case.make(rng, rows, columns, order_seed)[0].items():
                    tensors[stem + suffix] = tensor
        self.change("config.json", lambda config: config.update(quantization_config=case.config))
        return tensors

    def assert_server_refuses(self, words):
        run = subprocess.run([PROGRAM, "serve", str(self.model), "--port", "0", "--kv-memory", "16MiB", "--threads", "1"],
                             capture_output=True, timeout=60, preexec_fn=None if SANITIZED else limit_address_space)
        stderr = run.stderr.decode()
        self.assertEqual(run.returncode, 1, stderr)
        last = stderr.splitlines()[-1]  # before it may stand what the log says of the engine's process
        self.assertTrue(last.startswith("quire serve: "), stderr)
        self.assertLess(len(last), 1000)
        self.assertIn(words, last)
        self.assertIn(str(self.model), last)

    def test_damaged_quantised_layouts(self):
        for name, damages in DAMAGES.items():
            tensors = self.quantise(hf_formats.CASES[name])
            write_safetensors(self.model / "model.safetensors", tensors)
            status, stderr = self.run_model(self.model)
            self.assertEqual(status, 0, f"{name}, undamaged: {stderr}")
            for i, (suffix, damage) in enumerate(damages):
                with self.subTest(name=name, suffix=suffix, i=i):
                    damaged = dict(tensors)
                    changed = damage(damaged.pop(DAMAGED + suffix))
                    if changed is not None:
                        damaged[DAMAGED + suffix] = changed
                    write_safetensors(self.model / "model.safetensors", damaged)
                    self.assert_server_refuses(DAMAGED)

    def test_absurd_configurations(self):
        numbers = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                   "num_key_value_heads", "head_dim", "max_position_embeddings")
        for field in numbers:
            for value in (-1, 0, 2**31 - 1, 2**31, 2**63, 1e308, 0.5, "x", [], {}, True):
                with self.subTest(field=field, value=value):
                    self.change("config.json", lambda config: config.update({field: value}))
                    status, stderr = self.run_model(self.model)
                    # The one that may be large: a longer context than was trained needs more memory, no other file.
                    if field == "max_position_embeddings" and value == 2**31 - 1:
                        continue
                    self.assertEqual(status, 1, stderr)
                    self.assertEqual(len(stderr.splitlines()), 1, stderr)
                    self.assertIn(str(self.model), stderr)

    def test_templates_without_end(self):
        for source in ("{% for i in range(10**9) %}{% for j in range(10**9) %}x{% endfor %}{% endfor %}",
                       "{{ 'x' * 10000000000 }}", "{{ [0] * 1000000000 }}", "{{ 9**9**9 }}", "{{ '%1000000000d' % 1 }}",
                       "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
                       "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
                       "{{ " + "(" * 100_000 + " }}", "{% if 1 %}" * 100_000, "{% include '/etc/passwd' %}",
                       "{{ ''.__class__.__mro__[1].__subclasses__() }}"):
            with self.subTest(source=source[:80]):
                self.change("tokenizer_config.json", lambda config: config.update({"chat_template": source}))
                self.assert_refused(self.model, "--chat")

    def test_broken_tokenizers(self):
        def model(**fields):
            return lambda tokenizer: tokenizer["model"].update(fields)

        def top(**fields):
            return lambda tokenizer: tokenizer.update(fields)

        split = {"type": "Split", "behavior": "Isolated", "invert": False}
        for change in (top(model=None), top(model=[]), top(added_tokens={}), top(pre_tokenizer={"type": "None such"}),
                       top(normalizer={"type": "Sequence", "normalizers": 1}), top(decoder=7), model(vocab=[]),
                       model(vocab={"a": -1}), model(vocab={"a": 2**40}), model(vocab={"a": 1e9}), model(merges=["a"]),
                       model(merges=[["zz", "qq"]]), model(merges=[[1, 2]]), model(type="Quantum"),
                       lambda tokenizer: tokenizer["model"]["vocab"].update({"a new word": 10**8}),
                       lambda tokenizer: tokenizer["added_tokens"][0].update({"id": 10**9}),
                       lambda tokenizer: tokenizer["added_tokens"][0].update({"id": -1}),
                       top(pre_tokenizer={**split, "pattern": {"Regex": "(" * 100_000 + ")" * 100_000}})):
            self.change("tokenizer.json", change)
            self.assert_refused(self.model, words="tokenizer.json")


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main(verbosity=2)
