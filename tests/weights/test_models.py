"""Whole models: what make_model writes in every format, what the quantizer makes of them, and that llama.cpp, where it
is installed, loads the files and says what the demo model says.  usage: test_models.py WEIGHTS_PROBE MAKE_MODEL"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../peers"))
import ggml  # noqa: E402
import llama  # noqa: E402

PROBE, MAKE_MODEL = sys.argv[1:3]
DEMO = os.path.join(HERE, "../../models/demo")
# Query and key heads of the shapes whose GGUF files interleave rotary rows.
TINY = ["tiny-llama2", "tiny-llama3", "tiny-mistral", "tiny-qwen2", "tiny-qwen2-window", "tiny-qwen3", "tiny-mqa",
        "tiny-bias", "tiny-linear", "tiny-yarn", "tiny-head40", "tiny-head80", "tiny-head6"]
# llama_ftype.
MIXES = {"Q8_0": 7, "Q4_0": 2, "Q4_1": 3, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K_M": 12, "Q4_K_M": 15, "Q5_K_M": 17,
         "Q6_K": 18, "IQ4_NL": 25}
LAYER_NAMES = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
               "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
               "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
               "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
MODEL_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def gguf_name(name):
    stem, part = name.rsplit(".", 1)
    if stem in MODEL_NAMES:
        return f"{MODEL_NAMES[stem]}.{part}"
    _, _, layer, role = stem.split(".", 3)
    return f"blk.{layer}.{LAYER_NAMES[role]}.{part}"


def make(shape, path, *options):
    subprocess.run([MAKE_MODEL, shape, path, "-q", *options], check=True)
    return path


def convert(source, path, kind):
    return subprocess.run([PROBE, "convert", source, path, kind], check=True, stdout=subprocess.PIPE, text=True).stdout


def tensors(path):
    lines = subprocess.run([PROBE, "list", path], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return {name: (kind, [int(d) for d in shape]) for name, kind, *shape in map(str.split, lines)}


def floats(path, name, shape):
    data = subprocess.run([PROBE, "floats", path, name], check=True, stdout=subprocess.PIPE).stdout
    return np.frombuffer(data, np.float32).reshape(shape)


def interleave(rows, head_dim):
    """Pairs that rotate together, half a head apart in Hugging Face's files, become neighbours."""
    heads = rows.reshape(-1, 2, head_dim // 2, *rows.shape[1:])
    return heads.swapaxes(1, 2).reshape(rows.shape)


class Models(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def check_same(self, folder, file, head_dim):
        """A folder and a GGUF file hold the same model; head_dim 0 where rows keep their places."""
        in_folder, in_file = tensors(folder), tensors(file)
        self.assertEqual({gguf_name(name) for name in in_folder}, set(in_file))
        for name, (kind, shape) in in_folder.items():
            wanted = floats(folder, name, shape)
            if head_dim and ("q_proj" in name or "k_proj" in name):
                wanted = interleave(wanted, head_dim)
            got_kind, got_shape = in_file[gguf_name(name)]
            self.assertEqual(got_shape, shape, name)
            np.testing.assert_array_equal(floats(file, gguf_name(name), shape), wanted, name)

    def test_every_format_holds_the_same_model(self):
        for shape in ("tiny-llama3", "tiny-bias", "tiny-qwen3", "tiny-head6"):
            with self.subTest(shape):
                folder = make(shape, self.path(shape), "-t", "F32")
                with open(os.path.join(folder, "config.json")) as file:
                    config = json.load(file)
                head_dim = config["head_dim"] if config["model_type"] == "llama" else 0
                self.check_same(folder, make(shape, self.path("made.gguf"), "-t", "F32"), head_dim)
                convert(folder, self.path("converted.gguf"), "F32")
                self.check_same(folder, self.path("converted.gguf"), head_dim)

    def test_shards_threads_and_seeds(self):
        whole = make("tiny-qwen2", self.path("whole"))
        shards = make("tiny-qwen2", self.path("shards"), "--shards", "4", "--threads", "3")
        other = make("tiny-qwen2", self.path("other"), "--seed", "2")
        self.assertEqual(sum(name.endswith(".safetensors") for name in os.listdir(shards)), 4)
        self.assertEqual(tensors(whole), tensors(shards))
        for name, (kind, shape) in tensors(whole).items():
            np.testing.assert_array_equal(floats(whole, name, shape), floats(shards, name, shape), name)
            self.assertFalse(np.array_equal(floats(whole, name, shape), floats(other, name, shape)), name)

    def test_weights_keep_activations_in_range(self):
        folder = make("tiny-llama2", self.path("m"), "-t", "F32")
        for name, (kind, shape) in tensors(folder).items():
            values = floats(folder, name, shape)
            if len(shape) == 2:
                unit = 1 / np.sqrt(shape[1]) * (3 if "embed" in name or "lm_head" in name else 1)
                self.assertAlmostEqual(values.std() / unit, 1, delta=0.02, msg=name)
                self.assertLess(abs(values.mean()), 0.02 * unit, name)
                self.assertLess(abs(np.corrcoef(values[0], values[1])[0, 1]), 0.35, name)
            else:
                self.assertAlmostEqual(values.mean(), 1, delta=0.05, msg=name)

    def test_fallbacks_are_said(self):
        notes = convert(make("tiny-head40", self.path("m")), self.path("m.gguf"), "Q4_K_M")
        self.assertIn("blk.0.attn_q.weight is Q5_0 instead of Q4_K, whose blocks of 256 do not divide its rows of 160", notes)
        self.assertEqual(tensors(self.path("m.gguf"))["output.weight"][0], "Q8_0")

    def check_mix(self, library, source, kind, head):
        """Our file and llama.cpp's of the same mix: the same types, and the same weights in the first `head` tensors."""
        convert(source, self.path("ours.gguf"), kind)
        self.assertTrue(llama.quantize(library, source, self.path("theirs.gguf"), MIXES[kind]))
        ours, theirs = tensors(self.path("ours.gguf")), tensors(self.path("theirs.gguf"))
        self.assertEqual(ours, theirs)
        for name, (_, shape) in list(ours.items())[:head]:
            np.testing.assert_array_equal(floats(self.path("ours.gguf"), name, shape),
                                          floats(self.path("theirs.gguf"), name, shape), name)

    @unittest.skipUnless(llama.available(), ggml.MISSING)
    def test_mixes_are_those_of_llama_cpp(self):
        library = llama.Library()
        for shape in ("tiny-llama3", "tiny-mqa", "tiny-head40", "tiny-head6"):
            source = make(shape, self.path("f32.gguf"), "-t", "F32")
            for kind in MIXES:
                with self.subTest(shape=shape, kind=kind):
                    self.check_mix(library, source, kind, 12 if shape == "tiny-llama3" else 0)

    @unittest.skipUnless(llama.available(), ggml.MISSING)
    def test_mixes_of_deep_models_are_those_of_llama_cpp(self):
        """Rules count layers, and 80 of them are called 70B whatever their width. Rows of 160: the fallbacks tell the types
        apart."""
        library = llama.Library()
        for layers in ("33", "80"):
            source = make("tiny-head40", self.path("f32.gguf"), "-t", "F32", "--layers", layers)
            for kind in ("Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "IQ4_NL"):
                with self.subTest(layers=layers, kind=kind):
                    self.check_mix(library, source, kind, 0)

    @unittest.skipUnless(llama.available(), ggml.MISSING)
    def test_llama_cpp_loads_every_shape(self):
        library = llama.Library()
        for shape in TINY:
            for kind in ("F32", "Q4_K_M", "Q3_K_M"):
                with self.subTest(shape=shape, kind=kind):
                    path = make(shape, self.path("m.gguf"), "-t", kind)
                    model = llama.Model(library, path, threads=1, n_ctx=64)
                    ids = model.tokenize("The rain in Spain, 1234!\n", add_special=True)
                    model.clear()
                    model.decode([(token, i, 0, i == len(ids) - 1) for i, token in enumerate(ids)])
                    logits = np.array(model.logits(len(ids) - 1))
                    self.assertTrue(np.isfinite(logits).all())
                    self.assertTrue(1 < logits.std() < 10, logits.std())
                    model.close()

    @unittest.skipUnless(llama.available(), ggml.MISSING)
    def test_llama_cpp_says_what_the_demo_model_says(self):
        convert(DEMO, self.path("demo.gguf"), "F32")
        with open(os.path.join(DEMO, "golden.json")) as file:
            golden = json.load(file)
        model = llama.Model(llama.Library(), self.path("demo.gguf"), threads=1, n_ctx=2048)
        for case in golden:
            with self.subTest(case["name"]):
                ids = model.tokenize(case["prompt"])
                self.assertEqual(ids, case["prompt_ids"])
                model.clear()
                model.decode([(token, i, 0, i == len(ids) - 1) for i, token in enumerate(ids)])
                row, said = len(ids) - 1, []
                for step in range(min(24, len(case["greedy_ids"]))):
                    said.append(int(np.argmax(model.logits(row))))
                    model.decode([(said[-1], len(ids) + step, 0, True)])
                    row = 0
                self.assertEqual(said, case["greedy_ids"][:len(said)])
        model.close()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
