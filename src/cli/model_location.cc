#include "cli/model_location.h"

#include <cstdlib>
#include <system_error>
#include <vector>

#include "kernels/kernel_table.h"

namespace quire::cli {

namespace fs = std::filesystem;

std::optional<std::string> EnvironmentVariable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

Result<fs::path> FindDemoModel() {
  std::error_code ignored;
  if (const auto named = EnvironmentVariable("QUIRE_DEMO")) {
    if (fs::exists(*named, ignored)) return fs::path(*named);
    return Fail(ErrorCode::kNotFound, "QUIRE_DEMO names {}, which does not exist", *named);
  }
  const fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  const std::vector<fs::path> places = {
      folder / "../../models/demo",  // build/<preset>/quire
      folder / "../share/quire/models/demo",
      fs::path("models/demo"),
  };
  std::string tried;
  for (const fs::path& place : places) {
    const fs::path normal = place.lexically_normal();
    if (fs::exists(normal / "config.json", ignored)) return fs::proximate(normal, ignored);
    tried += "\n  " + normal.string();
  }
  return Fail(ErrorCode::kNotFound, "no model was named, and the demo model is in none of these places:{}", tried);
}

namespace {

// What "auto" means; "" where the environment does not say.
std::string CacheFolder() {
  if (const auto cache = EnvironmentVariable("XDG_CACHE_HOME")) return (fs::path(*cache) / "quire").string();
  if (const auto home = EnvironmentVariable("HOME")) return (fs::path(*home) / ".cache" / "quire").string();
  return "";
}

}  // namespace

Result<> CompletePackedCache(engine::EngineOptions* options) {
  std::string& value = options->packed_cache;
  if (value.empty()) value = EnvironmentVariable("QUIRE_PACKED_CACHE").value_or("");
  const bool asked_for = !value.empty();
  if (!asked_for) value = "read:auto";
  if (value != "auto" && value != "read:auto") return {};
  const std::string folder = CacheFolder();
  if (folder.empty() && asked_for) {
    return FailParam("packed_cache", "{} needs XDG_CACHE_HOME or HOME, and neither is set", value);
  }
  value = folder.empty() ? "off" : value == "auto" ? folder : "read:" + folder;
  return {};
}

void CompleteKvRedis(engine::EngineOptions* options) {
  if (options->kv_redis.empty()) options->kv_redis = EnvironmentVariable("QUIRE_KV_REDIS").value_or("");
}

Result<> CompleteOptions(engine::EngineOptions* options) {
  if (options->model.empty()) {
    QUIRE_TRY(options->model, FindDemoModel());
  }
  std::error_code error;
  if (!fs::exists(options->model, error)) {
    return Fail(ErrorCode::kNotFound, "{} does not exist; a model is a Hugging Face folder or a .gguf file",
                options->model.string());
  }
  if (options->isa.empty()) options->isa = EnvironmentVariable("QUIRE_ISA").value_or("");
  if (auto kernels = kernels::SelectKernels(options->isa); !kernels) {
    return FailParam("isa", "{}", kernels.error().message);
  }
  QUIRE_TRY_VOID(CompletePackedCache(options));
  return options->Validate();
}

}  // namespace quire::cli
