// For tiers without matrix tiles; see simd/amx_tiles.inl.h.

inline constexpr bool kMatrixTiles = false;
template <typename Packed>
inline constexpr int kMatrixMinRows = 0;
