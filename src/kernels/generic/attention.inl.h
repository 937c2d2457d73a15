// Paged causal attention. A row is one query head at one position. Rows of one KV head, of one sequence or of several
// that have a partition in the same blocks, are computed together so that keys and values are read once for several of
// them, but every row goes through its own fixed sequence of operations:
//
//   for each partition of 256 positions that the row sees, in ascending order
//     scores s = (Σ over dimension pairs, ascending) · scale · log2(e); −∞ where the row does not see the key
//     m' = max s;  p = 2^(s − m'), rounded to an element;  l' = Σ p, by token mod 16, then across lanes
//     o' = Σ p · v over its tokens, ascending, two at a time for BF16
// Where keys and values have scales (generic/kv_cache.inl.h), those of a key multiply its finished sum, and that of
// a value multiplies p.
//     merge (m', l', o') into (m, l, o)
//   out = o / l
//
// Tokens that a row does not see are not multiplied with zero but left out (or, for one half of a BF16 pair,
// masked in V itself): whatever their bytes are, NaN included, they cannot change a bit of the row.

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
  float* query_sums;     // [kRowsInFlight][key groups] Σ q over the channels of a group
  std::size_t bytes;

  AttentionScratch(std::byte* memory, const KvLayout& layout) {
    const std::int64_t padded = PaddedHeadDim(layout.head_dim);
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
    query_sums = take(kRowsInFlight * layout.num_key_groups());
    bytes = taken * sizeof(float);
  }
};

inline std::size_t AttentionScratchBytes(const KvLayout& layout, int /*group*/) {
  return AttentionScratch(nullptr, layout).bytes;
}

// A partition of one sequence, and the keys in it that a row sees: [begin, end), counted from the partition's
// start.
struct Visible {
  std::int64_t begin, end;
};

// What the softmax of one row over one partition leaves besides the probabilities.
struct PartialSoftmax {
  float largest;  // m'
  float total;    // l'
  float offset;   // Σ p · min of the values, which all dimensions of o' begin with
};

// Rows [begin, end) of those in flight belong to one sequence, and `begin` is its row `first`, counted over
// queries · group.
struct RowSpan {
  const AttentionQueries* sequence;
  std::int64_t begin, end, first;
};

struct RowsInFlight {
  RowSpan spans[kRowsInFlight];
  std::int64_t positions[kRowsInFlight];
  std::int64_t num_spans = 0, num_rows = 0;

  // The next rows of all sequences, from row *first of sequence *sequence on, which move to those after them.
  RowsInFlight(const AttentionArgs& args, std::int64_t* sequence, std::int64_t* first) {
    while (*sequence < args.num_sequences && num_rows < kRowsInFlight) {
      const AttentionQueries& queries = args.sequences[*sequence];
      const std::int64_t rest = queries.num_queries * args.group - *first, room = kRowsInFlight - num_rows;
      const std::int64_t count = rest < room ? rest : room;
      if (count > 0) spans[num_spans++] = {&queries, num_rows, num_rows + count, *first};
      for (std::int64_t row = 0; row < count; ++row) {
        positions[num_rows + row] = queries.first_position + (*first + row) / args.group;
      }
      num_rows += count;
      *first += count;
      if (count == rest) {
        ++*sequence;
        *first = 0;
      }
    }
  }
};

template <typename Cache>
struct Attention {
  using QueryElement = typename Cache::QueryElement;

  const AttentionArgs& args;
  const std::int64_t head_dim, padded;
  const RowsInFlight& flight;
  const AttentionScratch scratch;
  const std::int64_t block_bytes = static_cast<std::int64_t>(args.layout->block_bytes());
  const std::int64_t k_offset = static_cast<std::int64_t>(args.layout->tile_offset(args.layer, args.kv_head));
  const std::int64_t k_scales = static_cast<std::int64_t>(args.layout->k_codes_bytes());  // from the K tile on
  const std::int64_t v_offset = static_cast<std::int64_t>(args.layout->k_tile_bytes());
  const std::int64_t v_scales = v_offset + static_cast<std::int64_t>(args.layout->v_codes_bytes());
  const std::int64_t v_row_bytes = static_cast<std::int64_t>(args.layout->v_row_bytes());

  std::int64_t Position(std::int64_t row) const { return flight.positions[row]; }
  std::int64_t FirstKey(std::int64_t row) const {
    const std::int64_t first = Position(row) - args.window + 1;
    return args.window > 0 && first > 0 ? first : 0;
  }
  Visible VisibleIn(std::int64_t partition, std::int64_t row) const {
    const std::int64_t start = partition * kAttentionPartition;
    const std::int64_t begin = FirstKey(row) - start, end = Position(row) + 1 - start;
    return {begin > 0 ? begin : 0, end < kAttentionPartition ? end : kAttentionPartition};
  }
  // `blocks` are those of a partition, here and below.
  const std::byte* KeyTile(const std::int32_t* blocks, std::int64_t tile) const {
    return args.pool + blocks[tile] * block_bytes + k_offset;
  }
  QueryElement* Queries(std::int64_t row) const {
    return reinterpret_cast<QueryElement*>(scratch.queries + row * padded);
  }
  QueryElement* Probabilities(std::int64_t slot) const {
    return reinterpret_cast<QueryElement*>(scratch.probabilities + slot * kAttentionPartition);
  }

  void LoadQueries() const {
    for (std::int64_t s = 0; s < flight.num_spans; ++s) {
      const RowSpan& span = flight.spans[s];
      for (std::int64_t row = span.begin; row < span.end; ++row) {
        const std::int64_t local = span.first + row - span.begin;
        LoadQuery(span.sequence->q + local / args.group * args.q_stride + local % args.group * head_dim, row);
      }
    }
  }
  void LoadQuery(const float* q, std::int64_t row) const {
    for (std::int64_t d = 0; d < head_dim; d += kLanes) {
      const std::int64_t count = head_dim - d < kLanes ? head_dim - d : kLanes;
      Cache::Store(Queries(row) + d, LoadPartF(q + d, count));
    }
    if constexpr (Cache::kChannelsPerGroup != 0) SumQuery(q, scratch.query_sums + row * NumGroups());
  }
  std::int64_t NumGroups() const { return args.layout->num_key_groups(); }
  void SumQuery(const float* q, float* sums) const {
    for (std::int64_t begin = 0; begin < head_dim; begin += Cache::kChannelsPerGroup) {
      const std::int64_t rest = head_dim - begin,
                         count = rest < Cache::kChannelsPerGroup ? rest : Cache::kChannelsPerGroup;
      F32 sum = ZeroF();
      for (std::int64_t d = 0; d < count; d += kLanes) {
        sum = Add(sum, LoadPartF(q + begin + d, count - d < kLanes ? count - d : kLanes));
      }
      *sums++ = ReduceAdd(sum);
    }
  }

  // Scores of R rows from `row` against T tiles of 16 tokens, unscaled, to scores[slot].
  template <int R, int T>
  void ScoreTiles(const std::int32_t* blocks, std::int64_t tile, std::int64_t row) const {
    if constexpr (Cache::kChannelsPerGroup == 0) {
      ScoreGroup<R, T>(blocks, tile, row, 0, head_dim);
    } else {
      for (std::int64_t begin = 0; begin < head_dim; begin += Cache::kChannelsPerGroup) {
        const std::int64_t end = begin + Cache::kChannelsPerGroup;
        ScoreGroup<R, T>(blocks, tile, row, begin, end < head_dim ? end : head_dim);
      }
    }
  }

  // The same over the channels [begin, end) of one group, added to what the groups before it gave.
  template <int R, int T>
  [[gnu::noinline]] void ScoreGroup(const std::int32_t* blocks, std::int64_t tile, std::int64_t row, std::int64_t begin,
                                    std::int64_t end) const {
    const std::byte* keys[T];
    QUIRE_UNROLL for (int t = 0; t < T; ++t) keys[t] = KeyTile(blocks, tile + t);
    F32 sum[R][T];
    QUIRE_UNROLL for (int r = 0; r < R; ++r) {
      QUIRE_UNROLL for (int t = 0; t < T; ++t) sum[r][t] = ZeroF();
    }
    const QueryElement* q = Queries(row);
    const std::int64_t row_elements = Queries(1) - Queries(0);
    constexpr std::int64_t kPerStep = Cache::kChannelsPerStep;
    for (std::int64_t step = begin / kPerStep; step < end / kPerStep; ++step) {
      QUIRE_UNROLL for (int t = 0; t < T; ++t) {
        const auto k = Cache::LoadKey(keys[t] + step * Cache::kKeyStepBytes);
        QUIRE_UNROLL for (int r = 0; r < R; ++r) {
          sum[r][t] = Cache::DotKey(sum[r][t], k, q + r * row_elements + step * kPerStep);
        }
      }
    }
    QUIRE_UNROLL for (int r = 0; r < R; ++r) {
      QUIRE_UNROLL for (int t = 0; t < T; ++t) {
        float* scores = scratch.scores + r * kAttentionPartition + (tile + t) * kTokens;
        if constexpr (Cache::kChannelsPerGroup == 0) {
          StoreF(scores, Cache::ScaleScore(sum[r][t], keys[t] + k_scales));
        } else {
          const std::int64_t group = begin / Cache::kChannelsPerGroup;
          const F32 before = group == 0 ? ZeroF() : LoadF(scores);
          const std::byte* scales = keys[t] + k_scales + group * Cache::kGroupScaleBytes;
          StoreF(scores,
                 Cache::AddGroup(before, sum[r][t], scales, scratch.query_sums[(row + r) * NumGroups() + group]));
        }
      }
    }
  }

  // x in the lanes of the tile that are visible, `otherwise` in the others.
  static F32 WhereVisible(Visible visible, std::int64_t tile, F32 x, F32 otherwise) {
    const std::int64_t begin = visible.begin - tile * kTokens, end = visible.end - tile * kTokens;
    if (begin <= 0 && end >= kTokens) return x;
    return Select(LanesBetween(begin > 0 ? begin : 0, end < kTokens ? end : kTokens), x, otherwise);
  }

  // The softmax of one row over the keys it sees in the partition: scores become probabilities, times the scales
  // of the values.
  PartialSoftmax Softmax(const std::int32_t* blocks, std::int64_t slot, Visible visible) const {
    float* scores = scratch.scores + slot * kAttentionPartition;
    const F32 factor = SetF(args.scale * 1.44269504f * Cache::kKeyUnit);
    const std::int64_t first_tile = visible.begin / kTokens, end_tile = (visible.end + kTokens - 1) / kTokens;
    F32 max = SetF(-__builtin_inff());
    for (std::int64_t tile = first_tile; tile < end_tile; ++tile) {
      const F32 s = WhereVisible(visible, tile, Mul(LoadF(scores + tile * kTokens), factor), SetF(-__builtin_inff()));
      StoreF(scores + tile * kTokens, s);
      max = Max(max, s);
    }
    const float largest = ReduceMax(max);
    F32 sum = ZeroF(), offset = ZeroF();
    for (std::int64_t tile = first_tile; tile < end_tile; ++tile) {
      const F32 p = Exp2OfNonPositive(Sub(LoadF(scores + tile * kTokens), SetF(largest)));
      sum = Add(sum, Cache::Round(p));
      if constexpr (Cache::kScaledValues) {
        const std::byte* scales = KeyTile(blocks, tile) + v_scales;
        Cache::Store(Probabilities(slot) + tile * kTokens, Cache::ScaleWeight(p, scales));
        if constexpr (Cache::kChannelsPerGroup != 0) {  // p is zero where it is not visible, but min may be NaN
          offset = Add(offset, WhereVisible(visible, tile, Cache::WeighMin(p, scales), ZeroF()));
        }
      } else {
        Cache::Store(Probabilities(slot) + tile * kTokens, p);
      }
    }
    return {.largest = largest, .total = ReduceAdd(sum), .offset = ReduceAdd(offset)};
  }

  // partial[slot …] += p · v for R rows over steps [begin, end) of the partition, D vectors of dimensions
  // from `dim`. `even` and `odd` say which tokens of a step count (BF16).
  template <int R, int D, bool kWhole>
  [[gnu::noinline]] void WeighValues(const std::int32_t* blocks, std::int64_t slot, std::int64_t begin,
                                     std::int64_t end, std::int64_t dim, bool even, bool odd) const {
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
      const std::byte* values = KeyTile(blocks, tile) + v_offset + dim * Cache::kValueVectorBytes / kLanes;
      const std::int64_t tile_begin = tile * kStepsPerTile, tile_end = tile_begin + kStepsPerTile;
      const std::int64_t last = end < tile_end ? end : tile_end;
      for (std::int64_t step = begin > tile_begin ? begin : tile_begin; step < last; ++step) {
        const std::byte* v = values + (step - tile_begin) * Cache::kTokensPerStep * v_row_bytes;
        QUIRE_UNROLL for (int d = 0; d < D; ++d) {
          auto w = Cache::LoadValue(v, d, d == D - 1 ? tail : kLanes);
          if constexpr (!kWhole) w = Cache::Only(w, even, odd);
          QUIRE_UNROLL for (int r = 0; r < R; ++r) {
            sum[r][d] = Cache::DotValue(sum[r][d], w, p + r * row_elements + step * Cache::kTokensPerStep);
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
  void WeighSteps(const std::int32_t* blocks, std::int64_t slot, std::int64_t begin, std::int64_t end, bool even = true,
                  bool odd = true) const {
    std::int64_t dim = 0;
    for (; dim + kLanes < head_dim; dim += 2 * kLanes) {
      WeighValues<R, 2, kWhole>(blocks, slot, begin, end, dim, even, odd);
    }
    if (dim < head_dim) WeighValues<R, 1, kWhole>(blocks, slot, begin, end, dim, even, odd);
  }

  template <int R>
  void WeighShared(std::int64_t rows, const std::int32_t* blocks, std::int64_t begin, std::int64_t end) const {
    if constexpr (R > 1) {
      if (rows < R) return WeighShared<R - 1>(rows, blocks, begin, end);
    }
    WeighSteps<R>(blocks, 0, begin, end);
  }

  // One row's values for tokens [begin, end) of the partition, which may begin or end inside a step.
  void WeighRagged(const std::int32_t* blocks, std::int64_t slot, std::int64_t begin, std::int64_t end) const {
    constexpr std::int64_t kStep = Cache::kTokensPerStep;
    if (begin >= end) return;
    if (begin % kStep != 0) {
      WeighSteps<1, false>(blocks, slot, begin / kStep, begin / kStep + 1, false, true);
      ++begin;
    }
    if (begin / kStep < end / kStep) WeighSteps<1>(blocks, slot, begin / kStep, end / kStep);
    if (end % kStep != 0 && begin < end) {
      WeighSteps<1, false>(blocks, slot, end / kStep, end / kStep + 1, true, false);
    }
  }

  template <int R>
  void ScoresOf(std::int64_t rows, const std::int32_t* blocks, std::int64_t first_tile, std::int64_t end_tile,
                std::int64_t row) const {
    if constexpr (R > 1) {
      if (rows < R) return ScoresOf<R - 1>(rows, blocks, first_tile, end_tile, row);
    }
    std::int64_t tile = first_tile;
    for (; tile + 2 <= end_tile; tile += 2) ScoreTiles<R, 2>(blocks, tile, row);
    if (tile < end_tile) ScoreTiles<R, 1>(blocks, tile, row);
  }

  // (m', l', o') of `slot` into (m, l, o) of `row`.
  void Merge(std::int64_t slot, std::int64_t row, PartialSoftmax softmax, bool is_first) const {
    float* o = scratch.outputs + row * padded;
    const float* part = scratch.partial + slot * padded;
    if (is_first) {
      for (std::int64_t d = 0; d < padded; d += kLanes) StoreF(o + d, LoadF(part + d));
      scratch.largest[row] = softmax.largest;
      scratch.total[row] = softmax.total;
      return;
    }
    const F32 before = SetF(scratch.largest[row]), now = SetF(softmax.largest), max = Max(before, now);
    const F32 keep = Exp2OfNonPositive(Sub(before, max)), take = Exp2OfNonPositive(Sub(now, max));
    for (std::int64_t d = 0; d < padded; d += kLanes) {
      StoreF(o + d, Fma(LoadF(part + d), take, Mul(LoadF(o + d), keep)));
    }
    StorePartF(scratch.largest + row, max, 1);
    StorePartF(scratch.total + row, Fma(SetF(softmax.total), take, Mul(SetF(scratch.total[row]), keep)), 1);
  }

  // Rows [row, row + rows), all of which see something of the partition.
  void RunTile(std::int64_t partition, const std::int32_t* blocks, std::int64_t row, std::int64_t rows) const {
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
    ScoresOf<kAttentionRows>(rows, blocks, any_begin / kTokens, (any_end + kTokens - 1) / kTokens, row);
    PartialSoftmax softmax[kAttentionRows];
    for (std::int64_t r = 0; r < rows; ++r) softmax[r] = Softmax(blocks, r, visible[r]);

    // Whole steps that all rows see are shared; what sticks out at either end is each row's own.
    std::int64_t shared_begin = (all_begin + kStep - 1) / kStep * kStep, shared_end = all_end / kStep * kStep;
    if (shared_begin >= shared_end) shared_begin = shared_end = kAttentionPartition;  // nothing shared
    for (std::int64_t r = 0; r < rows; ++r) {
      float* partial = scratch.partial + r * padded;
      for (std::int64_t d = 0; d < padded; d += kLanes) StoreF(partial + d, SetF(softmax[r].offset));
      WeighRagged(blocks, r, visible[r].begin, visible[r].end < shared_begin ? visible[r].end : shared_begin);
    }
    if (shared_begin < shared_end) {
      WeighShared<kAttentionRows>(rows, blocks, shared_begin / kStep, shared_end / kStep);
      for (std::int64_t r = 0; r < rows; ++r) WeighRagged(blocks, r, shared_end, visible[r].end);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      Merge(r, row + r, softmax[r], partition == FirstKey(row + r) / kAttentionPartition);
    }
  }

  // The rows of a span that see something of the partition: consecutive ones, since positions ascend.
  Visible RowsThatSee(std::int64_t partition, const RowSpan& span) const {
    std::int64_t row = span.begin, end = span.end;
    while (row < end && Position(row) / kAttentionPartition < partition) ++row;
    while (row < end && FirstKey(end - 1) / kAttentionPartition > partition) --end;
    return {row, end};
  }

  void RunPartition(std::int64_t partition) const {
    for (std::int64_t s = 0; s < flight.num_spans;) {
      const std::int32_t* blocks = flight.spans[s].sequence->blocks;
      Visible rows = RowsThatSee(partition, flight.spans[s]);
      // Sequences that have the partition in the same blocks go into the same tiles, as far as their rows follow
      // each other without a gap.
      for (++s; s < flight.num_spans && flight.spans[s].sequence->shared_partitions > partition; ++s) {
        const Visible more = RowsThatSee(partition, flight.spans[s]);
        if (rows.end != flight.spans[s].begin || more.begin != flight.spans[s].begin) break;
        rows.end = more.end;
      }
      for (std::int64_t row = rows.begin; row < rows.end; row += kAttentionRows) {
        RunTile(partition, blocks + partition * (kAttentionPartition / kTokens), row,
                rows.end - row < kAttentionRows ? rows.end - row : kAttentionRows);
      }
    }
  }

  void StoreOutputs() const {
    for (std::int64_t s = 0; s < flight.num_spans; ++s) {
      const RowSpan& span = flight.spans[s];
      for (std::int64_t row = span.begin; row < span.end; ++row) {
        const std::int64_t local = span.first + row - span.begin;
        float* out = span.sequence->out + local / args.group * args.out_stride + local % args.group * head_dim;
        const F32 inverse = Div(SetF(Cache::kValueUnit), SetF(scratch.total[row]));
        for (std::int64_t d = 0; d < head_dim; d += kLanes) {
          const std::int64_t count = head_dim - d < kLanes ? head_dim - d : kLanes;
          StorePartF(out + d, Mul(LoadF(scratch.outputs + row * padded + d), inverse), count);
        }
      }
    }
  }

  void Run() const {
    LoadQueries();
    std::int64_t first = FirstKey(0), last = 0;
    for (std::int64_t row = 0; row < flight.num_rows; ++row) {
      first = FirstKey(row) < first ? FirstKey(row) : first;
      last = Position(row) > last ? Position(row) : last;
    }
    for (std::int64_t p = first / kAttentionPartition; p <= last / kAttentionPartition; ++p) RunPartition(p);
    StoreOutputs();
  }
};

template <typename Cache>
inline void AttendWith(const AttentionArgs& args) {
  for (std::int64_t sequence = 0, first = 0; sequence < args.num_sequences;) {
    const RowsInFlight flight(args, &sequence, &first);
    const Attention<Cache> attention{.args = args,
                                     .head_dim = args.layout->head_dim,
                                     .padded = PaddedHeadDim(args.layout->head_dim),
                                     .flight = flight,
                                     .scratch = AttentionScratch(args.scratch, *args.layout)};
    if (flight.num_rows > 0) attention.Run();
  }
}

inline void Attend(const AttentionArgs& args) {
  switch (args.layout->dtype) {
    case KvDtype::kBf16:
      return AttendWith<Bf16Cache>(args);
    case KvDtype::kF32:
      return AttendWith<F32Cache>(args);
    case KvDtype::kFp8E4m3:
      return AttendWith<Fp8Cache>(args);
    case KvDtype::kInt8:
      return AttendWith<Int8Cache>(args);
    case KvDtype::kInt4:
      return AttendWith<Int4Cache>(args);
  }
}
