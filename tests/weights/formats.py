"""The storage formats in numpy, from their definition: dequantizers that look every element up by its place in the
block, and quantizers whose float32 operations are in the order that the reference quantizers define. Written without
sight of the C++; blocks are vectorised, elements of a block are walked one by one."""
import numpy as np

f4 = np.float32
BLOCK = {"F32": (1, 4), "F16": (1, 2), "BF16": (1, 2), "Q8_0": (32, 34), "Q4_0": (32, 18), "Q4_1": (32, 20),
         "Q5_0": (32, 22), "Q5_1": (32, 24), "Q2_K": (256, 84), "Q3_K": (256, 110), "Q4_K": (256, 144), "Q5_K": (256, 176),
         "Q6_K": (256, 210), "Q8_K": (256, 292), "IQ4_NL": (32, 18), "IQ4_XS": (256, 136), "MXFP4": (32, 17)}
READ_ONLY = ("Q8_K", "IQ4_XS")
# Where the F16 scales of a block are.
SCALES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0]}
IQ4_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], f4)
FP4_VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6] * 2, f4) * np.repeat([1, -1], 8).astype(f4)


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
    element = {"Q8_0": _q8_0, "Q4_0": _q4_0, "Q4_1": _q4_1, "Q5_0": _q5_0, "Q5_1": _q5_1, "Q2_K": _q2_k, "Q3_K": _q3_k,
               "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k, "Q8_K": _q8_k, "IQ4_NL": _iq4_nl, "IQ4_XS": _iq4_xs,
               "MXFP4": _mxfp4}[name]
    for e in range(elements):
        out[:, e] = element(blocks, e)
    return out.reshape(-1)


def _q8_0(blocks, e):
    return _f16(blocks, 0) * blocks[:, 2 + e].view(np.int8).astype(f4)


def _q4_0(blocks, e):
    nibble = blocks[:, 2 + e % 16] >> (4 * (e // 16)) & 15
    return _f16(blocks, 0) * (nibble.astype(f4) - f4(8))


def _nibble(blocks, at, e):
    """Of element e of 32, whose nibbles begin at byte `at`."""
    byte = blocks[:, at + e % 16].astype(int)
    return byte // 16 if e >= 16 else byte % 16


def _fifth_bit(blocks, at, e):
    return blocks[:, at + e // 8].astype(int) >> (e % 8) & 1


def _q4_1(blocks, e):
    return _f16(blocks, 0) * _nibble(blocks, 4, e).astype(f4) + _f16(blocks, 2)


def _q5_0(blocks, e):
    code = _nibble(blocks, 6, e) + 16 * _fifth_bit(blocks, 2, e)
    return _f16(blocks, 0) * (code - 16).astype(f4)


def _q5_1(blocks, e):
    code = _nibble(blocks, 8, e) + 16 * _fifth_bit(blocks, 4, e)
    return _f16(blocks, 0) * code.astype(f4) + _f16(blocks, 2)


def _iq4_nl(blocks, e):
    return _f16(blocks, 0) * IQ4_VALUES[_nibble(blocks, 2, e)]


def _mxfp4(blocks, e):
    scale = np.ldexp(1.0, blocks[:, 0].astype(int) - 127)  # in double, for float cannot hold all of them
    return (scale * FP4_VALUES[_nibble(blocks, 1, e)].astype(float)).astype(f4)


def _q2_k(blocks, e):
    both = blocks[:, e // 16].astype(int)
    code = blocks[:, 16 + e // 128 * 32 + e % 32] >> (e % 128 // 32 * 2) & 3
    return _f16(blocks, 80) * (both % 16).astype(f4) * code.astype(f4) - _f16(blocks, 82) * (both // 16).astype(f4)


def _q3_k(blocks, e):
    group = e // 16
    low = blocks[:, 96 + group % 8].astype(int)
    low = low // 16 if group >= 8 else low % 16
    scale = low + 16 * (blocks[:, 104 + group % 4].astype(int) >> (2 * (group // 4)) & 3) - 32
    pair = blocks[:, 32 + e // 128 * 32 + e % 32].astype(int) >> (e % 128 // 32 * 2) & 3
    third = blocks[:, e % 32].astype(int) >> (e // 32) & 1
    return _f16(blocks, 108) * scale.astype(f4) * (pair + 4 * third - 4).astype(f4)


def _q5_k(blocks, e):
    group = e // 32
    scale, minimum = _six_bits(blocks, group)
    byte = blocks[:, 48 + group // 2 * 32 + e % 32].astype(int)
    code = (byte // 16 if group % 2 else byte % 16) + 16 * (blocks[:, 16 + e % 32].astype(int) >> group & 1)
    return _f16(blocks, 0) * scale.astype(f4) * code.astype(f4) - _f16(blocks, 2) * minimum.astype(f4)


def _q8_k(blocks, e):
    return np.ascontiguousarray(blocks[:, :4]).view("<f4")[:, 0] * blocks[:, 4 + e].view(np.int8).astype(f4)


def _iq4_xs(blocks, e):
    group = e // 32
    low = blocks[:, 4 + group // 2].astype(int) >> (group % 2 * 4) & 15
    high = blocks[:, 2 + group // 4].astype(int) >> (group % 4 * 2) & 3
    scale = (low + 16 * high - 32).astype(f4)
    return _f16(blocks, 0) * scale * IQ4_VALUES[_nibble(blocks[:, 8 + group * 16:24 + group * 16], 0, e % 32)]


def _six_bits(blocks, group):
    """Scale and minimum of a group of a Q4_K or Q5_K block."""
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
        return {"Q8_0": _to_q8_0, "Q4_0": _to_q4_0, "Q4_1": _to_q4_1, "Q5_0": _to_q5_0, "Q5_1": _to_q5_1, "Q2_K": _to_q2_k,
                "Q3_K": _to_q3_k, "Q4_K": _to_q4_k, "Q5_K": _to_q5_k, "Q6_K": _to_q6_k, "IQ4_NL": _to_iq4_nl,
                "MXFP4": _to_mxfp4}[name](blocks).tobytes()


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


def _pack(codes):
    """[n, 32] codes of up to five bits → the fifth bits as four bytes, the nibbles as sixteen."""
    codes = codes.astype(np.uint8)
    fifth = np.packbits(codes >> 4 & 1, axis=1, bitorder="little")
    return fifth, (codes[:, :16] & 15) | (codes[:, 16:] & 15) << 4


def _to_q5_0(x):
    d = _largest(x) / f4(-16)
    fifth, nibbles = _pack(np.minimum(31, np.trunc(x * _inverse(d)[:, None] + f4(16.5))))
    return np.hstack([_half_bytes(d), fifth, nibbles])


def _range(x, code_max):
    low, high = (x[np.arange(len(x)), at] for at in (x.argmin(axis=1), x.argmax(axis=1)))  # zeros have signs: the first
    d = (high - low) / f4(code_max)
    codes = np.minimum(code_max, np.trunc((x - low[:, None]) * _inverse(d)[:, None] + f4(0.5)))
    return np.hstack([_half_bytes(d), _half_bytes(low)]), _pack(codes)


def _to_q4_1(x):
    head, (_, nibbles) = _range(x, 15)
    return np.hstack([head, nibbles])


def _to_q5_1(x):
    head, (fifth, nibbles) = _range(x, 31)
    return np.hstack([head, fifth, nibbles])


def _nearest_iq4(x):
    """Index of the nearest value, of the upper one where two are equally near."""
    upper = np.clip(np.searchsorted(IQ4_VALUES, x, side="right"), 1, 15)
    return np.where(x - IQ4_VALUES[upper - 1] < IQ4_VALUES[upper] - x, upper - 1, upper)


def _to_iq4_nl(x):
    top = _largest(x)
    weight = x * x

    def fit(inverse):
        q = IQ4_VALUES[_nearest_iq4(inverse[:, None] * x)]
        return _sum([weight[:, i] * q[:, i] * x[:, i] for i in range(32)]), \
            _sum([weight[:, i] * q[:, i] * q[:, i] for i in range(32)])

    qx, q2 = fit(f4(1) / (-top / IQ4_VALUES[0]))
    scale = qx / q2
    best = scale * qx
    for step in range(-7, 8):
        qx, q2 = fit((f4(step) + IQ4_VALUES[0]) / top)
        better = (q2 > 0) & (qx * qx > best * q2)
        scale = np.where(better, qx / q2, scale).astype(f4)
        best = np.where(better, scale * qx, best).astype(f4)
    scale = np.where(np.abs(top) < f4(1e-15), f4(0), scale)
    _, nibbles = _pack(_nearest_iq4(_inverse(scale)[:, None] * x))
    return np.hstack([_half_bytes(scale), nibbles])


def _to_mxfp4(x):
    top = np.abs(_largest(x))
    exponent = np.where(top > 0, np.floor(np.log2(top.astype(f4))) - 2 + 127, 0).clip(0, 254).astype(int)
    scale = np.ldexp(1.0, exponent - 128).astype(f4)
    errors = np.abs((2 * FP4_VALUES)[None, None, :] * scale[:, None, None] - x[:, :, None])
    _, nibbles = _pack(errors.argmin(axis=2))  # the first of equals
    return np.hstack([exponent.astype(np.uint8)[:, None], nibbles])


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


def _rms_weights(x):
    n = x.shape[1]
    return np.sqrt(_sum([x[:, i] * x[:, i] for i in range(n)]) / f4(n))[:, None] + np.abs(x)


def _affine_scale(x, w, code_max, first_step, steps, power):
    """[n, group] → scale, minimum ≥ 0 and codes for the least Σ w|s·l − m − x|^power, l in 0..code_max; each
    rounding starts from the best minimum so far."""
    n = x.shape[1]
    sum_w = _sum([w[:, i] for i in range(n)])
    sum_x = _sum([w[:, i] * x[:, i] for i in range(n)])
    low, high = np.minimum(x.min(axis=1), f4(0)), x.max(axis=1)
    width = high - low

    def codes_of(inverse, from_):
        return np.clip(np.rint(inverse[:, None] * (x - from_[:, None])), 0, code_max).astype(f4)

    def error_of(codes, scale, offset):
        difference = [np.abs(scale * codes[:, i] + offset - x[:, i]) for i in range(n)]
        return _sum([w[:, i] * (difference[i] ** 2 if power == 2 else difference[i]) for i in range(n)])

    first = f4(code_max) / width
    scale, offset = f4(1) / first, low
    best_codes = codes_of(first, low)
    best = error_of(best_codes, scale, offset)
    for step in range(steps + 1):
        codes = codes_of((f4(first_step) + f4(0.1) * f4(step) + f4(code_max)) / (high - offset), offset)
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


def _affine_block(x, group, code_max, scale_max, first_step, steps, power):
    """Blocks of 256 → d, dmin, scales, minima and codes."""
    blocks, groups = len(x), 256 // group
    flat = x.reshape(-1, group)
    weights = _rms_weights(flat) if power == 2 else np.abs(flat)
    scales, minima, first_codes = _affine_scale(flat, weights, code_max, first_step, steps, power)
    scales, minima = scales.reshape(blocks, groups), minima.reshape(blocks, groups)
    top = np.maximum(scales.max(axis=1), f4(0)), np.maximum(minima.max(axis=1), f4(0))
    limit = f4(scale_max)
    integer = [np.minimum(scale_max, np.rint(np.where(t > 0, limit / t, f4(0)).astype(f4)[:, None] * part)).astype(np.uint8)
               for t, part in zip(top, (scales, minima))]
    d, dmin = ((t / limit).astype("<f2") for t in top)
    step = d.astype(f4)[:, None] * integer[0].astype(f4)
    offset = dmin.astype(f4)[:, None] * integer[1].astype(f4)
    codes = np.clip(np.rint((x.reshape(blocks, groups, group) + offset[:, :, None]) / step[:, :, None]), 0, code_max)
    codes = np.where((step == 0)[:, :, None], first_codes.reshape(blocks, groups, group), codes).astype(np.uint8)
    return d, dmin, integer[0], integer[1], codes


def _to_q2_k(x):
    d, dmin, scales, minima, codes = _affine_block(x, 16, 3, 15, -0.5, 15, 1)
    return np.hstack([scales | minima << 4, _pairs(codes.reshape(-1, 256)), _half_bytes(d), _half_bytes(dmin)])


def _pairs(codes):
    """Two bits of each of 256 codes."""
    out = np.zeros((len(codes), 64), np.uint8)
    for e in range(256):
        out[:, e // 128 * 32 + e % 32] |= (codes[:, e] & 3) << (e % 128 // 32 * 2)
    return out


def _to_q3_k(x):
    blocks, flat = len(x), x.reshape(-1, 16)
    top = _largest(flat)
    inverse = f4(-4) / top
    weight = flat * flat
    codes = np.clip(np.rint(inverse[:, None] * flat), -4, 3).astype(f4)
    lx = _sum([weight[:, i] * flat[:, i] * codes[:, i] for i in range(16)])
    l2 = _sum([weight[:, i] * codes[:, i] * codes[:, i] for i in range(16)])
    active = np.ones(len(flat), bool)
    for _ in range(5):
        changed = np.zeros(len(flat), bool)
        for i in range(16):
            w, v, old = weight[:, i], flat[:, i], codes[:, i]
            other_lx, other_l2 = lx - w * v * old, l2 - w * old * old
            new = np.clip(np.rint(v * other_l2 / other_lx), -4, 3).astype(f4)
            try_it = active & (other_lx > 0) & (new != old)
            new_lx, new_l2 = other_lx + w * v * new, other_l2 + w * new * new
            better = try_it & (new_l2 > 0) & (new_lx * new_lx * l2 > lx * lx * new_l2)
            codes[:, i] = np.where(better, new, old)
            lx, l2 = np.where(better, new_lx, lx), np.where(better, new_l2, l2)
            changed |= better
        active = changed
    zero = np.abs(top) < f4(1e-15)
    scales = np.where(zero | ~(l2 > 0), f4(0), lx / l2).astype(f4).reshape(blocks, 16)
    codes = np.where(zero[:, None], 0, codes + 4).reshape(blocks, 16, 16)
    top = _largest(scales)
    inverse = f4(-32) / top
    d = np.where(top != 0, f4(1) / inverse, f4(0)).astype("<f2")
    integer = np.clip(np.rint(np.where(top != 0, inverse, 0).astype(f4)[:, None] * scales), -32, 31)
    step = d.astype(f4)[:, None] * integer.astype(f4)
    again = np.clip(np.rint(x.reshape(blocks, 16, 16) / step[:, :, None]), -4, 3) + 4
    codes = np.where((step == 0)[:, :, None], codes, again).reshape(blocks, 256).astype(np.uint8)
    packed = np.zeros((blocks, 12), np.uint8)
    six = np.where((top != 0)[:, None], integer + 32, 0).astype(np.uint8)
    for g in range(16):
        packed[:, g % 8] |= (six[:, g] & 15) << (4 * (g // 8))
        packed[:, 8 + g % 4] |= (six[:, g] >> 4) << (2 * (g // 4))
    high = np.packbits((codes >> 2 & 1).reshape(blocks, 8, 32), axis=1, bitorder="little").reshape(blocks, 32)
    return np.hstack([high, _pairs(codes), packed, _half_bytes(d)])


def _scale_bytes(scales, minima):
    out = np.zeros((len(scales), 12), np.uint8)
    for g in range(8):
        s, m = scales[:, g], minima[:, g]
        if g < 4:
            out[:, g] |= s
            out[:, 4 + g] |= m
        else:
            out[:, 4 + g] |= s & 15 | (m & 15) << 4
            out[:, g - 4] |= s >> 4 << 6
            out[:, g] |= m >> 4 << 6
    return out


def _nibble_pairs(codes):
    """[n, 8, 32] → 128 bytes."""
    return ((codes[:, 0::2] & 15) | (codes[:, 1::2] & 15) << 4).reshape(len(codes), 128)


def _to_q4_k(x):
    d, dmin, scales, minima, codes = _affine_block(x, 32, 15, 63, -1, 20, 2)
    return np.hstack([_half_bytes(d), _half_bytes(dmin), _scale_bytes(scales, minima), _nibble_pairs(codes)])


def _to_q5_k(x):
    d, dmin, scales, minima, codes = _affine_block(x, 32, 31, 63, -0.5, 15, 2)
    fifth = np.packbits(codes >> 4 & 1, axis=1, bitorder="little").reshape(len(x), 32)
    return np.hstack([_half_bytes(d), _half_bytes(dmin), _scale_bytes(scales, minima), fifth, _nibble_pairs(codes)])
