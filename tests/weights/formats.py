"""The storage formats in numpy, from their definition: dequantizers that look every element up by its place in the
block, and quantizers whose float32 operations are in the order that the reference quantizers define. Written without
sight of the C++; blocks are vectorised, elements of a block are walked one by one."""
import numpy as np

f4 = np.float32
BLOCK = {"F32": (1, 4), "F16": (1, 2), "BF16": (1, 2), "Q8_0": (32, 34), "Q4_0": (32, 18), "Q4_K": (256, 144),
         "Q6_K": (256, 210)}


def _f16(blocks, at):
    return np.ascontiguousarray(blocks[:, at:at + 2]).view("<f2")[:, 0].astype(f4)


# --- bytes to floats -------------------------------------------------------------------------------------------------

def dequantize(name, data):
    """All elements of a whole number of blocks, flat."""
    if name == "F32":
        return np.frombuffer(data, "<f4").copy()
    if name == "F16":
        return np.frombuffer(data, "<f2").astype(f4)
    if name == "BF16":
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    elements, size = BLOCK[name]
    blocks = np.frombuffer(data, np.uint8).reshape(-1, size)
    out = np.zeros((len(blocks), elements), f4)
    element = {"Q8_0": _q8_0, "Q4_0": _q4_0, "Q4_K": _q4_k, "Q6_K": _q6_k}[name]
    for e in range(elements):
        out[:, e] = element(blocks, e)
    return out.reshape(-1)


def _q8_0(blocks, e):
    return _f16(blocks, 0) * blocks[:, 2 + e].view(np.int8).astype(f4)


def _q4_0(blocks, e):
    nibble = blocks[:, 2 + e % 16] >> (4 * (e // 16)) & 15
    return _f16(blocks, 0) * (nibble.astype(f4) - f4(8))


def _six_bits(blocks, group):
    """Scale and minimum of a group of a Q4_K block."""
    b = [blocks[:, 4 + i].astype(int) for i in range(12)]
    if group < 4:
        return b[group] % 64, b[group + 4] % 64
    return b[group + 4] % 16 + b[group - 4] // 64 * 16, b[group + 4] // 16 + b[group] // 64 * 16


def _q4_k(blocks, e):
    group = e // 32
    scale, minimum = _six_bits(blocks, group)
    byte = blocks[:, 16 + group // 2 * 32 + e % 32]
    code = byte // 16 if group % 2 else byte % 16
    return _f16(blocks, 0) * scale.astype(f4) * code.astype(f4) - _f16(blocks, 2) * minimum.astype(f4)


def _q6_k(blocks, e):
    half, quarter, i = e // 128, e % 128 // 32, e % 32
    low = blocks[:, half * 64 + quarter % 2 * 32 + i] >> (4 * (quarter // 2)) & 15
    high = blocks[:, 128 + half * 32 + i] >> (2 * quarter) & 3
    code = low.astype(int) + 16 * high.astype(int) - 32
    scale = blocks[:, 192 + e // 16].view(np.int8).astype(f4)
    return _f16(blocks, 208) * scale * code.astype(f4)


# --- floats to bytes -------------------------------------------------------------------------------------------------

def quantize(name, values):
    values = np.ascontiguousarray(values, f4).reshape(-1)
    if name == "F32":
        return values.tobytes()
    if name == "F16":
        return values.astype("<f2").tobytes()
    if name == "BF16":
        bits = values.view("<u4").astype(np.uint64)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes()
    blocks = values.reshape(-1, BLOCK[name][0])
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return {"Q8_0": _to_q8_0, "Q4_0": _to_q4_0, "Q4_K": _to_q4_k, "Q6_K": _to_q6_k}[name](blocks).tobytes()


def _half_bytes(x):
    return x.astype("<f2").view(np.uint8).reshape(-1, 2)


def _largest(x):
    """Of each row the first element of the largest magnitude; +0 where all are zeros of either sign."""
    return x[np.arange(len(x)), np.argmax(np.abs(x), axis=1)] + f4(0)


def _inverse(d):
    return np.where(d != 0, f4(1) / d, f4(0)).astype(f4)


def _to_q8_0(x):
    d = np.abs(_largest(x)) / f4(127)
    scaled = x * _inverse(d)[:, None]
    q = np.trunc(scaled + np.copysign(f4(0.5), scaled))  # exact: |scaled| ≤ 127, halves away from zero
    return np.hstack([_half_bytes(d), q.astype(np.int8).view(np.uint8)])


def _to_q4_0(x):
    d = _largest(x) / f4(-8)
    q = np.minimum(15, np.trunc(x * _inverse(d)[:, None] + f4(8.5))).astype(np.uint8)
    return np.hstack([_half_bytes(d), q[:, :16] | q[:, 16:] << 4])


def _sum(terms):
    total = np.zeros(len(terms[0]), f4)
    for term in terms:
        total = (total + term).astype(f4)
    return total


def _symmetric_scale(x, code_max):
    """[n, 16] → scales and codes in [0, 2·code_max) for the least Σ x²(x − s·l)²."""
    n = x.shape[1]
    top = _largest(x)
    weight = x * x

    def fit(inverse):
        codes = np.clip(np.rint(inverse[:, None] * x), -code_max, code_max - 1).astype(f4)
        return codes, _sum([weight[:, i] * x[:, i] * codes[:, i] for i in range(n)]), \
            _sum([weight[:, i] * codes[:, i] * codes[:, i] for i in range(n)])

    best_codes, lx, l2 = fit(f4(-code_max) / top)
    scale = np.where(l2 != 0, lx / l2, f4(0)).astype(f4)
    best = scale * lx
    for step in range(-9, 10):
        if step == 0:
            continue
        codes, lx, l2 = fit(-(f4(code_max) + f4(0.1) * f4(step)) / top)
        better = (l2 > 0) & (lx * lx > best * l2)
        best_codes = np.where(better[:, None], codes, best_codes)
        scale = np.where(better, lx / l2, scale).astype(f4)
        best = np.where(better, scale * lx, best).astype(f4)
    zero = np.abs(top) < f4(1e-15)
    return np.where(zero, f4(0), scale), np.where(zero[:, None], 0, best_codes + code_max).astype(int)


def _to_q6_k(x):
    blocks = len(x)
    scales, codes = _symmetric_scale(x.reshape(-1, 16), 32)
    scales, codes = scales.reshape(blocks, 16), codes.reshape(blocks, 16, 16)
    top = _largest(scales)
    inverse = f4(-128) / top
    d = (f4(1) / inverse).astype("<f2")
    integer = np.minimum(127, np.rint(inverse[:, None] * scales)).astype(np.int8)
    step = d.astype(f4)[:, None] * integer.astype(f4)
    again = np.clip(np.rint(x.reshape(blocks, 16, 16) / step[:, :, None]), -32, 31) + 32
    codes = np.where((step == 0)[:, :, None], codes, again).reshape(blocks, 256).astype(np.uint8)
    out = np.zeros((blocks, 210), np.uint8)
    for e in range(256):
        half, quarter, i = e // 128, e % 128 // 32, e % 32
        out[:, half * 64 + quarter % 2 * 32 + i] |= (codes[:, e] & 15) << (4 * (quarter // 2))
        out[:, 128 + half * 32 + i] |= (codes[:, e] >> 4) << (2 * quarter)
    out[:, 192:208] = integer.view(np.uint8)
    out[:, 208:210] = _half_bytes(d)
    out[np.abs(top) < f4(1e-15)] = 0
    return out


def _affine_scale(x):
    """[n, 32] → scale, minimum ≥ 0 and codes for the least Σ w(s·l − m − x)², l in 0..15, w = rms + |x|; each of 21 roundings starts
    from the best minimum so far."""
    n = x.shape[1]
    w = np.sqrt(_sum([x[:, i] * x[:, i] for i in range(n)]) / f4(n))[:, None] + np.abs(x)
    sum_w = _sum([w[:, i] for i in range(n)])
    sum_x = _sum([w[:, i] * x[:, i] for i in range(n)])
    low, high = np.minimum(x.min(axis=1), f4(0)), x.max(axis=1)
    width = high - low

    def codes_of(inverse, from_):
        return np.clip(np.rint(inverse[:, None] * (x - from_[:, None])), 0, 15).astype(f4)

    def error_of(codes, scale, offset):
        return _sum([w[:, i] * ((scale * codes[:, i] + offset - x[:, i]) ** 2) for i in range(n)])

    first = f4(15) / width
    scale, offset = f4(1) / first, low
    best_codes = codes_of(first, low)
    best = error_of(best_codes, scale, offset)
    for step in range(21):
        codes = codes_of((f4(-1) + f4(0.1) * f4(step) + f4(15)) / (high - offset), offset)
        l1 = _sum([w[:, i] * codes[:, i] for i in range(n)])
        l2 = _sum([w[:, i] * codes[:, i] * codes[:, i] for i in range(n)])
        xl = _sum([w[:, i] * codes[:, i] * x[:, i] for i in range(n)])
        determinant = sum_w * l2 - l1 * l1
        s = (sum_w * xl - sum_x * l1) / determinant
        o = (l2 * sum_x - l1 * xl) / determinant
        s, o = np.where(o > 0, xl / l2, s).astype(f4), np.minimum(o, f4(0))
        error = error_of(codes, s, o)
        better = (determinant > 0) & (error < best)
        best_codes = np.where(better[:, None], codes, best_codes)
        best, scale, offset = (np.where(better, new, old).astype(f4)
                               for new, old in ((error, best), (s, scale), (o, offset)))
    flat = width == 0
    return np.where(flat, f4(0), scale), np.where(flat, -low, -offset), np.where(flat[:, None], f4(0), best_codes)


def _to_q4_k(x):
    blocks = len(x)
    scales, minima, first_codes = _affine_scale(x.reshape(-1, 32))
    scales, minima = scales.reshape(blocks, 8), minima.reshape(blocks, 8)
    top = np.maximum(scales.max(axis=1), f4(0)), np.maximum(minima.max(axis=1), f4(0))
    integer = [np.minimum(63, np.rint(np.where(t > 0, f4(63) / t, f4(0)).astype(f4)[:, None] * part)).astype(np.uint8)
               for t, part in zip(top, (scales, minima))]
    d, dmin = ((t / f4(63)).astype("<f2") for t in top)
    step = d.astype(f4)[:, None] * integer[0].astype(f4)
    offset = dmin.astype(f4)[:, None] * integer[1].astype(f4)
    codes = np.clip(np.rint((x.reshape(blocks, 8, 32) + offset[:, :, None]) / step[:, :, None]), 0, 15)
    codes = np.where((step == 0)[:, :, None], first_codes.reshape(blocks, 8, 32), codes).astype(np.uint8)
    out = np.zeros((blocks, 144), np.uint8)
    out[:, 0:2], out[:, 2:4] = _half_bytes(d), _half_bytes(dmin)
    for g in range(8):
        s, m = integer[0][:, g], integer[1][:, g]
        if g < 4:
            out[:, 4 + g] |= s
            out[:, 8 + g] |= m
        else:
            out[:, 8 + g] |= s & 15 | (m & 15) << 4
            out[:, g] |= s >> 4 << 6
            out[:, 4 + g] |= m >> 4 << 6
        out[:, 16 + g // 2 * 32:48 + g // 2 * 32] |= codes[:, g] << (4 * (g % 2))
    return out
