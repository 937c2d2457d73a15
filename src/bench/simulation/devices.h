// The file of devices and model shapes that `quire simulate` computes with: built-in ones, a user's own, and what was
// measured of this machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "weights/model_config.h"

namespace quire::bench {

struct Device {
  std::string name;
  double memory_gb = 0;  // GB are 1e9 bytes
  double bandwidth_gb_per_second = 0;
  double tflops = 0;  // dense, in the type that the weights are multiplied in
  // What an engine reaches of the two limits; a guess unless somebody measured.
  double bandwidth_efficiency = 0.8;
  double flops_efficiency = 0.6;
  // Time beside the arithmetic: of a step, and of each sequence in it.
  double step_overhead_us = 0;
  double sequence_overhead_us = 0;
};

struct ModelShape {
  std::string name;
  int vocab_size = 0, hidden_size = 0, intermediate_size = 0, num_layers = 0;
  int num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int max_model_len = 0;
  double weight_bits = 16;  // of a weight in memory, scales among them
  double kv_bits = 16;      // of a number in the KV cache

  static ModelShape Of(const weights::ModelConfig& config, std::string name);

  double layer_weights() const;  // numbers of weights in the matrices of the layers …
  double head_weights() const;   // … and in the output matrix; an embedding table of its own is not counted
  double weight_bytes() const { return (layer_weights() + head_weights()) * weight_bits / 8; }
  double kv_bytes_per_token() const { return 2.0 * num_layers * num_kv_heads * head_dim * kv_bits / 8; }
};

// Times of steps of one model on one device, by `quire simulate calibrate`. A step of T tokens, S of them sampled, takes
// token_us(T) + sample_us(S) + decode_context_us · (contexts of single tokens) + chunk_pair_us · (pairs in chunks).
struct MeasuredSteps {
  std::string device, model;
  std::string how;                                   // "2 threads, avx2 kernels, BF16 weights"
  std::vector<std::pair<double, double>> token_us;   // ascending numbers of tokens
  std::vector<std::pair<double, double>> sample_us;  // … of rows
  double decode_context_us = 0;
  double chunk_pair_us = 0;
};

struct DeviceFile {
  std::vector<Device> devices;
  std::vector<ModelShape> models;
  std::vector<MeasuredSteps> measured;

  // RTX 4090, H100, H200, EPYC, and shapes of well-known models.
  static DeviceFile BuiltIn();
  // Errors say where in `name` what is wrong.
  static Result<DeviceFile> Parse(std::string_view text, std::string_view name);
  static Result<DeviceFile> Read(const std::filesystem::path& path);
  std::string ToJson() const;  // a device, a model or a measurement a line
  Result<> Write(const std::filesystem::path& path) const;

  // kInvalidArgument lists the names that there are.
  Result<const Device*> FindDevice(std::string_view name) const;
  Result<const ModelShape*> FindModel(std::string_view name) const;
  const MeasuredSteps* FindMeasured(std::string_view device, std::string_view model) const;  // or null
  // Entries of the same name are replaced.
  void Put(Device device);
  void Put(ModelShape model);
  void Put(MeasuredSteps steps);
};

}  // namespace quire::bench
