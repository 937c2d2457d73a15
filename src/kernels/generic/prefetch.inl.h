// Asking for weights before they are needed.

// For tiles that read weights from memory: 8 KiB in flight over all P streams, some 100 lines, are what one core of a
// server CPU can have outstanding.
template <int P>
QUIRE_INLINE void PrefetchAhead(const std::byte* weights) {
  __builtin_prefetch(weights + 8192 / P);
}

// For tiles that read weights from the L1 cache: a part of the stretch that comes next, into the L2 cache (the L1 holds
// the present stretch). The part is the same range of bytes in each of P panels, and is asked for evenly over the tile's
// inner loop: a burst would hold up the tile's own loads behind it. Tiles take it by reference and copy it member by member:
// copied as a whole by the caller, it is read back by one load before the stores of its members have left the store buffer,
// which costs a tenth of a matrix tile's time.
struct Prefetch {
  const std::byte* next = nullptr;
  const std::byte* end = nullptr;  // of the range in the first panel
  std::int64_t step_bytes = 64;    // a call asks for the lines in these

  // Part `index` of `count` of `bytes` bytes from `stretch` on, for a loop of `num_calls` rounds.
  static Prefetch Part(const std::byte* stretch, std::int64_t bytes, std::int64_t index, std::int64_t count,
                       std::int64_t num_calls) {
    const std::int64_t part = (bytes / count + 63) / 64 * 64;
    return {stretch + part * index, stretch + part * (index + 1), (part / num_calls + 63) / 64 * 64};
  }

  template <int P>
  QUIRE_INLINE void Next(std::size_t panel_bytes) {
    const std::byte* const stop = next + step_bytes < end ? next + step_bytes : end;
    for (; next < stop; next += 64) {
      QUIRE_UNROLL for (int p = 0; p < P; ++p) __builtin_prefetch(next + p * panel_bytes, 0, 2);
    }
  }
};
