#!/usr/bin/env python3
"""Trains the demo chat model on the CPU. Needs torch; build fused.so first (see README.md).

usage: OMP_NUM_THREADS=1 train.py DATA_DIR RUN_DIR --until HH:MM [--layers 6 --hidden 256 --heads 4 --kv 2 --ffn 512 …]

Each of two Python threads works on half a batch with single-threaded calls, which release the interpreter lock. The
learning rate follows a cosine over wall time, from the start to --until.
"""
import argparse
import concurrent.futures
import json
import math
import os
import time

import numpy as np
import torch

import records
from network import Net
from optimiser import Optimiser

LOSS_WEIGHTS = (0.3, 0.3, 1.0)  # of context, user and assistant tokens
WARM_UP_STEPS = 60
SAVE_EVERY_S = 300


def evaluate(net, chats):
    """Perplexities on held-out chats."""
    loss_sum, count = np.zeros(3), np.zeros(3)
    for batch in records.batches(chats, 8192, None):
        ids, selected, target, weight, kind = records.tensors(batch, (1, 1, 1), None)
        loss = net.run(ids, selected, target, weight, grad=False)
        for k in range(3):
            loss_sum[k] += float(loss[kind == k].double().sum())
            count[k] += int((kind == k).sum())
    names = ("context", "user", "assistant")
    result = {name: math.exp(loss_sum[k] / count[k]) for k, name in enumerate(names)}
    return {**result, "all": math.exp(loss_sum.sum() / count.sum())}


class Trainer:
    def __init__(self, args):
        self.args = args
        self.pool = concurrent.futures.ThreadPoolExecutor(args.threads)
        if args.resume:
            self.net = Net.load(args.resume)
            checkpoint = torch.load(args.resume)
            self.step, self.tokens = checkpoint["step"], checkpoint["tokens"]
        else:
            self.net = Net(4096, args.hidden, args.layers, args.heads, args.kv, args.ffn, args.seed)
            self.step = self.tokens = 0
        self.nets = [self.net] + [self.net.twin() for _ in range(args.threads - 1)]
        self.teacher = Net.load(args.teacher) if args.teacher else None
        self.optimiser = Optimiser(self.net, args.muon_lr, args.adam_lr, args.decay)
        self.rng = np.random.default_rng(args.seed)
        self.log = open(args.run + "/log.txt", "a", encoding="utf-8")
        self.start = clock(args.since) if args.since else time.time()
        self.end = clock(args.until)
        self.mean_loss = None

    def note(self, *words):
        print(*words, file=self.log, flush=True)
        print(*words, flush=True)

    def save(self):
        checkpoint = {"cfg": self.net.cfg, "params": self.net.p, "step": self.step, "tokens": self.tokens}
        torch.save(checkpoint, self.args.run + "/ckpt.tmp")
        os.replace(self.args.run + "/ckpt.tmp", self.args.run + "/ckpt.pt")

    def run_part(self, net, part, weight_sum):
        """The sum and the number of the assistant tokens' losses of one thread's share."""
        ids, selected, target, weight, kind = part
        loss = net.run(ids, selected, target, weight / weight_sum, teacher=self.teacher)[kind == 2]
        return float(loss.sum()), len(loss)

    def train_batch(self, batch, progress):
        """One step; returns the norm of the gradient. `progress`: 0 at the start of the schedule, 1 at its end."""
        shares = [batch[i :: self.args.threads] for i in range(self.args.threads)]
        parts = [records.tensors(share, LOSS_WEIGHTS, self.rng) for share in shares if share]
        weight_sum = sum(float(part[3].sum()) for part in parts)
        losses = list(self.pool.map(self.run_part, self.nets, parts, [weight_sum] * len(parts)))
        warm = min(1.0, (self.optimiser.t + 1) / WARM_UP_STEPS)
        scale = warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))
        norm = self.optimiser.step(scale, self.pool, self.nets[1:])
        self.tokens += sum(len(ids) for ids, _ in batch)
        self.step += 1
        loss = sum(total for total, _ in losses) / max(1, sum(count for _, count in losses))
        self.mean_loss = loss if self.mean_loss is None else 0.98 * self.mean_loss + 0.02 * loss
        return norm

    def train(self, chats, held_out):
        args = self.args
        self.note("parameters", sum(p.numel() for p in self.net.p.values()), "chats", len(chats), "tokens",
                  sum(len(ids) for ids, _ in chats))  # fmt: skip
        every, epoch = 10 if args.steps else 50, 0
        last = saved = time.time()
        while True:
            for batch in records.batches(chats, args.tokens, self.rng):
                progress = (time.time() - self.start) / (self.end - self.start)
                if progress >= 1 or (args.steps and self.step >= args.steps):
                    self.save()
                    return
                norm = self.train_batch(batch, progress)
                if self.step % every == 0:
                    now = time.time()
                    self.note(f"step {self.step} epoch {epoch} tokens {self.tokens / 1e6:.2f}M assistant loss "
                              f"{self.mean_loss:.4f} grad {norm:.2f} {(now - last) / every * 1e3:.0f} ms/step "
                              f"{now - self.start:.0f} s")  # fmt: skip
                    last = now
                if time.time() - saved > SAVE_EVERY_S:
                    self.save()
                    self.note("validation perplexity", rounded(evaluate(self.net, held_out[:400]), 3))
                    saved = last = time.time()
            epoch += 1


def clock(time_of_day):
    """Today's HH:MM in seconds."""
    now = time.localtime()
    hours, minutes = map(int, time_of_day.split(":"))
    return time.mktime(now[:3] + (hours, minutes, 0) + now[6:])


def rounded(perplexities, digits):
    return json.dumps({name: round(value, digits) for name, value in perplexities.items()})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("run")
    parser.add_argument("--until", required=True, help="HH:MM the schedule ends")
    for name, value in dict(layers=6, hidden=256, heads=4, kv=2, ffn=512, tokens=8192, threads=2, steps=0, seed=1).items():
        parser.add_argument("--" + name, type=int, default=value)
    for name, value in dict(muon_lr=0.02, adam_lr=0.003, decay=0.02).items():
        parser.add_argument("--" + name, type=float, default=value)
    parser.add_argument("--teacher", help="checkpoint to distil from")
    parser.add_argument("--resume", help="checkpoint to go on from")
    parser.add_argument("--since", help="HH:MM the schedule began")
    args = parser.parse_args()
    torch.set_num_threads(1)
    os.makedirs(args.run, exist_ok=True)
    trainer = Trainer(args)
    held_out = records.load(args.data + "/val.bin")
    trainer.train(records.load(args.data + "/train.bin"), held_out)
    trainer.note("final validation perplexity", rounded(evaluate(trainer.net, held_out), 4), "tokens", trainer.tokens)


if __name__ == "__main__":
    main()
