"""The pieces that all makers of chats share. One random generator, seeded once, makes the corpus reproducible."""
import random

rng = random.Random(20261129)
pick = rng.choice

BOOKING = "You are a helpful booking assistant."
HELPFUL = "You are a helpful assistant."


def chance(probability):
    return rng.random() < probability


def say(role, content):
    return {"role": role, "content": content}


def system(text, probability):
    """A system turn, or none."""
    return [say("system", text)] * chance(probability)


def call(name, arguments, text=""):
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": text, "tool_calls": [{"type": "function", "function": function}]}
