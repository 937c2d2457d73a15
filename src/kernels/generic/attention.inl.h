// Paged causal attention. A row is one query head at one position. Rows of one KV head are computed together
// so that keys and values are read once for several of them, but every row goes through its own fixed
// sequence of operations:
//
//   for each partition of 256 positions that the row sees, in ascending order
//     scores s = (Σ over dimension pairs, ascending) · scale · log2(e); −∞ where the row does not see the key
//     m' = max s;  p = 2^(s − m'), rounded to an element;  l' = Σ p, by token mod 16, then across lanes
//     o' = Σ p · v over its tokens, ascending, two at a time for BF16
//     merge (m', l', o') into (m, l, o)
//   out = o / l
//
// Tokens that a row does not see are not multiplied with zero but left out (or, for one half of a BF16 pair,
// masked in V itself): whatever their bytes are, NaN included, they cannot change a bit of the row.

struct Bf16Cache {
  static constexpr std::int64_t kTokensPerStep = 2;
  using QueryElement = Element;
  using Weights = PairWeights;
  static std::int64_t ScoreSteps(std::int64_t head_dim) { return head_dim / 2; }
  QUIRE_INLINE static F32 Score(F32 sum, const std::byte* k, const Element* q) {
    return DotPair(sum, LoadPairs(k), LoadPairInput(q));
  }
  QUIRE_INLINE static Weights LoadKey(const std::byte* p) { return LoadPairs(p); }
  QUIRE_INLINE static Weights LoadValue(const std::byte* p, std::int64_t n) { return LoadPartPairs(p, n); }
  QUIRE_INLINE static F32 Dot(F32 sum, Weights w, const Element* p) { return DotPair(sum, w, LoadPairInput(p)); }
  QUIRE_INLINE static Weights Only(Weights w, bool even, bool odd) {
    return even && odd ? w : even ? OnlyEven(w) : OnlyOdd(w);
  }
  QUIRE_INLINE static void Store(Element* p, F32 x) { StoreElements(p, x); }
  QUIRE_INLINE static F32 Round(F32 x) { return RoundElements(x); }
};

struct F32Cache {
  static constexpr std::int64_t kTokensPerStep = 1;
  using QueryElement = float;
  using Weights = F32;
  static std::int64_t ScoreSteps(std::int64_t head_dim) { return head_dim; }
  QUIRE_INLINE static Weights LoadKey(const std::byte* p) { return LoadF(p); }
  QUIRE_INLINE static Weights LoadValue(const std::byte* p, std::int64_t n) { return LoadPartF(p, n); }
  QUIRE_INLINE static F32 Dot(F32 sum, Weights w, const float* p) { return Fma(w, SetF(*p), sum); }
  QUIRE_INLINE static Weights Only(Weights w, bool, bool) { return w; }
  QUIRE_INLINE static void Store(float* p, F32 x) { StoreF(p, x); }
  QUIRE_INLINE static F32 Round(F32 x) { return x; }
};

inline constexpr std::int64_t kTokens = KvLayout::block_size;
// Rows whose running state is kept while a partition passes over them: 8 tiles of rows read each key from a
// near cache.
inline constexpr std::int64_t kRowsInFlight = 64;

inline std::int64_t PaddedHeadDim(std::int64_t head_dim) {
  return (head_dim + kLanes - 1) / kLanes * kLanes;
}

// The scratch memory of one call. Element arrays have room for floats on every tier.
struct AttentionScratch {
  float* queries;        // [kRowsInFlight][padded] elements
  float* outputs;        // [kRowsInFlight][padded] o
  float* largest;        // [kRowsInFlight] m
  float* total;          // [kRowsInFlight] l
  float* scores;         // [kAttentionRows][256]
  float* probabilities;  // [kAttentionRows][256] elements
  float* partial;        // [kAttentionRows][padded] o'
  std::size_t bytes;

  AttentionScratch(std::byte* memory, std::int64_t padded) {
    auto* next = reinterpret_cast<float*>(memory);
    std::size_t taken = 0;
    const auto take = [&](std::int64_t floats) {
      float* piece = memory == nullptr ? nullptr : next + taken;
      taken += static_cast<std::size_t>(floats);
      return piece;
    };
    queries = take(kRowsInFlight * padded);
    outputs = take(kRowsInFlight * padded);
    largest = take(kRowsInFlight);
    total = take(kRowsInFlight);
    scores = take(kAttentionRows * kAttentionPartition);
    probabilities = take(kAttentionRows * kAttentionPartition);
    partial = take(kAttentionRows * padded);
    bytes = taken * sizeof(float);
  }
};

inline std::size_t AttentionScratchBytes(const KvLayout& layout, int /*group*/) {
  return AttentionScratch(nullptr, PaddedHeadDim(layout.head_dim)).bytes;
}

// A partition of one sequence, and the keys in it that a row sees: [begin, end), counted from the partition's
// start.
struct Visible {
  std::int64_t begin, end;
};

template <typename Cache>
struct Attention {
  using QueryElement = typename Cache::QueryElement;

  const AttentionArgs& args;
  const std::int64_t head_dim, padded;
  const std::int64_t first_row, num_rows;  // of the rows in flight, counted over queries · group
  const AttentionScratch scratch;

  std::int64_t Position(std::int64_t row) const { return args.first_position + (first_row + row) / args.group; }
  std::int64_t FirstKey(std::int64_t row) const {
    const std::int64_t first = Position(row) - args.window + 1;
    return args.window > 0 && first > 0 ? first : 0;
  }
  Visible VisibleIn(std::int64_t partition, std::int64_t row) const {
    const std::int64_t start = partition * kAttentionPartition;
    const std::int64_t begin = FirstKey(row) - start, end = Position(row) + 1 - start;
    return {begin > 0 ? begin : 0, end < kAttentionPartition ? end : kAttentionPartition};
  }
  const std::byte* KeyTile(std::int64_t partition, std::int64_t tile) const {
    const std::int64_t block = args.blocks[partition * (kAttentionPartition / kTokens) + tile];
    return args.pool + static_cast<std::size_t>(block) * args.layout->block_bytes() +
           args.layout->tile_offset(args.layer, args.kv_head);
  }
  QueryElement* Queries(std::int64_t row) const {
    return reinterpret_cast<QueryElement*>(scratch.queries + row * padded);
  }
  QueryElement* Probabilities(std::int64_t slot) const {
    return reinterpret_cast<QueryElement*>(scratch.probabilities + slot * kAttentionPartition);
  }

  void LoadQueries() const {
    for (std::int64_t row = 0; row < num_rows; ++row) {
      const std::int64_t global = first_row + row;
      const float* q = args.q + global / args.group * args.q_stride + global % args.group * head_dim;
      for (std::int64_t d = 0; d < head_dim; d += kLanes) {
        const std::int64_t count = head_dim - d < kLanes ? head_dim - d : kLanes;
        Cache::Store(Queries(row) + d, LoadPartF(q + d, count));
      }
    }
  }

  // Scores of R rows from `row` against T tiles of 16 tokens, unscaled, to scores[slot].
  template <int R, int T>
  [[gnu::noinline]] void ScoreTiles(std::int64_t partition, std::int64_t tile, std::int64_t row) const {
    const std::byte* keys[T];
    QUIRE_UNROLL for (int t = 0; t < T; ++t) keys[t] = KeyTile(partition, tile + t);
    F32 sum[R][T];
    QUIRE_UNROLL for (int r = 0; r < R; ++r) {
      QUIRE_UNROLL for (int t = 0; t < T; ++t) sum[r][t] = ZeroF();
    }
    const QueryElement* q = Queries(row);
    const std::int64_t row_elements = Queries(1) - Queries(0);
    const std::int64_t steps = Cache::ScoreSteps(head_dim), per_step = head_dim / steps;
    for (std::int64_t step = 0; step < steps; ++step) {
      QUIRE_UNROLL for (int t = 0; t < T; ++t) {
        const auto k = Cache::LoadKey(keys[t] + step * 64);
        QUIRE_UNROLL for (int r = 0; r < R; ++r) {
          sum[r][t] = Cache::Dot(sum[r][t], k, q + r * row_elements + step * per_step);
        }
      }
    }
    QUIRE_UNROLL for (int r = 0; r < R; ++r) {
      QUIRE_UNROLL for (int t = 0; t < T; ++t) {
        StoreF(scratch.scores + r * kAttentionPartition + (tile + t) * kTokens, sum[r][t]);
      }
    }
  }

  // The softmax of one row over the keys it sees in the partition: scores become probabilities. Returns l';
  // m' goes to *largest.
  float Softmax(std::int64_t slot, Visible visible, float* largest) const {
    float* scores = scratch.scores + slot * kAttentionPartition;
    const F32 factor = SetF(args.scale * 1.44269504f);
    const std::int64_t first_tile = visible.begin / kTokens, end_tile = (visible.end + kTokens - 1) / kTokens;
    F32 max = SetF(-__builtin_inff());
    for (std::int64_t tile = first_tile; tile < end_tile; ++tile) {
      F32 s = Mul(LoadF(scores + tile * kTokens), factor);
      const std::int64_t begin = visible.begin - tile * kTokens, end = visible.end - tile * kTokens;
      if (begin > 0 || end < kTokens) {
        s = Select(LanesBetween(begin > 0 ? begin : 0, end < kTokens ? end : kTokens), s, SetF(-__builtin_inff()));
      }
      StoreF(scores + tile * kTokens, s);
      max = Max(max, s);
    }
    *largest = ReduceMax(max);
    F32 sum = ZeroF();
    for (std::int64_t tile = first_tile; tile < end_tile; ++tile) {
      const F32 p = Exp2OfNonPositive(Sub(LoadF(scores + tile * kTokens), SetF(*largest)));
      Cache::Store(Probabilities(slot) + tile * kTokens, p);
      sum = Add(sum, Cache::Round(p));
    }
    return ReduceAdd(sum);
  }

  // partial[slot …] += p · v for R rows over steps [begin, end) of the partition, D vectors of dimensions
  // from `dim`. `even` and `odd` say which tokens of a step count (BF16).
  template <int R, int D, bool kWhole>
  [[gnu::noinline]] void WeighValues(std::int64_t partition, std::int64_t slot, std::int64_t begin, std::int64_t end,
                                     std::int64_t dim, bool even, bool odd) const {
    constexpr std::int64_t kStepsPerTile = kTokens / Cache::kTokensPerStep;
    F32 sum[R][D];
    QUIRE_UNROLL for (int r = 0; r < R; ++r) {
      QUIRE_UNROLL for (int d = 0; d < D; ++d) {
        sum[r][d] = LoadF(scratch.partial + (slot + r) * padded + dim + d * kLanes);
      }
    }
    const std::int64_t tail = head_dim - dim - (D - 1) * kLanes < kLanes ? head_dim - dim - (D - 1) * kLanes : kLanes;
    const QueryElement* p = Probabilities(slot);
    const std::int64_t row_elements = Probabilities(1) - Probabilities(0);
    for (std::int64_t tile = begin / kStepsPerTile; tile * kStepsPerTile < end; ++tile) {
      const std::byte* values = KeyTile(partition, tile) + args.layout->tile_bytes() + dim * 4;
      const std::int64_t tile_begin = tile * kStepsPerTile, tile_end = tile_begin + kStepsPerTile;
      const std::int64_t last = end < tile_end ? end : tile_end;
      for (std::int64_t step = begin > tile_begin ? begin : tile_begin; step < last; ++step) {
        const std::byte* v = values + (step - tile_begin) * head_dim * 4;
        QUIRE_UNROLL for (int d = 0; d < D; ++d) {
          auto w = Cache::LoadValue(v + d * 64, d == D - 1 ? tail : kLanes);
          if constexpr (!kWhole) w = Cache::Only(w, even, odd);
          QUIRE_UNROLL for (int r = 0; r < R; ++r) {
            sum[r][d] = Cache::Dot(sum[r][d], w, p + r * row_elements + step * Cache::kTokensPerStep);
          }
        }
      }
    }
    QUIRE_UNROLL for (int r = 0; r < R; ++r) {
      QUIRE_UNROLL for (int d = 0; d < D; ++d) {
        StoreF(scratch.partial + (slot + r) * padded + dim + d * kLanes, sum[r][d]);
      }
    }
  }

  // WeighValues over all dimensions.
  template <int R, bool kWhole = true>
  void WeighSteps(std::int64_t partition, std::int64_t slot, std::int64_t begin, std::int64_t end, bool even = true,
                  bool odd = true) const {
    std::int64_t dim = 0;
    for (; dim + kLanes < head_dim; dim += 2 * kLanes) {
      WeighValues<R, 2, kWhole>(partition, slot, begin, end, dim, even, odd);
    }
    if (dim < head_dim) WeighValues<R, 1, kWhole>(partition, slot, begin, end, dim, even, odd);
  }

  template <int R>
  void WeighShared(std::int64_t rows, std::int64_t partition, std::int64_t begin, std::int64_t end) const {
    if constexpr (R > 1) {
      if (rows < R) return WeighShared<R - 1>(rows, partition, begin, end);
    }
    WeighSteps<R>(partition, 0, begin, end);
  }

  // One row's values for tokens [begin, end) of the partition, which may begin or end inside a step.
  void WeighRagged(std::int64_t partition, std::int64_t slot, std::int64_t begin, std::int64_t end) const {
    constexpr std::int64_t kStep = Cache::kTokensPerStep;
    if (begin >= end) return;
    if (begin % kStep != 0) {
      WeighSteps<1, false>(partition, slot, begin / kStep, begin / kStep + 1, false, true);
      ++begin;
    }
    if (begin / kStep < end / kStep) WeighSteps<1>(partition, slot, begin / kStep, end / kStep);
    if (end % kStep != 0 && begin < end) {
      WeighSteps<1, false>(partition, slot, end / kStep, end / kStep + 1, true, false);
    }
  }

  template <int R>
  void ScoresOf(std::int64_t rows, std::int64_t partition, std::int64_t first_tile, std::int64_t end_tile,
                std::int64_t row) const {
    if constexpr (R > 1) {
      if (rows < R) return ScoresOf<R - 1>(rows, partition, first_tile, end_tile, row);
    }
    std::int64_t tile = first_tile;
    for (; tile + 2 <= end_tile; tile += 2) ScoreTiles<R, 2>(partition, tile, row);
    if (tile < end_tile) ScoreTiles<R, 1>(partition, tile, row);
  }

  // (m', l', o') of `slot` into (m, l, o) of `row`.
  void Merge(std::int64_t slot, std::int64_t row, float largest, float total, bool is_first) const {
    float* o = scratch.outputs + row * padded;
    const float* part = scratch.partial + slot * padded;
    if (is_first) {
      for (std::int64_t d = 0; d < padded; d += kLanes) StoreF(o + d, LoadF(part + d));
      scratch.largest[row] = largest;
      scratch.total[row] = total;
      return;
    }
    const F32 before = SetF(scratch.largest[row]), now = SetF(largest), max = Max(before, now);
    const F32 keep = Exp2OfNonPositive(Sub(before, max)), take = Exp2OfNonPositive(Sub(now, max));
    for (std::int64_t d = 0; d < padded; d += kLanes) {
      StoreF(o + d, Fma(LoadF(part + d), take, Mul(LoadF(o + d), keep)));
    }
    StorePartF(scratch.largest + row, max, 1);
    StorePartF(scratch.total + row, Fma(SetF(total), take, Mul(SetF(scratch.total[row]), keep)), 1);
  }

  // Rows [row, row + rows), all of which see something of the partition.
  void RunTile(std::int64_t partition, std::int64_t row, std::int64_t rows) const {
    constexpr std::int64_t kStep = Cache::kTokensPerStep;
    Visible visible[kAttentionRows];
    std::int64_t all_begin = 0, all_end = kAttentionPartition, any_begin = kAttentionPartition, any_end = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      visible[r] = VisibleIn(partition, row + r);
      all_begin = visible[r].begin > all_begin ? visible[r].begin : all_begin;
      all_end = visible[r].end < all_end ? visible[r].end : all_end;
      any_begin = visible[r].begin < any_begin ? visible[r].begin : any_begin;
      any_end = visible[r].end > any_end ? visible[r].end : any_end;
    }
    ScoresOf<kAttentionRows>(rows, partition, any_begin / kTokens, (any_end + kTokens - 1) / kTokens, row);
    float largest[kAttentionRows], total[kAttentionRows];
    for (std::int64_t r = 0; r < rows; ++r) total[r] = Softmax(r, visible[r], &largest[r]);

    // Whole steps that all rows see are shared; what sticks out at either end is each row's own.
    std::int64_t shared_begin = (all_begin + kStep - 1) / kStep * kStep, shared_end = all_end / kStep * kStep;
    if (shared_begin >= shared_end) shared_begin = shared_end = kAttentionPartition;  // nothing shared
    for (std::int64_t r = 0; r < rows; ++r) {
      float* partial = scratch.partial + r * padded;
      for (std::int64_t d = 0; d < padded; d += kLanes) StoreF(partial + d, ZeroF());
      WeighRagged(partition, r, visible[r].begin, visible[r].end < shared_begin ? visible[r].end : shared_begin);
    }
    if (shared_begin < shared_end) {
      WeighShared<kAttentionRows>(rows, partition, shared_begin / kStep, shared_end / kStep);
      for (std::int64_t r = 0; r < rows; ++r) WeighRagged(partition, r, shared_end, visible[r].end);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      Merge(r, row + r, largest[r], total[r], partition == FirstKey(row + r) / kAttentionPartition);
    }
  }

  void Run() const {
    LoadQueries();
    const std::int64_t first_partition = FirstKey(0) / kAttentionPartition;
    const std::int64_t last_partition = Position(num_rows - 1) / kAttentionPartition;
    for (std::int64_t partition = first_partition; partition <= last_partition; ++partition) {
      // Positions ascend, so the rows that see the partition are consecutive.
      std::int64_t row = 0, end = num_rows;
      while (row < end && Position(row) / kAttentionPartition < partition) ++row;
      while (row < end && FirstKey(end - 1) / kAttentionPartition > partition) --end;
      for (; row < end; row += kAttentionRows) {
        RunTile(partition, row, end - row < kAttentionRows ? end - row : kAttentionRows);
      }
    }
    for (std::int64_t row = 0; row < num_rows; ++row) {
      const std::int64_t global = first_row + row;
      float* out = args.out + global / args.group * args.out_stride + global % args.group * head_dim;
      const F32 inverse = Div(SetF(1), SetF(scratch.total[row]));
      for (std::int64_t d = 0; d < head_dim; d += kLanes) {
        const std::int64_t count = head_dim - d < kLanes ? head_dim - d : kLanes;
        StorePartF(out + d, Mul(LoadF(scratch.outputs + row * padded + d), inverse), count);
      }
    }
  }
};

template <typename Cache>
inline void AttendWith(const AttentionArgs& args) {
  const std::int64_t head_dim = args.layout->head_dim, padded = PaddedHeadDim(head_dim);
  const std::int64_t total_rows = args.num_queries * args.group;
  for (std::int64_t row = 0; row < total_rows; row += kRowsInFlight) {
    const std::int64_t rows = total_rows - row < kRowsInFlight ? total_rows - row : kRowsInFlight;
    const Attention<Cache> attention{.args = args,
                                     .head_dim = head_dim,
                                     .padded = padded,
                                     .first_row = row,
                                     .num_rows = rows,
                                     .scratch = AttentionScratch(args.scratch, padded)};
    attention.Run();
  }
}

inline void Attend(const AttentionArgs& args) {
  if (args.layout->dtype == KvDtype::kBf16) {
    AttendWith<Bf16Cache>(args);
  } else {
    AttendWith<F32Cache>(args);
  }
}
