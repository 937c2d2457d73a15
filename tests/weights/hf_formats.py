"""The quantised layouts of Hugging Face checkpoints, written by numpy from their published definitions. Nothing here
reads a layout: codes, scales and zero points are drawn, packed one way for the file, and multiplied out as the
definition says for what a reader has to get.

  case = CASES["gptq-4-desc-act"]
  tensors, weights, order = case.make(rng, rows, columns, order_seed)
                                                            {suffix: (dtype, shape, bytes)}, float32 [rows, columns], and
                                                            the order of the inputs that the panels use, or None
  case.config                                               for config.json: quantization_config
"""
import json

import numpy as np

F32 = np.float32


# ---- Numbers -------------------------------------------------------------------------------------------------------

def f16(values):
    return np.asarray(values, "<f2")


def bf16_bits(values):
    bits = np.asarray(values, F32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")


def bf16_value(bits):
    return (bits.astype(np.uint32) << 16).view(F32)


def rounded(values, dtype):
    """→ (what the file holds, what it is worth)"""
    if dtype == "F16":
        return f16(values), f16(values).astype(F32)
    if dtype == "BF16":
        return bf16_bits(values), bf16_value(bf16_bits(values))
    return np.asarray(values, "<f4"), np.asarray(values, F32)


def e4m3_values():
    codes = np.arange(256)
    exponent, mantissa = codes >> 3 & 15, (codes & 7).astype(float)
    values = np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0**(exponent - 7.0))
    values[codes & 127 == 127] = np.nan
    return np.where(codes >= 128, -values, values).astype(F32)


def e5m2_values():
    return (np.arange(256, dtype=np.uint16) << 8).view("<f2").astype(F32)


def entry(dtype, array):
    array = np.ascontiguousarray(array)
    return dtype, list(array.shape), array.tobytes()


def pack_bits(codes, bits):
    """[n, count] → words [n, ⌈count · bits / 32⌉]: the codes one after the other, lowest bit first."""
    stream = (codes[:, :, None] >> np.arange(bits) & 1).astype(np.uint8).reshape(len(codes), -1)
    stream = np.pad(stream, ((0, 0), (0, -stream.shape[1] % 32)))
    return np.packbits(stream, axis=1, bitorder="little").view("<u4").view("<i4")


def scales_for(rng, shape, columns, largest):
    """So that weights of codes up to `largest` keep activations in range."""
    return rng.uniform(0.5, 1.5, shape) * 2 / np.sqrt(columns) / largest


def shuffled(groups, seed):
    return np.random.default_rng(seed).permutation(groups)


def zero_points(rng, shape, bits, lowest=0):
    """Near the middle of the codes, as in real files, where weights have a mean of about zero; some anywhere."""
    high = 1 << bits
    near = np.clip(np.rint(high / 2 + rng.standard_normal(shape) * high / 16), lowest, high - 1).astype(int)
    return np.where(rng.random(shape) < 1 / 32, rng.integers(lowest, high, shape), near)


def per_column(values, groups):
    """[rows, num_groups] → [rows, columns]"""
    return values[:, groups]


# ---- AWQ -----------------------------------------------------------------------------------------------------------

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # the output in nibble i of a word


def awq_words(codes):
    """[n, out] → [n, out/8]"""
    words = np.zeros((codes.shape[0], codes.shape[1] // 8), np.uint32)
    for nibble, output in enumerate(AWQ_ORDER):
        words |= codes[:, output::8].astype(np.uint32) << np.uint32(4 * nibble)
    return words.view("<i4")


def make_awq(rng, rows, columns, group_size):
    size = columns if group_size == -1 else group_size
    codes, zeros = rng.integers(0, 16, (rows, columns)), zero_points(rng, (rows, columns // size), 4)
    stored, scales = rounded(scales_for(rng, zeros.shape, columns, 8), "F16")
    groups = np.arange(columns) // size
    weights = per_column(scales, groups) * (codes - per_column(zeros, groups)).astype(F32)
    tensors = {".qweight": entry("I32", awq_words(codes.T)), ".qzeros": entry("I32", awq_words(zeros.T)),
               ".scales": entry("F16", stored.T)}
    return tensors, weights, None


# ---- GPTQ ----------------------------------------------------------------------------------------------------------

def gptq_words(codes, bits):
    """[count, n] → words [count · bits / 32, n]. Three bits as AutoGPTQ spells them: 32 codes in three words."""
    if bits != 3:
        per_word = 32 // bits
        words = np.zeros((len(codes) // per_word, codes.shape[1]), np.uint32)
        for i in range(per_word):
            words |= codes[i::per_word].astype(np.uint32) << np.uint32(bits * i)
        return words.view("<i4")
    words = np.zeros((len(codes) // 32 * 3, codes.shape[1]), np.uint32)
    for block in range(len(codes) // 32):
        c = codes[32 * block:32 * block + 32].astype(np.uint32)
        first, second, third = words[3 * block:3 * block + 3]
        for j in range(10):
            first |= c[j] << np.uint32(3 * j)
            second |= c[11 + j] << np.uint32(3 * j + 1)
            third |= c[22 + j] << np.uint32(3 * j + 2)
        first |= c[10] << np.uint32(30)
        second |= c[10] >> np.uint32(2) & 1 | c[21] << np.uint32(31)
        third |= c[21] >> np.uint32(1) & 3
    return words.view("<i4")


def make_gptq(rng, rows, columns, bits, group_size, v1=True, sym=False, desc_act=False, with_g_idx=True,
              order_seed=0):
    size, high = columns if group_size == -1 else group_size, 1 << bits
    num_groups = columns // size
    codes = rng.integers(0, high, (rows, columns))
    zeros = np.full((rows, num_groups), high // 2) if sym else zero_points(rng, (rows, num_groups), bits, int(v1))
    stored, scales = rounded(scales_for(rng, zeros.shape, columns, high / 2), "F16")
    groups = np.arange(columns) // size
    if desc_act:
        groups = shuffled(groups, order_seed)
    weights = per_column(scales, groups) * (codes - per_column(zeros, groups)).astype(F32)
    stored_zeros = zeros - 1 if v1 else zeros
    tensors = {".qweight": entry("I32", gptq_words(codes.T, bits)), ".scales": entry("F16", stored.T),
               ".qzeros": entry("I32", gptq_words(stored_zeros, bits).T)}
    if with_g_idx:
        tensors[".g_idx"] = entry("I32", groups.astype("<i4"))
    return tensors, weights, np.argsort(groups, kind="stable") if desc_act and num_groups > 1 else None


# ---- compressed-tensors --------------------------------------------------------------------------------------------

def make_packed(rng, rows, columns, bits, group_size, dtype="BF16", asym=None, g_idx=False, order_seed=0):
    size, middle = group_size or columns, 1 << (bits - 1)
    num_groups = columns // size
    values = rng.integers(-middle, middle, (rows, columns))
    zeros = zero_points(rng, (rows, num_groups), bits) - middle if asym else np.zeros((rows, num_groups), int)
    stored, scales = rounded(scales_for(rng, zeros.shape, columns, middle), dtype)
    groups = np.arange(columns) // size
    if g_idx:
        groups = shuffled(groups, order_seed)
    weights = per_column(scales, groups) * (values - per_column(zeros, groups)).astype(F32)
    tensors = {".weight_packed": entry("I32", pack_bits(values + middle, bits)),
               ".weight_shape": entry("I64", np.array([rows, columns], "<i8")), ".weight_scale": entry(dtype, stored)}
    if asym == "packed":
        tensors[".weight_zero_point"] = entry("I32", pack_bits(zeros.T + middle, bits).T)
    elif asym:
        tensors[".weight_zero_point"] = entry("I8", zeros.astype(np.int8))
    if g_idx:
        tensors[".weight_g_idx"] = entry("I32", groups.astype("<i4"))
    return tensors, weights, np.argsort(groups, kind="stable") if g_idx and bits == 4 else None


def make_int8(rng, rows, columns, dtype="F32", per_tensor=False, asym=False):
    values = rng.integers(-128, 128, (rows, columns)).astype(np.int8)
    stored, scales = rounded(scales_for(rng, (1, 1) if per_tensor else (rows, 1), columns, 128), dtype)
    zeros = rng.integers(-20, 20, scales.shape).astype(np.int8) if asym else np.zeros(scales.shape, np.int8)
    weights = scales * (values.astype(int) - zeros).astype(F32)
    tensors = {".weight": entry("I8", values), ".weight_scale": entry(dtype, stored.reshape(-1) if per_tensor else stored)}
    if asym:
        tensors[".weight_zero_point"] = entry("I8", zeros)
    if per_tensor:  # static activations: known, not needed
        tensors[".input_scale"] = entry("F32", np.array([0.1], "<f4"))
    return tensors, weights, None


# ---- FP8 -----------------------------------------------------------------------------------------------------------

def make_float8(rng, rows, columns, kind="F8_E4M3", scales="tensor", dtype="F32", name=".weight_scale"):
    table = e4m3_values() if kind == "F8_E4M3" else e5m2_values()
    usable = np.flatnonzero(np.isfinite(table) & (np.abs(table) <= 448))
    codes = rng.choice(usable, (rows, columns)).astype(np.uint8)
    shape = {"tensor": (), "channel": (rows, 1), "block": (-(-rows // 128), -(-columns // 128))}[scales]
    stored, worth = rounded(np.asarray(scales_for(rng, shape, columns, 100)), dtype)
    if scales == "block":
        spread = np.repeat(np.repeat(worth, 128, 0), 128, 1)[:rows, :columns]
    else:
        spread = worth
    tensors = {".weight": ((kind, [rows, columns], codes.tobytes())), name: (dtype, list(shape), stored.tobytes())}
    return tensors, (spread * table[codes]).astype(F32), None


# ---- bitsandbytes --------------------------------------------------------------------------------------------------

NF4 = np.array([-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
                -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
                0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023,
                1.0], F32)
FP4 = np.array([0, 0.0052083333, 0.6666667, 1, 0.3333333, 0.5, 0.1666667, 0.25, 0, -0.0052083333, -0.6666667, -1,
                -0.3333333, -0.5, -0.1666667, -0.25], F32)


def make_llm_int8(rng, rows, columns):
    values = rng.integers(-127, 128, (rows, columns)).astype(np.int8)
    scb = np.asarray(scales_for(rng, rows, columns, 1), "<f4")
    weights = (scb / F32(127))[:, None] * values.astype(F32)
    return {".weight": entry("I8", values), ".SCB": entry("F32", scb),
            ".weight_format": ("U8", [], b"\0")}, weights, None


def make_bnb4(rng, rows, columns, nested, table=NF4, kind="nf4"):
    count = rows * columns
    codes = rng.integers(0, 16, count)
    blocks = -(-count // 64)
    state = {"quant_type": kind, "blocksize": 64, "dtype": "bfloat16", "shape": [rows, columns]}
    tensors = {}
    if nested:
        outer = -(-blocks // 256)
        inner = rng.integers(0, 256, blocks).astype(np.uint8)
        nested_map = np.sort(rng.uniform(-1, 1, 256)).astype("<f4")
        nested_absmax = np.asarray(scales_for(rng, outer, columns, 4), "<f4")
        offset = float(F32(2 / np.sqrt(columns)))
        absmax = nested_map[inner] * np.repeat(nested_absmax, 256)[:blocks] + F32(offset)
        state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": offset}
        tensors |= {".weight.absmax": entry("U8", inner), ".weight.nested_absmax": entry("F32", nested_absmax),
                    ".weight.nested_quant_map": entry("F32", nested_map)}
    else:
        absmax = np.asarray(scales_for(rng, blocks, columns, 1), "<f4")
        tensors[".weight.absmax"] = entry("F32", absmax)
    weights = (np.repeat(absmax, 64)[:count] * table[codes]).astype(F32).reshape(rows, columns)
    pairs = np.append(codes, [0] * (count % 2)).astype(np.uint8)
    tensors |= {".weight": entry("U8", (pairs[::2] << 4 | pairs[1::2])[:, None]),
                ".weight.quant_map": entry("F32", table),
                f".weight.quant_state.bitsandbytes__{kind}": entry("U8", np.frombuffer(json.dumps(state).encode(), np.uint8))}
    return tensors, weights, None


# ---- 2:4 -----------------------------------------------------------------------------------------------------------

def make_sparse(rng, rows, columns, dtype):
    kept = np.argsort(rng.random((rows, columns // 4, 4)), axis=2) < 2
    kept = kept.reshape(rows, columns)
    if dtype == "I8":
        dense = rng.integers(-128, 128, (rows, columns)).astype(np.int8)
        stored_scale, scales = rounded(scales_for(rng, (rows, 1), columns, 90), "BF16")
        weights = np.where(kept, scales * dense.astype(F32), F32(0))
        extra = {".weight_scale": entry("BF16", stored_scale)}
    else:
        dense, worth = rounded(rng.standard_normal((rows, columns)) * 2 / np.sqrt(columns), dtype)
        weights, extra = np.where(kept, worth, F32(0)), {}
    return {".compressed": entry(dtype, dense[kept].reshape(rows, columns // 2)),
            ".bitmask": entry("U8", np.packbits(kept, axis=1, bitorder="little")),
            ".shape": entry("I64", np.array([[rows], [columns]], "<i8")), **extra}, weights, None


# ---- The table -----------------------------------------------------------------------------------------------------

class Case:
    """`panel`: how kernels hold it ("f32": nothing coarser holds it exactly)."""

    def __init__(self, config, make, panel, **arguments):
        self.config, self.panel = config, panel
        self.has_order = arguments.get("desc_act") or arguments.get("g_idx")
        self.maker, self.arguments = make, arguments

    def make(self, rng, rows, columns, order_seed=0):
        """Matrices that read the same inputs have the same `order_seed`, as quantisers leave them."""
        order = {"order_seed": order_seed} if self.has_order else {}
        return self.maker(rng, rows, columns, **self.arguments, **order)


def awq(group_size):
    config = {"quant_method": "awq", "bits": 4, "group_size": group_size, "zero_point": True, "version": "gemm",
              "modules_to_not_convert": None}
    return Case(config, make_awq, "int4g32min", group_size=group_size)


def gptq(bits, group_size, panel, v1=True, sym=False, desc_act=False, with_g_idx=True):
    config = {"quant_method": "gptq", "bits": bits, "group_size": group_size, "desc_act": desc_act, "sym": sym,
              "checkpoint_format": "gptq" if v1 else "gptq_v2"}
    return Case(config, make_gptq, panel, bits=bits, group_size=group_size, v1=v1, sym=sym, desc_act=desc_act,
                with_g_idx=with_g_idx)


def compressed(kind, make, panel, scheme, sparsity=None, **arguments):
    weights = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False, **scheme}
    config = {"quant_method": "compressed-tensors", "format": kind, "ignore": ["lm_head"],
              "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}}}
    if sparsity:
        config["sparsity_config"] = {"format": sparsity, "sparsity_structure": "2:4"}
        if kind == "dense":
            config["config_groups"] = {}
    return Case(config, make, panel, **arguments)


def packed(bits, group_size, panel, **arguments):
    scheme = {"num_bits": bits, "strategy": "group" if group_size else "channel", "group_size": group_size}
    return compressed("pack-quantized", make_packed, panel, scheme, bits=bits, group_size=group_size, **arguments)


def fp8(panel, block=None, method="fp8", **arguments):
    config = {"quant_method": method, "activation_scheme": "dynamic"}
    if block:
        config["weight_block_size"] = block
    return Case(config, make_float8, panel, **arguments)


FLOAT8 = {"type": "float"}
BNB = {"quant_method": "bitsandbytes", "load_in_8bit": False, "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
CASES = {
    "awq-32": awq(32),
    "awq-64": awq(64),
    "awq-whole": awq(-1),
    "gptq-2": gptq(2, 32, "int4g32min"),
    "gptq-3": gptq(3, 32, "int4g32min"),
    "gptq-4": gptq(4, 32, "int4g32min"),
    "gptq-8": gptq(8, 32, "f32"),
    "gptq-4-sym": gptq(4, 32, "int4g32", sym=True),
    "gptq-8-sym": gptq(8, 32, "int8g32", sym=True),
    "gptq-4-v2": gptq(4, 32, "int4g32min", v1=False),
    "gptq-3-v2": gptq(3, 32, "int4g32min", v1=False, with_g_idx=False),
    "gptq-4-whole": gptq(4, -1, "int4g32min"),
    "gptq-4-desc-act": gptq(4, 32, "int4g32min", desc_act=True),
    "gptq-3-desc-act-v2": gptq(3, 32, "int4g32min", v1=False, desc_act=True),
    "gptq-4-sym-desc-act": gptq(4, 32, "int4g32", sym=True, desc_act=True),
    "w8a8": compressed("int-quantized", make_int8, "int8g32f32", {}),
    "w8a8-bf16-scales": compressed("int-quantized", make_int8, "int8g32", {}, dtype="BF16"),
    "w8a8-tensor": compressed("int-quantized", make_int8, "int8g32", {"strategy": "tensor"}, dtype="F16", per_tensor=True),
    "w8a8-asym": compressed("int-quantized", make_int8, "f32", {"symmetric": False}, asym=True),
    "w4a16": packed(4, 32, "int4g32"),
    "w4a16-f32-scales": packed(4, 32, "int8g32f32", dtype="F32"),
    "w4a16-asym": packed(4, 32, "int4g32min", asym="packed"),
    "w4a16-asym-i8": packed(4, 32, "int4g32min", asym="i8", dtype="F16"),
    "w4a16-channel": packed(4, None, "int4g32"),
    "w4a16-g-idx": packed(4, 32, "int4g32", g_idx=True),
    "w8a16": packed(8, 32, "int8g32", dtype="F16"),
    "fp8-compressed-tensor": compressed("float-quantized", make_float8, "fp8e4m3", FLOAT8 | {"strategy": "tensor"}),
    "fp8-compressed-channel": compressed("float-quantized", make_float8, "fp8e4m3", FLOAT8, scales="channel", dtype="BF16"),
    "fp8-compressed-block": compressed("float-quantized", make_float8, "fp8e4m3",
                                       FLOAT8 | {"strategy": "block", "block_structure": [128, 128]}, scales="block"),
    "fp8-compressed-block-text": compressed("naive-quantized", make_float8, "fp8e4m3",
                                            FLOAT8 | {"strategy": "block", "block_structure": "128x128"}, scales="block"),
    "fp8-tensor": fp8("fp8e4m3"),
    "fp8-e5m2": fp8("fp8e5m2", kind="F8_E5M2"),
    "fp8-channel": fp8("fp8e4m3", method="fbgemm_fp8", scales="channel"),
    "fp8-block": fp8("fp8e4m3", block=[128, 128], scales="block", name=".weight_scale_inv"),
    "llm-int8": Case(BNB | {"load_in_8bit": True, "load_in_4bit": False}, make_llm_int8, "int8g32f32"),
    "nf4": Case(BNB, make_bnb4, "nf4", nested=False),
    "nf4-nested": Case(BNB, make_bnb4, "nf4", nested=True),
    "fp4": Case(BNB | {"bnb_4bit_quant_type": "fp4"}, make_bnb4, "f32", nested=False, table=FP4, kind="fp4"),
    "sparse-bf16": compressed("dense", make_sparse, "bf16s24", {}, sparsity="sparse-24-bitmask", dtype="BF16"),
    "sparse-int8": compressed("int-quantized", make_sparse, "int8s24", {}, sparsity="sparse-24-bitmask", dtype="I8"),
}
