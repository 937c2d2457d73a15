"""The chats that prepare.py wrote, as batches of tensors."""
import struct

import numpy as np
import torch


def load(path):
    """[(ids u16, kinds u8)], one pair for each chat; kinds as in prepare.py."""
    with open(path, "rb") as file:
        raw = file.read()
    at, chats = 0, []
    while at < len(raw):
        (length,) = struct.unpack_from("<I", raw, at)
        ids = np.frombuffer(raw, "<u2", length, at + 4)
        chats.append((ids, np.frombuffer(raw, "u1", length, at + 4 + 2 * length)))
        at += 4 + 3 * length
    return chats


def padded(length):
    return -(-length // 32) * 32  # the attention kernel works on 32 rows at a time


def batches(chats, tokens, rng):
    """Batches of chats of like length, each padded to a multiple of 32; every chat starts at position 0. Without `rng` in
    the order of the chats."""
    order = rng.permutation(len(chats)) if rng else np.arange(len(chats))
    for start in range(0, len(order), 3000):
        group = sorted(order[start : start + 3000], key=lambda i: len(chats[i][0]))
        filled = [[]]
        for i in group:
            if filled[-1] and padded(len(chats[i][0])) * (len(filled[-1]) + 1) > tokens:
                filled.append([])
            filled[-1].append(i)
        for j in rng.permutation(len(filled)) if rng else range(len(filled)):
            yield [chats[i] for i in filled[j]]


def tensors(batch, weights, rng):
    """(ids [B, T], flat positions to predict at, their targets, loss weights, kinds). `weights`: of context, user and
    assistant tokens; with `rng`, context is sampled thinly."""
    length = padded(max(len(ids) for ids, _ in batch))
    ids, target, kind = (np.zeros((len(batch), length), "i4") for _ in range(3))
    kind -= 1
    for row, (chat_ids, chat_kinds) in enumerate(batch):
        n = len(chat_ids)
        ids[row, :n], target[row, : n - 1], kind[row, : n - 1] = chat_ids, chat_ids[1:], chat_kinds[1:]
    weight = np.zeros(kind.shape, "f4")
    for k in range(3):
        weight[kind == k] = weights[k]
    if rng:
        weight[(kind == 0) & (rng.random(kind.shape) > 0.15)] = 0
    selected = np.flatnonzero(weight)
    rest = (array.reshape(-1)[selected].copy() for array in (target, weight, kind))
    return (torch.from_numpy(ids), torch.from_numpy(selected), *map(torch.from_numpy, rest))
