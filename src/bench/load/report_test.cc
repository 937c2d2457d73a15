#include "bench/load/report.h"

#include <gtest/gtest.h>

#include "bench/load/svg_chart.h"
#include "bench/load/sweep.h"
#include "bench/load/testing/scripted_server.h"

namespace quire::bench::load {
namespace {

using testing::Answer;
using testing::Asked;
using testing::ScriptedServer;
using testing::WholeStream;

constexpr const char* kModels = R"({"object":"list","data":[{"id":"first","meta":{"n_vocab":64}},{"id":"other"}]})";

Answer Plain(int status, std::string_view body) {
  return {.pieces = {{fmt::format("HTTP/1.1 {} X\r\nContent-Length: {}\r\n\r\n{}", status, body.size(), body), {}}}};
}

// Names two models and streams four tokens; every fifth generation is refused.
Answer Serve(const Asked& asked, int index) {
  if (asked.head.starts_with("GET /v1/models ")) return Plain(200, kModels);
  return index % 5 == 4 ? Plain(503, R"({"error":{"message":"<busy>"}})") : WholeStream(4);
}

LoadConfig ConfigFor(const ScriptedServer& server) {
  LoadConfig config;
  config.client.base_url = server.url();
  config.dataset.num_prompts = 20;
  config.dataset.input_len = 16;
  config.dataset.output_len = 4;
  config.traffic.max_concurrency = 2;
  config.traffic.num_warmup = 0;
  return config;
}

json::value Parse(const std::string& text) {
  const Result<json::value> value = ParseJson(text, "report");
  EXPECT_TRUE(value.has_value()) << text;
  return value ? *value : json::value(json::object());
}

TEST(ServeBench, ReportsInEveryForm) {
  const ScriptedServer server(Serve);
  LoadConfig config = ConfigFor(server);
  config.goodput.ttft_ms = 1e6;
  const Result<LoadReport> report = RunServeBench(config);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->metrics.num_completed, 16);
  EXPECT_EQ(report->metrics.num_failed, 4);
  EXPECT_EQ(report->server.style.model, "first");
  EXPECT_EQ(report->server.style.vocab_size, 64);

  const json::value json = Parse(ReportJson(*report));
  EXPECT_EQ(json.at("completed"), 16);
  EXPECT_EQ(json.at("failed"), 4);
  EXPECT_EQ(json.at("total_output_tokens"), 64);
  EXPECT_EQ(json.at("total_input_tokens"), 16 * 7);  // as the server counts
  EXPECT_EQ(json.at("request_rate"), "inf");
  EXPECT_GT(json.at("request_goodput").as_double(), 0);
  for (const char* key : {"mean_ttft_ms", "median_tpot_ms", "std_itl_ms", "p99_e2el_ms", "output_throughput",
                          "total_token_throughput", "client_cpu_share"}) {
    EXPECT_TRUE(json.as_object().contains(key)) << key;
  }
  for (const char* key : {"ttfts", "itls", "input_lens", "output_lens", "errors", "start_times"}) {
    EXPECT_EQ(json.at(key).as_array().size(), 20) << key;
  }

  const std::string csv = ReportCsv(*report);
  EXPECT_EQ(std::ranges::count(csv, '\n'), 21);
  EXPECT_EQ(std::ranges::count(csv.substr(0, csv.find('\n')), ','), 12);
  EXPECT_NE(csv.find("\"HTTP 503: <busy>\""), std::string::npos);

  const std::string text = ReportText(*report);
  EXPECT_NE(text.find("20 requests (random), 2 at a time to first"), std::string::npos) << text;
  EXPECT_NE(text.find("16 completed, 4 failed"), std::string::npos);
  EXPECT_NE(text.find("4 × HTTP 503: <busy>"), std::string::npos);
  EXPECT_NE(text.find("goodput"), std::string::npos);

  const std::string html = ReportHtml(*report);
  EXPECT_EQ(html.find("<busy>"), std::string::npos);
  EXPECT_NE(html.find("HTTP 503: &lt;busy&gt;"), std::string::npos);
  for (const char* outside : {"<script", "<link", "<img", "src=", "href=", "url("}) {
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;  // it needs nothing else
  }
}

TEST(ServeBench, CountsWordsWhereTheVocabularyIsUnknown) {
  std::vector<std::size_t> words;  // of each prompt
  const ScriptedServer server([&](const Asked& asked, int) {
    if (asked.head.starts_with("GET ")) return Plain(200, R"({"data":[{"id":"m"}]})");
    const json::value body = Parse(asked.body);
    words.push_back(static_cast<std::size_t>(std::ranges::count(body.at("prompt").as_string(), ' ')) + 1);
    Answer answer = WholeStream(1);
    // This server makes two tokens of each word.
    const std::string events = testing::TokenEvent("a", true) +
                               testing::UsageEvent(2 * static_cast<int>(words.back()), 1) +
                               std::string(testing::kDoneEvent);
    answer.pieces = {{testing::StreamHead() + testing::Chunked(events) + "0\r\n\r\n", {}}};
    return answer;
  });
  LoadConfig config = ConfigFor(server);
  config.dataset.num_prompts = 3;
  const Result<LoadReport> report = RunServeBench(config);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  ASSERT_EQ(words.size(), 4);
  EXPECT_EQ(words[0], 256);
  EXPECT_EQ(words[1], 8);
  EXPECT_EQ(report->metrics.num_input_tokens, 3 * 16);
}

TEST(ServeBench, SaysWhatKeepsItFromStarting) {
  const auto error_with = [](const ScriptedServer& server, auto change) {
    LoadConfig config = ConfigFor(server);
    change(&config);
    const Result<LoadReport> report = RunServeBench(config);
    return report ? Error{} : report.error();
  };
  const auto nothing = [](LoadConfig*) {};
  const ScriptedServer without_models([](const Asked&, int) { return Plain(404, "nothing here"); });
  EXPECT_NE(error_with(without_models, nothing).message.find("HTTP 404: nothing here"), std::string::npos);
  const ScriptedServer nonsense([](const Asked&, int) { return Plain(200, "[1,2"); });
  EXPECT_NE(error_with(nonsense, nothing).message.find("/v1/models"), std::string::npos);
  const ScriptedServer good(Serve), busy([](const Asked& asked, int) {
    return asked.head.starts_with("GET ") ? Plain(200, kModels) : Plain(503, "busy");
  });
  EXPECT_NE(error_with(busy, [](LoadConfig* c) { c->traffic.num_warmup = 1; }).message.find("HTTP 503: busy"),
            std::string::npos);
  EXPECT_EQ(error_with(good,
                       [](LoadConfig* c) {
                         c->client.model = "other";
                         c->client.prompt_format = PromptFormat::kIds;
                       })
                .param,
            "vocab-size");
  EXPECT_EQ(error_with(good,
                       [](LoadConfig* c) {
                         c->client.endpoint = "chat";
                         c->client.prompt_format = PromptFormat::kIds;
                       })
                .param,
            "prompt-format");
  EXPECT_EQ(error_with(good, [](LoadConfig* c) { c->client.extra_body = "[]"; }).param, "extra-body");
  EXPECT_EQ(error_with(good, [](LoadConfig* c) { c->client.headers = {"no colon"}; }).param, "header");
  EXPECT_EQ(error_with(good, [](LoadConfig* c) { c->traffic.request_rate = 0; }).param, "request-rate");
  EXPECT_EQ(error_with(good, [](LoadConfig* c) { c->traffic.burstiness = 0; }).param, "burstiness");
  EXPECT_EQ(error_with(good, [](LoadConfig* c) { c->client.base_url = "ftp://x"; }).param, "base-url");
  EXPECT_EQ(error_with(good, [](LoadConfig* c) { c->client.endpoint = "responses"; }).param, "endpoint");
}

TEST(ServeBench, NeedsNoListOfModelsWhenItIsToldTheName) {
  const ScriptedServer server(
      [](const Asked& asked, int) { return asked.head.starts_with("GET ") ? Plain(404, "") : WholeStream(2); });
  LoadConfig config = ConfigFor(server);
  config.client.model = "secret";
  config.client.vocab_size = 10;
  const Result<LoadReport> report = RunServeBench(config);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->metrics.num_completed, 20);
}

TEST(SvgChart, HasRoundTicks) {
  EXPECT_EQ(Ticks(10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(Ticks(0.9, 5), (std::vector<double>{0, 0.2, 0.4, 0.6000000000000001, 0.8, 1}));
  EXPECT_EQ(Ticks(0, 5), (std::vector<double>{0, 1}));
  EXPECT_EQ(Ticks(1234, 4).back(), 1500);
}

TEST(SvgChart, ChoosesFewPointsOfManyValues) {
  std::vector<double> values;
  for (int i = 0; i < 10000; ++i) values.push_back(i);
  const ChartSeries series = CumulativeShare("x", values, 100);
  EXPECT_EQ(series.points.size(), 101);
  EXPECT_EQ(series.points.back().x, 9999);
  EXPECT_EQ(series.points.back().y, 1);
  EXPECT_EQ(CumulativeShare("x", {}).points.size(), 0);
}

TEST(SvgChart, DrawsNothingAtAll) {
  EXPECT_NE(ChartSvg({.title = "a < b", .series = {{}}}).find("a &lt; b"), std::string::npos);
  const Chart charts[] = {{}, {.series = {{}}, .log_y = true}};
  const std::string svg = ChartsSvg(charts);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(SvgChart, ALogarithmicAxisHasPowersOfTen) {
  EXPECT_EQ(LogTicks(0.5, 30), (std::vector<double>{0.1, 1, 10, 100}));
  EXPECT_EQ(LogTicks(10, 10), (std::vector<double>{10, 100}));
  EXPECT_EQ(LogTicks(0, 0), (std::vector<double>{1, 10}));
}

// x from 0 to 4, y from 1 to 100: what is not above 0 has no place.
TEST(SvgChart, ALogarithmicAxisLeavesOutWhatItCannotShow) {
  const Chart chart{.series = {{.points = {{0, 1}, {1, 0}, {2, 10}, {4, 100}}, .marks_points = true}}, .log_y = true};
  const std::string svg = ChartsSvg({&chart, 1});
  EXPECT_NE(svg.find("points=\"62.0,234.0 283.0,134.0 504.0,34.0 \""), std::string::npos) << svg;
  EXPECT_NE(svg.find("<circle cx=\"283.0\" cy=\"134.0\""), std::string::npos) << svg;
  EXPECT_EQ(svg.find("<circle cx=\"172.5\""), std::string::npos) << svg;
}

TEST(SvgChart, ChartsStandBelowEachOther) {
  const Chart charts[] = {{.title = "first"}, {.title = "second", .legend_beside = true}};
  const std::string svg = ChartsSvg(charts);
  EXPECT_NE(svg.find("width=\"690\" height=\"560\""), std::string::npos) << svg;
  EXPECT_NE(svg.find("translate(0,280)"), std::string::npos);
  EXPECT_LT(svg.find("first"), svg.find("second"));
}

std::vector<SweepPoint> Points() {
  return {{.series = "it's \"a\"",
           .request_rate = 2,
           .completed = 10,
           .output_throughput = 50,
           .ttft_ms_p50 = 5,
           .ttft_ms_p99 = 9},
          {.series = "it's \"a\"",
           .request_rate = 4,
           .completed = 10,
           .output_throughput = 90,
           .ttft_ms_p50 = 6,
           .ttft_ms_p99 = 20},
          {.series = "b", .max_concurrency = 8, .completed = 0, .failed = 10}};
}

TEST(Sweep, PointsSurviveTheirFile) {
  const std::vector<SweepPoint> points = Points();
  const Result<std::vector<SweepPoint>> read = ParseSweep(SweepJson(points));
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(SweepJson(*read), SweepJson(points));
  EXPECT_EQ(SweepCsv(*read), SweepCsv(points));
  EXPECT_EQ(std::ranges::count(SweepCsv(points), '\n'), 4);
  for (const char* bad : {"", "{}", "[1]", R"([{"series":"a"}])", R"([{"series":7}])"}) {
    EXPECT_FALSE(ParseSweep(bad).has_value()) << bad;
  }
}

TEST(Sweep, TellsGnuplotWhatToDraw) {
  const std::vector<SweepPoint> points = Points();
  const Result<std::string> script = SweepPlotScript(points, "it's.svg");
  ASSERT_TRUE(script.has_value());
  EXPECT_NE(script->find("set output 'it''s.svg'"), std::string::npos);
  EXPECT_NE(script->find("title 'it''s \"a\"'"), std::string::npos);
  EXPECT_NE(script->find("\n50 9 5 0 0\n90 20 6 0 0\nEND"), std::string::npos) << *script;
  EXPECT_NE(SweepPlotScript(points, "a.png")->find("pngcairo"), std::string::npos);
  EXPECT_EQ(SweepPlotScript(points, "a.pdf").error().param, "plot");
  EXPECT_FALSE(SweepPlotScript(std::span(points).subspan(2), "a.svg").has_value());
}

}  // namespace
}  // namespace quire::bench::load
