// The report of a perplexity measurement as text and as JSON.
#include <fmt/format.h>

#include <cmath>

#include "base/json.h"
#include "bench/perplexity.h"

namespace quire::bench {
namespace {

// e^x with the error that the error of x makes of it, in the first order.
Estimate Exp(const Estimate& x) {
  const double value = std::exp(x.mean);
  return {value, value * x.error};
}

std::string Show(const Estimate& x, int digits) {
  return fmt::format("{:.{}f} ± {:.{}f}", x.mean, digits, x.error, digits);
}

std::string Percent(const Estimate& x) {
  return fmt::format("{:.3f} % ± {:.3f}", 100 * x.mean, 100 * x.error);
}

void Put(std::string_view key, const Estimate& x, JsonWriter* writer) {
  writer->Key(key).Double(x.mean).Key(fmt::format("{}_error", key)).Double(x.error);
}

}  // namespace

std::string PerplexityReport::ToText() const {
  std::string text = fmt::format(
      "{} tokens; {} window{} of {} tokens{} every {}; {} tokens scored\n"
      "  negative log likelihood    {}\n"
      "  perplexity                 {}\n",
      num_text_tokens, num_windows, num_windows == 1 ? "" : "s", options.context,
      num_prefix_tokens > 0 ? " with BOS" : "", options.stride, num_scored_tokens, Show(nll, 4), Show(Exp(nll), 4));
  if (!divergence) return text;
  const DivergenceReport& d = *divergence;
  text += fmt::format(
      "against the reference\n"
      "  perplexity of the reference  {}\n"
      "  ln of the ratio              {}\n"
      "  KL divergence, mean          {}\n"
      "    median {:.6f}   99 % {:.6f}   max {:.6f}\n"
      "  same top token               {}\n"
      "  change of p, mean            {}\n"
      "    root mean square {:.3f} %\n",
      Show(Exp(d.nll), 4), Show(d.log_ratio, 5), Show({d.kl.mean, d.kl_error}, 6), d.kl.p50, d.kl.p99, d.kl.max,
      Percent(d.same_top), Percent(d.p_change), 100 * d.p_change_square);
  return text;
}

std::string PerplexityReport::ToJson() const {
  std::string out;
  JsonWriter writer(&out);
  writer.BeginObject().Key("context").Int(options.context).Key("stride").Int(options.stride);
  writer.Key("bos").Bool(num_prefix_tokens > 0).Key("windows").Int(num_windows);
  writer.Key("text_tokens").Int(num_text_tokens).Key("scored_tokens").Int(num_scored_tokens);
  Put("nll", nll, &writer);
  Put("perplexity", Exp(nll), &writer);
  if (divergence) {
    const DivergenceReport& d = *divergence;
    writer.Key("reference").BeginObject();
    Put("nll", d.nll, &writer);
    Put("perplexity", Exp(d.nll), &writer);
    Put("log_ratio", d.log_ratio, &writer);
    Put("kl_mean", {d.kl.mean, d.kl_error}, &writer);
    writer.Key("kl_median").Double(d.kl.p50).Key("kl_p99").Double(d.kl.p99).Key("kl_max").Double(d.kl.max);
    Put("same_top", d.same_top, &writer);
    Put("p_change", d.p_change, &writer);
    writer.Key("p_change_rms").Double(d.p_change_square).EndObject();
  }
  writer.EndObject();
  return out;
}

}  // namespace quire::bench
