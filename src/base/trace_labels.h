// Everything that a trace can show, by name. One table for all processes, so that an event is a few numbers, in memory
// and on the wire.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace quire {

enum class TraceKind : std::uint8_t {
  kSpan,     // of a thread: nested in others or beside them
  kAsync,    // of a request, whose number is the first value; may overlap anything
  kCounter,  // values from now on
};

enum class TraceLabel : std::uint16_t {
  // The engine's thread.
  kTakeInbox,
  kStep,
  kPlan,
  kRun,
  kCommit,
  kEmit,
  // The forward pass.
  kCopyBlocks,
  kForward,
  kPositions,
  kEmbed,
  kLayer,
  kInputNorm,
  kQkvProj,
  kRope,
  kAttention,
  kOutputNorm,
  kOProj,
  kMlpNorm,
  kGateUpProj,
  kActivation,
  kDownProj,
  kFinalNorm,
  kLogits,
  kSample,
  // Between the processes.
  kWireSend,
  kWireReceive,
  // The front end.
  kHttpJob,
  kHttpFormat,
  kDispatchEvents,
  // Requests.
  kHttpRequest,
  kQueued,
  kPrefill,
  kDecode,
  // Counters.
  kQueue,
  kBlocks,
  kTokens,
  kNumLabels,
};

struct TraceLabelInfo {
  TraceLabel label;
  TraceKind kind;
  std::string_view name;
  std::string_view category;
  std::array<std::string_view, 3> values;  // their names; "": none
};

inline constexpr TraceLabelInfo kTraceLabels[] = {
    {TraceLabel::kTakeInbox, TraceKind::kSpan, "take inbox", "scheduler", {"requests", "aborts"}},
    {TraceLabel::kStep, TraceKind::kSpan, "step", "scheduler", {"tokens", "sequences"}},
    {TraceLabel::kPlan, TraceKind::kSpan, "plan", "scheduler", {}},
    {TraceLabel::kRun, TraceKind::kSpan, "run", "model", {}},
    {TraceLabel::kCommit, TraceKind::kSpan, "commit", "scheduler", {"events"}},
    {TraceLabel::kEmit, TraceKind::kSpan, "emit", "scheduler", {"events"}},
    {TraceLabel::kCopyBlocks, TraceKind::kSpan, "copy blocks", "model", {"blocks"}},
    {TraceLabel::kForward, TraceKind::kSpan, "forward", "model", {"tokens", "sequences"}},
    {TraceLabel::kPositions, TraceKind::kSpan, "positions", "kernel", {}},
    {TraceLabel::kEmbed, TraceKind::kSpan, "embed", "kernel", {}},
    {TraceLabel::kLayer, TraceKind::kSpan, "layer", "model", {"layer"}},
    {TraceLabel::kInputNorm, TraceKind::kSpan, "input norm", "kernel", {"layer"}},
    {TraceLabel::kQkvProj, TraceKind::kSpan, "qkv_proj", "kernel", {"layer"}},
    {TraceLabel::kRope, TraceKind::kSpan, "rope and store", "kernel", {"layer"}},
    {TraceLabel::kAttention, TraceKind::kSpan, "attention", "kernel", {"layer"}},
    {TraceLabel::kOutputNorm, TraceKind::kSpan, "prepare output", "kernel", {"layer"}},
    {TraceLabel::kOProj, TraceKind::kSpan, "o_proj", "kernel", {"layer"}},
    {TraceLabel::kMlpNorm, TraceKind::kSpan, "mlp norm", "kernel", {"layer"}},
    {TraceLabel::kGateUpProj, TraceKind::kSpan, "gate_up_proj", "kernel", {"layer"}},
    {TraceLabel::kActivation, TraceKind::kSpan, "activation", "kernel", {"layer"}},
    {TraceLabel::kDownProj, TraceKind::kSpan, "down_proj", "kernel", {"layer"}},
    {TraceLabel::kFinalNorm, TraceKind::kSpan, "final norm", "kernel", {}},
    {TraceLabel::kLogits, TraceKind::kSpan, "logits", "model", {"rows"}},
    {TraceLabel::kSample, TraceKind::kSpan, "sample", "sampling", {"rows"}},
    {TraceLabel::kWireSend, TraceKind::kSpan, "send", "wire", {"bytes"}},
    {TraceLabel::kWireReceive, TraceKind::kSpan, "receive", "wire", {"bytes"}},
    {TraceLabel::kHttpJob, TraceKind::kSpan, "parse, render, tokenise, submit", "http", {}},
    {TraceLabel::kHttpFormat, TraceKind::kSpan, "write answer", "http", {"events", "bytes"}},
    {TraceLabel::kDispatchEvents, TraceKind::kSpan, "dispatch events", "http", {"events"}},
    {TraceLabel::kHttpRequest, TraceKind::kAsync, "HTTP request", "http", {"id", "status"}},
    {TraceLabel::kQueued, TraceKind::kAsync, "queued", "request", {"id", "choice"}},
    {TraceLabel::kPrefill, TraceKind::kAsync, "prefill", "request", {"id", "choice", "cached tokens"}},
    {TraceLabel::kDecode, TraceKind::kAsync, "decode", "request", {"id", "choice"}},
    {TraceLabel::kQueue, TraceKind::kCounter, "queue", "scheduler", {"running", "waiting"}},
    {TraceLabel::kBlocks, TraceKind::kCounter, "KV blocks", "scheduler", {"held", "cached", "free"}},
    {TraceLabel::kTokens, TraceKind::kCounter, "tokens of a step", "scheduler", {"computed", "sampled"}},
};
static_assert(std::size(kTraceLabels) == static_cast<std::size_t>(TraceLabel::kNumLabels));
static_assert([] {
  for (std::size_t i = 0; i < std::size(kTraceLabels); ++i) {
    if (kTraceLabels[i].label != static_cast<TraceLabel>(i)) return false;
  }
  return true;
}());

constexpr const TraceLabelInfo& InfoOf(TraceLabel label) {
  return kTraceLabels[static_cast<std::size_t>(label)];
}

}  // namespace quire
