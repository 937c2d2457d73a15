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
import subprocess
import sys
import tempfile
import unittest

from serving import SANITIZED

PROGRAM = None  # set by main
DEMO = pathlib.Path(__file__).resolve().parent.parent.parent / "models" / "demo"
SEED = 20240612
ADDRESS_SPACE = 2 << 30  # the demo model and its program need a tenth
TEXT_FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")


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
