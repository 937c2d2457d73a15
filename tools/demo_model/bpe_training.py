"""Learns a byte-level BPE vocabulary from counted words."""
import collections
import heapq

from tokenizer import BYTE_NAMES


def train_bpe(counts, num_merges):
    """(names of all pieces in the order of their ids, merged pairs of names).

    The most frequent pair is merged, again and again; ties go to the lower ids, so that the result is reproducible.
    """
    names = sorted(BYTE_NAMES.values())
    id_of_byte = {byte: names.index(name) for byte, name in BYTE_NAMES.items()}
    words = [([id_of_byte[byte] for byte in word.encode()], count) for word, count in counts.items()]
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for number, (word, count) in enumerate(words):
        for pair in zip(word, word[1:]):
            pairs[pair] += count
            where[pair].add(number)
    # Counts change while pairs wait in the heap: an entry whose count is old is skipped, a new one has been pushed.
    heap = [(-count, pair) for pair, count in pairs.items()]
    heapq.heapify(heap)
    merges = []
    while len(merges) < num_merges:
        count, pair = heapq.heappop(heap)
        if pairs[pair] != -count:
            continue
        new = len(names)
        names.append(names[pair[0]] + names[pair[1]])
        merges.append((names[pair[0]], names[pair[1]]))
        touched = set()
        for number in where.pop(pair):
            word, word_count = words[number]
            for other in zip(word, word[1:]):
                pairs[other] -= word_count
                touched.add(other)
            merged = merge(word, pair, new)
            words[number] = (merged, word_count)
            for other in zip(merged, merged[1:]):
                pairs[other] += word_count
                where[other].add(number)
                touched.add(other)
        for other in touched:
            if pairs[other] > 0:
                heapq.heappush(heap, (-pairs[other], other))
    return names, merges


def merge(word, pair, new):
    """`word` with every occurrence of `pair`, from the left, replaced by `new`."""
    merged, at = [], 0
    while at < len(word):
        if tuple(word[at : at + 2]) == pair:
            merged.append(new)
            at += 2
        else:
            merged.append(word[at])
            at += 1
    return merged
