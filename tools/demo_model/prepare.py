#!/usr/bin/python3
"""Builds the demo model's chat corpus and its 4096-entry byte-level BPE tokenizer.

usage: prepare.py SGD_GIT_DIR WORKLOADS_DIR OUT_DIR

SGD_GIT_DIR is the git directory of a clone of google-research-datasets/dstc8-schema-guided-dialogue; WORKLOADS_DIR holds
tinystories_1000.json and gsm8k_train.jsonl. Writes OUT_DIR/{tokenizer.json,tokenizer_config.json,train.bin,val.bin,
chats.jsonl}. A .bin file is a run of records: u32 length, u16 ids[length], u8 kind[length], with kind 0 = context (system,
tools, tool results), 1 = user, 2 = assistant.
"""
import collections
import json
import os
import re
import struct
import sys

import corpus_handmade
import corpus_sgd
from bpe_training import train_bpe
from chat_parts import BOOKING, HELPFUL, chance, pick, rng, say
from tokenizer import MARKERS, SPECIAL, SPLIT, Tokenizer, compile_pattern, compile_template

VOCABULARY_SIZE, TOKENS_MAX = 4096, 1024
HERE = os.path.dirname(os.path.abspath(__file__))
with open(HERE + "/chat_template.jinja", encoding="utf-8") as _file:
    TEMPLATE = _file.read().rstrip("\n")
CONTEXT, USER, ASSISTANT = 0, 1, 2


def plain_chat(dialogue):
    roles = {"USER": "user", "SYSTEM": "assistant"}
    turns = [say(roles[turn["speaker"]], turn["utterance"]) for turn in dialogue["turns"]]
    return {"messages": [say("system", pick([BOOKING, HELPFUL]))] * chance(0.7) + turns}


def make_chats(sgd_git_dir, workloads):
    """(kind of chat, whether it is for validation, chat), shuffled."""
    chats = []
    for split in ("train", "dev"):
        for number, (dialogue, schemas) in enumerate(corpus_sgd.dialogues(sgd_git_dir, split)):
            held_out = split == "train" and number % 60 == 0
            if chance(0.25):
                chats.append(("plain", held_out, plain_chat(dialogue)))
            else:
                chats.append(("tools", held_out, corpus_sgd.tool_chat(dialogue, schemas)))
            if chance(0.3):
                merged = corpus_sgd.tool_chat(dialogue, schemas, merge=True)
                chats += [("merged", held_out, merged)] if merged else []
            chats += [("quick", held_out, chat) for chat in corpus_sgd.quick_calls(dialogue, schemas)]
            extractions = corpus_sgd.extractions(dialogue)
            chats += [("extract", held_out, pick(extractions))] if extractions and chance(0.3) else []
    stories = corpus_handmade.story_chats(workloads + "/tinystories_1000.json")
    chats += [("story", number % 40 == 0, chat) for number, chat in enumerate(stories)]
    problems = corpus_handmade.maths_chats(workloads + "/gsm8k_train.jsonl", 2400)
    chats += [("maths", number % 60 == 0, chat) for number, chat in enumerate(problems)]
    chats += [("generic", number % 100 == 0, corpus_handmade.common_tool_chat()) for number in range(5000)]
    chats += [("talk", False, corpus_handmade.small_talk_chat()) for _ in range(500)]
    chats += [("exercise", number % 100 == 0, corpus_handmade.exercise()) for number in range(2500)]
    rng.shuffle(chats)
    return chats


class Renderer:
    def __init__(self):
        self.template = compile_template(TEMPLATE)

    def __call__(self, chat):
        return self.template(messages=chat["messages"], tools=chat.get("tools") or None, add_generation_prompt=False)


def segments(text):
    """A rendered chat as [(text, kind)]. The assistant's header is context, its text and <|im_end|> are what is learnt."""
    parts = []
    for block in re.findall(r"<\|im_start\|>.*?<\|im_end\|>\n", text, flags=re.S):
        role = re.match(r"<\|im_start\|>(\w+)\n", block)[1]
        header = f"<|im_start|>{role}\n"
        from_user = role == "user" and not block.startswith("<|im_start|>user\n<tool_response>")
        kind = ASSISTANT if role == "assistant" else USER if from_user else CONTEXT
        parts += [(header, USER if from_user else CONTEXT), (block[len(header) : -1], kind), ("\n", CONTEXT)]
    assert "".join(part for part, _ in parts) == text
    return parts


def encode_chat(tokenizer, text):
    ids, kinds = [], []
    for part, kind in segments(text):
        encoded = tokenizer.encode(part)
        ids += encoded
        kinds += [kind] * len(encoded)
    return ids, kinds


def shorten(chat):
    """Drops the last exchange, and the tools that only it used."""
    messages = chat["messages"]
    messages.pop()
    while messages and (messages[-1]["role"] != "assistant" or "tool_calls" in messages[-1]):
        messages.pop()
    used = {made["function"]["name"] for message in messages for made in message.get("tool_calls", [])}
    tools = chat.get("tools", [])
    chat["tools"] = [tool for tool in tools if tool["function"]["name"] in used] or tools[:1]


def count_words(chats, texts):
    """How often each word occurs in what is trained on; of the longest kind of chat, a part is enough."""
    marker = re.compile("(" + "|".join(map(re.escape, SPECIAL + MARKERS)) + ")")
    words = compile_pattern(SPLIT)
    counts = collections.Counter()
    for (kind, held_out, _), text in zip(chats, texts):
        if not held_out and (kind != "tools" or chance(0.4)):
            for part in marker.split(text)[::2]:
                counts.update(words.findall(part))
    return counts


def write_tokenizer(out, vocab, merges, added):
    tokens = [
        {
            "id": id,
            "content": content,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": content in SPECIAL,
        }
        for content, id in added.items()
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated", "invert": False}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": tokens,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": [" ".join(merge) for merge in merges],
        },
    }
    config = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": {
            str(token["id"]): {key: value for key, value in token.items() if key != "id"} for token in tokens
        },
        "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
        "bos_token": None,
        "chat_template": TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 2048,
        "pad_token": "<|endoftext|>",
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }
    for name, value in (("tokenizer", tokenizer), ("tokenizer_config", config)):
        with open(f"{out}/{name}.json", "w", encoding="utf-8") as file:
            json.dump(value, file, ensure_ascii=False, indent=1)


def write_corpus(out, chats, texts, tokenizer, render):
    """train.bin, val.bin and chats.jsonl; returns {kind of chat: [chats, tokens of each kind]}."""
    totals = collections.defaultdict(lambda: [0, 0, 0, 0])
    with open(out + "/train.bin", "wb") as train, open(out + "/val.bin", "wb") as validation, open(
        out + "/chats.jsonl", "w", encoding="utf-8"
    ) as dump:
        for (kind, held_out, chat), text in zip(chats, texts):
            ids, kinds = encode_chat(tokenizer, text)
            while len(ids) >= TOKENS_MAX and chat["messages"]:
                shorten(chat)
                text = render(chat)
                ids, kinds = encode_chat(tokenizer, text)
            if not chat["messages"]:
                continue
            ids.append(tokenizer.added["<|endoftext|>"])
            kinds.append(CONTEXT)
            record = struct.pack("<I", len(ids)) + struct.pack(f"<{len(ids)}H", *ids) + bytes(kinds)
            (validation if held_out else train).write(record)
            dump.write(json.dumps({"kind": kind, "val": held_out, "text": text, **chat}, ensure_ascii=False) + "\n")
            totals[kind][0] += 1
            for token_kind in (CONTEXT, USER, ASSISTANT):
                totals[kind][1 + token_kind] += kinds.count(token_kind)
    return totals


def main(sgd_git_dir, workloads, out):
    os.makedirs(out, exist_ok=True)
    render = Renderer()
    chats = make_chats(sgd_git_dir, workloads)
    texts = [render(chat) for _, _, chat in chats]
    counts = count_words(chats, texts)
    print("chats", len(chats), "characters", sum(map(len, texts)), "distinct words", len(counts), flush=True)
    names, merges = train_bpe(counts, VOCABULARY_SIZE - 256 - len(SPECIAL) - len(MARKERS))
    vocab = {name: id for id, name in enumerate(names)}
    added = {token: len(names) + number for number, token in enumerate(SPECIAL + MARKERS)}
    write_tokenizer(out, vocab, merges, added)
    totals = write_corpus(out, chats, texts, Tokenizer(vocab, merges, added), render)
    for kind, (count, context, user, assistant) in sorted(totals.items()):
        print(f"{kind:9} chats {count:6} tokens: context {context:8} user {user:8} assistant {assistant:8}")
    print("all tokens", sum(sum(numbers[1:]) for numbers in totals.values()))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
