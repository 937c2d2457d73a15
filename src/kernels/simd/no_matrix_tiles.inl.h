// For tiers without matrix tiles; see simd/amx_tiles.inl.h.

inline constexpr bool kMatrixTiles = false;
