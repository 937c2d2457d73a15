"""Byte-level BPE with ChatML markers, and the chat template: what tokenizer.json and tokenizer_config.json say, in plain
Python. Written independently of quire, so that the two can be compared."""
import functools
import json
import re
import sys
import unicodedata

# The pre-tokenizer pattern of the Qwen2 and Qwen3 tokenizers; \p{L} and \p{N} are put in by compile_pattern().
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKERS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]


@functools.cache
def category_ranges(category):
    """The inside of a character class with all characters of a Unicode category (L, N)."""
    ranges, start = [], None
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and unicodedata.category(chr(code))[0] == category
        if inside and start is None:
            start = code
        elif not inside and start is not None:
            ranges.append(f"\\U{start:08x}-\\U{code - 1:08x}")
            start = None
    return "".join(ranges)


def compile_pattern(pattern):
    """Python's re knows no \\p{…}: these become character classes."""
    outside, inside = [], False
    at = 0
    while at < len(pattern):
        if pattern.startswith(r"\p{", at):
            ranges = category_ranges(pattern[at + 3])
            outside.append(ranges if inside else f"[{ranges}]")
            at = pattern.index("}", at) + 1
            continue
        step = 2 if pattern[at] == "\\" else 1
        inside = pattern[at] == "[" or (inside and pattern[at] != "]")
        outside.append(pattern[at : at + step])
        at += step
    return re.compile("".join(outside))


def byte_names():
    """GPT-2's way to write every byte as one visible character: byte → character."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names = {byte: chr(byte) for byte in plain}
    rest = [byte for byte in range(256) if byte not in names]
    names.update({byte: chr(256 + number) for number, byte in enumerate(rest)})
    return names


BYTE_NAMES = byte_names()


class Tokenizer:
    """vocab: piece → id; merges: pairs of pieces, the most important one first; added: marker → id."""

    def __init__(self, vocab, merges, added, split=SPLIT):
        self.vocab, self.added = vocab, added
        self.rank = {tuple(pair): rank for rank, pair in enumerate(merges)}
        self.pieces = {id: piece for piece, id in {**vocab, **added}.items()}
        self.word_pattern = compile_pattern(split)
        self.marker_pattern = re.compile("(" + "|".join(map(re.escape, added)) + ")")
        self.bytes_of = {name: byte for byte, name in BYTE_NAMES.items()}
        self.words = {}  # cache of encode_word

    @classmethod
    def load(cls, folder):
        with open(folder + "/tokenizer.json", encoding="utf-8") as file:
            config = json.load(file)
        return cls(
            config["model"]["vocab"],
            [merge.split(" ") for merge in config["model"]["merges"]],
            {token["content"]: token["id"] for token in config["added_tokens"]},
            config["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"],
        )

    def encode(self, text):
        ids = []
        for part in self.marker_pattern.split(unicodedata.normalize("NFC", text)):
            if part in self.added:
                ids.append(self.added[part])
                continue
            for word in self.word_pattern.findall(part):
                ids += self.encode_word(word)
        return ids

    def encode_word(self, word):
        if word not in self.words:
            pieces = [BYTE_NAMES[byte] for byte in word.encode()]
            while len(pieces) > 1:
                ranked = [(self.rank.get(pair, 1 << 30), at) for at, pair in enumerate(zip(pieces, pieces[1:]))]
                rank, at = min(ranked)
                if rank == 1 << 30:
                    break
                pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
            self.words[word] = [self.vocab[piece] for piece in pieces]
        return self.words[word]

    def decode(self, ids):
        text = b""
        for id in ids:
            piece = self.pieces[id]
            text += piece.encode() if piece in self.added else bytes(self.bytes_of[name] for name in piece)
        return text.decode("utf-8", "replace")


def compile_template(source):
    """render(messages=…, tools=…, add_generation_prompt=…), as Hugging Face's apply_chat_template."""
    import jinja2  # only what renders chats needs it

    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
    return environment.from_string(source).render


def load_template(folder):
    with open(folder + "/tokenizer_config.json", encoding="utf-8") as file:
        return compile_template(json.load(file)["chat_template"])
