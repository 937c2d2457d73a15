"""llama.cpp through the C API of its prebuilt libraries (npm package @node-llama-cpp/linux-x64), for tests and benchmarks.

The parameter structs change from version to version. They are passed by value, larger than a register pair, and so
through memory: this module takes them from the library's own *_default_params(), as opaque blocks that are larger
than any version, and changes only the leading fields, whose place it checks against their known defaults.
"""
import ctypes
import glob
import os
import time

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "node_modules/@node-llama-cpp/linux-x64/bins/linux-x64")


def available():
    return bool(glob.glob(os.path.join(FOLDER, "libllama*.so")))


class _Params(ctypes.Structure):
    _fields_ = [("words", ctypes.c_uint32 * 64)]


class _Batch(ctypes.Structure):
    _fields_ = [
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.POINTER(ctypes.c_float)),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    ]


class _ThreadpoolParams(ctypes.Structure):
    _fields_ = [
        ("cpumask", ctypes.c_bool * 512),
        ("n_threads", ctypes.c_int),
        ("prio", ctypes.c_int),
        ("poll", ctypes.c_uint32),
        ("strict_cpu", ctypes.c_bool),
        ("paused", ctypes.c_bool),
        ("reserve", ctypes.c_byte * 64),
    ]


_LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


class Library:
    """The loaded shared libraries; `variant` ("haswell", …) forces a CPU backend, else llama.cpp picks the best."""

    def __init__(self, variant=None, verbose=False):
        def load(stem):
            return ctypes.CDLL(sorted(glob.glob(os.path.join(FOLDER, stem)))[0], mode=ctypes.RTLD_GLOBAL)

        self.base = load("libggml-base.so*")
        self.ggml = load("libggml.*so*")
        self.llama = load("libllama.*so*")
        self._log = _LOG((lambda level, text, data: print(text.decode(), end="")) if verbose else (lambda *_: None))
        self.base.ggml_log_set(self._log, None)
        self.llama.llama_log_set(self._log, None)
        if variant:
            self.ggml.ggml_backend_load.restype = ctypes.c_void_p
            path = os.path.join(FOLDER, f"libggml-cpu-{variant}.so")
            if not self.ggml.ggml_backend_load(path.encode()):
                raise RuntimeError(f"llama.cpp refuses its backend {variant} on this CPU")
            self.cpu = ctypes.CDLL(path)
        else:
            self.ggml.ggml_backend_load_all_from_path(FOLDER.encode())
            with open("/proc/self/maps") as maps:
                paths = sorted({line.split()[-1] for line in maps if "libggml-cpu-" in line})
            self.cpu = ctypes.CDLL(paths[0])
            variant = os.path.basename(paths[0])[len("libggml-cpu-") : -len(".so")]
        self.variant = variant
        llama = self.llama
        llama.llama_backend_init()
        llama.llama_model_default_params.restype = _Params
        llama.llama_context_default_params.restype = _Params
        llama.llama_model_quantize_default_params.restype = _Params
        llama.llama_model_quantize.restype = ctypes.c_uint32
        llama.llama_model_quantize.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(_Params)]
        llama.llama_model_load_from_file.restype = ctypes.c_void_p
        llama.llama_model_load_from_file.argtypes = [ctypes.c_char_p, _Params]
        llama.llama_init_from_model.restype = ctypes.c_void_p
        llama.llama_init_from_model.argtypes = [ctypes.c_void_p, _Params]
        llama.llama_batch_init.restype = _Batch
        llama.llama_batch_init.argtypes = [ctypes.c_int32] * 3
        llama.llama_batch_free.argtypes = [_Batch]
        llama.llama_decode.argtypes = [ctypes.c_void_p, _Batch]
        llama.llama_get_memory.restype = ctypes.c_void_p
        llama.llama_get_memory.argtypes = [ctypes.c_void_p]
        llama.llama_memory_clear.argtypes = [ctypes.c_void_p, ctypes.c_bool]
        llama.llama_set_n_threads.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32]
        llama.llama_synchronize.argtypes = [ctypes.c_void_p]
        llama.llama_get_logits_ith.restype = ctypes.POINTER(ctypes.c_float)
        llama.llama_get_logits_ith.argtypes = [ctypes.c_void_p, ctypes.c_int32]
        llama.llama_model_get_vocab.restype = ctypes.c_void_p
        llama.llama_model_get_vocab.argtypes = [ctypes.c_void_p]
        llama.llama_vocab_n_tokens.argtypes = [ctypes.c_void_p]
        llama.llama_tokenize.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32,
                                         ctypes.POINTER(ctypes.c_int32), ctypes.c_int32, ctypes.c_bool, ctypes.c_bool]
        llama.llama_attach_threadpool.argtypes = [ctypes.c_void_p] * 3
        llama.llama_free.argtypes = [ctypes.c_void_p]
        llama.llama_model_free.argtypes = [ctypes.c_void_p]
        self.base.ggml_threadpool_params_default.restype = _ThreadpoolParams
        self.cpu.ggml_threadpool_new.restype = ctypes.c_void_p
        self.cpu.ggml_threadpool_new.argtypes = [ctypes.POINTER(_ThreadpoolParams)]
        self.cpu.ggml_threadpool_free.argtypes = [ctypes.c_void_p]
        self.cpu.ggml_threadpool_pause.argtypes = [ctypes.c_void_p]


def quantize(library, source, target, file_type, threads=2):
    """llama.cpp's own quantisation of a GGUF file; `file_type` is a number of its llama_ftype. False: it cannot."""
    llama = library.llama
    llama.llama_model_quantize_default_params.restype = _Params
    llama.llama_model_quantize.restype = ctypes.c_uint32
    llama.llama_model_quantize.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(_Params)]
    params = llama.llama_model_quantize_default_params()
    # nthread and ftype lead the struct.
    if params.words[0] != 0 or params.words[1] not in (7, 9):  # Q8_0; Q5_1 in older versions
        raise RuntimeError("the quantisation parameters of this llama.cpp version have another layout")
    params.words[0], params.words[1] = threads, file_type
    return llama.llama_model_quantize(os.fsencode(source), os.fsencode(target), ctypes.byref(params)) == 0


class Model:
    """One model in one context with its own thread pool (the peer's best setting: threads kept, polling)."""

    def __init__(self, library, path, threads=2, n_ctx=4096, n_batch=2048, n_seq_max=1):
        self.library = library
        self.threads = threads
        llama = library.llama
        self.model = llama.llama_model_load_from_file(os.fsencode(path), llama.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self.vocab = llama.llama_model_get_vocab(self.model)
        self.n_vocab = llama.llama_vocab_n_tokens(self.vocab)
        pool = library.base.ggml_threadpool_params_default(threads)
        self.pool = library.cpu.ggml_threadpool_new(ctypes.byref(pool))
        self.context = None
        self.open_context(n_ctx, n_batch, n_seq_max)

    def open_context(self, n_ctx, n_batch, n_seq_max):
        """A new context in place of the old one. Each sequence gets n_ctx / n_seq_max tokens."""
        llama = self.library.llama
        self.close_context()
        params = llama.llama_context_default_params()
        words = params.words
        # n_ctx, n_batch, n_ubatch, n_seq_max lead the struct in every version so far; refuse to guess otherwise.
        if list(words[0:4]) != [512, 2048, 512, 1]:
            raise RuntimeError("the context parameters of this llama.cpp version have another layout")
        words[0], words[1], words[2], words[3] = n_ctx, n_batch, 512, n_seq_max
        self.context = llama.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError("llama.cpp cannot make a context")
        llama.llama_attach_threadpool(self.context, self.pool, self.pool)
        llama.llama_set_n_threads(self.context, self.threads, self.threads)
        self.batch = llama.llama_batch_init(n_batch, 0, 1)
        self.memory = llama.llama_get_memory(self.context)

    def close_context(self):
        if self.context:
            self.library.llama.llama_batch_free(self.batch)
            self.library.llama.llama_free(self.context)
            self.context = None

    def close(self):
        self.close_context()
        self.library.cpu.ggml_threadpool_free(self.pool)
        self.library.llama.llama_model_free(self.model)

    def pause(self):
        """Puts the threads to sleep, which otherwise wait by spinning for a while; the next decode wakes them."""
        self.library.cpu.ggml_threadpool_pause(self.pool)

    def clear(self):
        self.library.llama.llama_memory_clear(self.memory, True)

    def fill(self, rows):
        """The next batch: (token, position, sequence, wants_logits) tuples."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wants) in enumerate(rows):
            batch.token[i] = token
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = wants

    def run(self):
        """Runs the batch and waits for the result."""
        status = self.library.llama.llama_decode(self.context, self.batch)
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")
        self.library.llama.llama_synchronize(self.context)

    def decode(self, rows):
        self.fill(rows)
        self.run()

    def logits(self, row):
        pointer = self.library.llama.llama_get_logits_ith(self.context, row)
        return pointer[: self.n_vocab]

    def tokenize(self, text, add_special=False, parse_special=True):
        data = text.encode()
        capacity = len(data) + 16
        ids = (ctypes.c_int32 * capacity)()
        count = self.library.llama.llama_tokenize(self.vocab, data, len(data), ids, capacity, add_special, parse_special)
        return list(ids[:count])

    # --- the three measurements of ./run bench peers; seconds --------------------------------------------------------

    def time_prefill(self, tokens):
        self.clear()
        self.fill([(token, i, 0, i == len(tokens) - 1) for i, token in enumerate(tokens)])
        start = time.perf_counter()
        self.run()
        return time.perf_counter() - start

    def time_decode(self, steps, sequences=1):
        """`steps` steps of one token for each sequence, after one token each that is not counted."""
        self.clear()
        self.decode([(1, 0, s, True) for s in range(sequences)])
        start = time.perf_counter()
        for step in range(steps):
            self.decode([(1 + (step * 7 + s * 13) % 1000, 1 + step, s, True) for s in range(sequences)])
        return time.perf_counter() - start
