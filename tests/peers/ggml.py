"""ggml's own quantizers, out of the prebuilt libggml-base.so of the npm package @node-llama-cpp/linux-x64.

    import ggml
    base = ggml.load()                 # None when tests/peers/node_modules is not installed: say ggml.MISSING and skip
    row_bytes = base.quantize("Q4_K", floats)        # numpy float32 [rows, columns] -> bytes
    floats = base.dequantize("Q4_K", row_bytes, columns)
"""
import ctypes
import glob
import os

import numpy as np

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "node_modules/@node-llama-cpp/linux-x64/bins/linux-x64")
MISSING = "llama.cpp's libraries are not installed: run `npm ci` in tests/peers"

TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q2_K": 10, "Q3_K": 11, "Q4_K": 12,
         "Q5_K": 13, "Q6_K": 14, "Q8_K": 15, "IQ4_NL": 20, "IQ4_XS": 23, "BF16": 30, "MXFP4": 39}


class _TypeTraits(ctypes.Structure):
    """ggml_type_traits, up to the field that is used."""
    _fields_ = [("type_name", ctypes.c_char_p), ("blck_size", ctypes.c_int64), ("blck_size_interleave", ctypes.c_int64),
                ("type_size", ctypes.c_size_t), ("is_quantized", ctypes.c_bool),
                ("to_float", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64))]


class Base:
    def __init__(self, path):
        self._library = ctypes.CDLL(path)
        self._library.ggml_get_type_traits.restype = ctypes.POINTER(_TypeTraits)
        self._library.ggml_quantize_chunk.restype = ctypes.c_size_t
        self._library.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64,
                                                      ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]

    def _traits(self, name):
        traits = self._library.ggml_get_type_traits(TYPES[name]).contents
        if traits.type_name.decode().upper() != name:
            raise RuntimeError(f"type {TYPES[name]} of this ggml is {traits.type_name.decode()}, not {name}")
        return traits

    def quantize(self, name, floats):
        floats = np.ascontiguousarray(floats, dtype=np.float32)
        rows, columns = floats.shape
        traits = self._traits(name)
        out = np.zeros(rows * columns // traits.blck_size * traits.type_size, dtype=np.uint8)
        written = self._library.ggml_quantize_chunk(TYPES[name], floats.ctypes.data, out.ctypes.data, 0, rows, columns, None)
        if written != out.size:
            raise RuntimeError(f"ggml_quantize_chunk wrote {written} bytes of {out.size}")
        return out.tobytes()

    def dequantize(self, name, data, columns):
        traits = self._traits(name)
        packed = np.frombuffer(data, dtype=np.uint8).copy()
        out = np.zeros(packed.size // traits.type_size * traits.blck_size, dtype=np.float32)
        if name == "F32":
            return packed.view(np.float32).reshape(-1, columns)
        if name == "Q8_K":  # ggml multiplies with it and reads no files of it: it is not in the table
            self._library.dequantize_row_q8_K(ctypes.c_void_p(packed.ctypes.data), ctypes.c_void_p(out.ctypes.data),
                                              ctypes.c_int64(out.size))
        else:
            traits.to_float(packed.ctypes.data, out.ctypes.data, out.size)
        return out.reshape(-1, columns)


def load():
    paths = glob.glob(os.path.join(FOLDER, "libggml-base.so*"))
    return Base(paths[0]) if paths else None
