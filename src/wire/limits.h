// Whether a request can be meant for this engine: the ranges that api/sampling_params.h and api/request.h
// state, with the engine's own sizes. The front end has checked them field by field and with better words;
// this is the receiver's own look, so that a bug or a stranger on the other side of a socket cannot reach the
// engine's arrays.
#pragma once

#include "api/engine_info.h"
#include "api/request.h"
#include "base/result.h"

namespace quire::wire {

inline constexpr int kNumChoicesMax = 16384;
inline constexpr int kCacheSaltBytesMax = 64 << 10;
inline constexpr int kStopStringsMax = 256;
inline constexpr int kStopStringBytesMax = 64 << 10;

// kInvalidArgument, naming the field as the API calls it.
Result<> CheckRequest(const GenerateRequest& request, const EngineInfo& info);

}  // namespace quire::wire
