"""Quantised Hugging Face folders against numpy (hf_formats.py): every layout as floats and as the panels hold it, bit for
bit; and converted to GGUF.  usage: test_hf_formats.py WEIGHTS_PROBE MAKE_MODEL"""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import hf_formats

PROBE, MAKE_MODEL = sys.argv[1:3]
SEED = 20250611
STEM = "model.layers.0.mlp.up_proj"
CONFIG = {"architectures": ["LlamaForCausalLM"], "vocab_size": 8, "hidden_size": 64, "intermediate_size": 96,
          "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 16, "eos_token_id": 1}


def write_folder(folder, quantization, tensors, config=CONFIG):
    """`tensors`: {name: (dtype, shape, bytes)}"""
    header, blob = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(blob), len(blob) + len(data)]}
        blob += data
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + blob)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({**config, "quantization_config": quantization}, file)


def read_folder(folder):
    """→ the entries of model.safetensors, as write_folder takes them"""
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        raw = file.read()
    (size,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    data = raw[8 + size:]
    return {name: (e["dtype"], e["shape"], data[slice(*e["data_offsets"])]) for name, e in header.items()}


def interleave(rows, head_dim):
    """Pairs that rotate together, half a head apart in Hugging Face's files, become neighbours in GGUF's."""
    heads = rows.reshape(-1, 2, head_dim // 2, rows.shape[1])
    return heads.swapaxes(1, 2).reshape(rows.shape)


def read_matrix(folder, shape):
    done = subprocess.run([PROBE, "matrix", folder, STEM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.decode())
    floats, panels = np.frombuffer(done.stdout, np.float32).reshape(2, *shape)
    return floats, panels, done.stderr.decode().split(" ", 1)


class HfFormats(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_every_layout(self):
        for number, (name, case) in enumerate(hf_formats.CASES.items()):
            for rows, columns in ((64, 256), (32, 192), (160, 64)):
                with self.subTest(name, rows=rows, columns=columns):
                    rng = np.random.default_rng([SEED, number, rows])
                    tensors, weights, order = case.make(rng, rows, columns)
                    write_folder(self.folder, case.config, {STEM + suffix: t for suffix, t in tensors.items()})
                    floats, panels, (panel, reordered) = read_matrix(self.folder, weights.shape)
                    np.testing.assert_array_equal(floats, weights, f"{name}, seed {SEED}")
                    np.testing.assert_array_equal(panels, weights, f"{name} in panels, seed {SEED}")
                    self.assertEqual(panel, case.panel)
                    self.assertEqual(reordered.strip(), "in order" if order is None else "reordered")

    def test_matrices_that_were_left_alone(self):
        weights = np.random.default_rng(SEED).standard_normal((4, 6)).astype(np.float32)
        for name, case in hf_formats.CASES.items():
            with self.subTest(name):
                write_folder(self.folder, case.config, {STEM + ".weight": hf_formats.entry("F32", weights)})
                np.testing.assert_array_equal(read_matrix(self.folder, weights.shape)[0], weights)

    def damaged(self, name, change):
        """The error after `change` spoilt the tensors, {suffix: [dtype, shape, bytearray]}, or the configuration."""
        case = hf_formats.CASES[name]
        tensors, weights, _ = case.make(np.random.default_rng(SEED), 64, 256)
        editable = {suffix: [dtype, list(shape), bytearray(data)] for suffix, (dtype, shape, data) in tensors.items()}
        config = json.loads(json.dumps(case.config))
        change(editable, config)
        write_folder(self.folder, config, {STEM + suffix: (d, s, bytes(b)) for suffix, (d, s, b) in editable.items()})
        with self.assertRaises(RuntimeError) as caught:
            read_matrix(self.folder, weights.shape)
        return str(caught.exception)

    def test_damage_is_named(self):
        def put(suffix, at, data):
            def change(tensors, config):
                tensors[suffix][2][at:at + len(data)] = data
            return change

        def drop(suffix):
            return lambda tensors, config: tensors.pop(suffix)

        def shape(suffix, new):
            def change(tensors, config):
                tensors[suffix][1] = new
            return change

        def setting(key, value):
            return lambda tensors, config: config.update({key: value})

        def retype(suffix, dtype):
            def change(tensors, config):
                tensors[suffix][0] = dtype
            return change

        nan16, inf16, nan32 = b"\x00\x7e", b"\x00\x7c", struct.pack("<f", float("nan"))
        for name, change, wanted in [
                ("awq-32", put(".scales", 6, nan16), "up_proj.scales: element 3 is nan"),
                ("awq-32", put(".scales", 0, inf16), "up_proj.scales: element 0 is inf"),
                ("awq-32", put(".scales", 0, b"\0\0"), "up_proj.qweight: the scale of row 0, group 0 is zero"),
                ("awq-32", drop(".qzeros"), "up_proj.qzeros is missing"),
                ("awq-32", shape(".qzeros", [4, 16]), "up_proj.qzeros has shape [4, 16]; [8, 8] is wanted"),
                ("awq-32", setting("group_size", 48), "groups of 48 do not divide 256 inputs"),
                ("awq-32", setting("group_size", 64), "up_proj.qzeros has shape [8, 8]; [4, 8] is wanted"),
                ("awq-32", setting("group_size", 0), "\"group_size\" is 0"),
                ("awq-32", setting("bits", 8), "AWQ with 8 bits is not supported; 4 are"),
                ("awq-32", setting("version", "gemv"), "version \"gemv\" is not supported; gemm is"),
                ("awq-32", setting("quant_method", "aqlm"), "\"aqlm\" is not supported; awq, gptq,"),
                ("awq-32", retype(".qweight", "F32"), "up_proj.qweight has the type F32; I32 is wanted"),
                ("gptq-4", put(".g_idx", 8, struct.pack("<i", 8)), "up_proj.g_idx: element 2 is 8; there are 8 groups"),
                ("gptq-4", put(".g_idx", 8, struct.pack("<i", -2)), "up_proj.g_idx: element 2 is -2"),
                ("gptq-4", setting("bits", 5), "GPTQ with 5 bits is not supported; 2, 3, 4 and 8 are"),
                ("gptq-4", setting("bits", 3), "do not hold whole codes of 3 bits"),
                ("gptq-4", setting("bits", 8), "up_proj.qzeros has shape"),
                ("gptq-4", setting("checkpoint_format", "marlin"), "\"marlin\" is not supported; gptq, gptq_v2 are"),
                ("gptq-4", put(".scales", 2, nan16), "up_proj.scales: element 1 is nan"),
                ("w8a8", put(".weight_scale", 4, nan32), "up_proj.weight_scale: element 1 is nan"),
                ("w8a8", put(".weight_scale", 4, bytes(4)), "the scale of row 1, group 0 is zero"),
                ("w8a8", drop(".weight_scale"), "up_proj.weight_scale is missing"),
                ("w8a8", setting("format", "marlin-24"), "format \"marlin-24\" is not supported; dense, int-quantized"),
                ("w4a16", put(".weight_shape", 8, struct.pack("<q", 512)), "of none of the 1 schemes"),
                ("w4a16", put(".weight_shape", 8, struct.pack("<q", 1 << 40)), "is out of range"),
                ("w4a16", put(".weight_shape", 0, struct.pack("<q", 63)), "says [63, 256], but"),
                ("w4a16", setting("transform_config", {"a": 1}), "\"transform_config\" is not supported"),
                ("w4a16-asym-i8", put(".weight_zero_point", 3, b"\x08"), "the zero point 8 is out of the range of 4 bits"),
                ("w4a16-g-idx", put(".weight_g_idx", 0, struct.pack("<i", 9)), "up_proj.weight_g_idx: element 0 is 9"),
                ("fp8-tensor", put(".weight", 257, b"\x7f"), "up_proj.weight: row 1, column 1 is nan"),
                ("fp8-tensor", put(".weight", 5, b"\xff"), "up_proj.weight: row 0, column 5 is"),
                ("fp8-e5m2", put(".weight", 5, b"\x7c"), "up_proj.weight: row 0, column 5 is inf"),
                ("fp8-tensor", put(".weight_scale", 0, bytes(4)), "its scale is zero"),
                ("fp8-tensor", drop(".weight_scale"), "up_proj.weight_scale is missing"),
                ("fp8-block", setting("weight_block_size", [32, 128]), "has shape [1, 2]; [2, 2] is wanted"),
                ("fp8-block", setting("weight_block_size", [128]), "a pair like [128, 128] is wanted"),
                ("llm-int8", drop(".SCB"), "up_proj.SCB is missing"),
                ("llm-int8", put(".weight_format", 0, b"\x02"), "only the format 0"),
                ("nf4", put(".weight.absmax", 4, nan32), "up_proj.weight.absmax: element 1 is nan"),
                ("nf4", put(".weight.quant_state.bitsandbytes__nf4", 0, b"x"), "bitsandbytes__nf4"),
                ("nf4", drop(".weight.quant_map"), "quant_map is missing"),
                ("nf4-nested", drop(".weight.nested_absmax"), "nested_absmax is missing"),
                ("nf4-nested", put(".weight.nested_absmax", 0, nan32), "nested_absmax: element 0 is nan"),
                ("sparse-bf16", put(".bitmask", 3, b"\xff"), "up_proj.bitmask: row 0, column 24: two of four"),
                ("sparse-bf16", shape(".bitmask", [32, 64]), "up_proj.bitmask has shape [32, 64]; [64, 32] is wanted"),
                ("sparse-int8", drop(".weight_scale"), "up_proj.weight_scale is missing"),
        ]:
            with self.subTest(name, wanted=wanted):
                self.assertIn(wanted, self.damaged(name, change))

    def test_conversion_to_gguf(self):
        made = os.path.join(self.folder, "made")
        subprocess.run([MAKE_MODEL, "tiny-llama3", made, "-q", "-t", "F32"], check=True)
        with open(os.path.join(made, "config.json")) as file:
            config = json.load(file)
        plain = read_folder(made)
        gguf_names = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output",
                      "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}
        for name in ("awq-32", "gptq-4-desc-act", "w8a8-tensor", "w4a16-asym", "fp8-tensor", "nf4-nested", "llm-int8",
                     "sparse-int8"):
            with self.subTest(name):
                case, rng = hf_formats.CASES[name], np.random.default_rng(SEED)
                folder = os.path.join(self.folder, name)
                shutil.copytree(made, folder)
                tensors, expected = {}, {}
                for key, entry in plain.items():
                    stem, part = key.rsplit(".", 1)
                    if not stem.endswith("_proj"):
                        tensors[key] = entry
                        continue
                    stored, weights, _ = case.make(rng, *entry[1])
                    tensors |= {stem + suffix: t for suffix, t in stored.items()}
                    role = stem.rsplit(".", 1)[1]
                    if role in ("q_proj", "k_proj"):
                        weights = interleave(weights, config["head_dim"])
                    expected[f"blk.{stem.split('.')[2]}.{gguf_names[role]}.weight"] = weights
                write_folder(folder, case.config, tensors, config)
                output = os.path.join(self.folder, name + ".gguf")
                subprocess.run([PROBE, "convert", folder, output, "F32"], check=True)
                for key, weights in expected.items():
                    data = subprocess.run([PROBE, "floats", output, key], check=True, stdout=subprocess.PIPE).stdout
                    np.testing.assert_array_equal(np.frombuffer(data, np.float32), weights.reshape(-1), key)

    def test_a_scale_of_zero_is_good_for_zeros(self):
        case = hf_formats.CASES["w8a8"]
        tensors, weights, _ = case.make(np.random.default_rng(SEED), 64, 256)
        values = np.frombuffer(tensors[".weight"][2], np.int8).reshape(64, 256).copy()
        scales = np.frombuffer(tensors[".weight_scale"][2], "<f4").copy()
        values[5], scales[5], weights[5] = 0, 0, 0
        tensors |= {".weight": hf_formats.entry("I8", values), ".weight_scale": hf_formats.entry("F32", scales[:, None])}
        write_folder(self.folder, case.config, {STEM + suffix: t for suffix, t in tensors.items()})
        np.testing.assert_array_equal(read_matrix(self.folder, weights.shape)[0], weights)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
