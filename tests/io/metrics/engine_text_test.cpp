#include "io/metrics/engine_text.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "io/metrics/prometheus_text.hpp"

namespace pagoda::metrics {
namespace {

TEST(EngineText, AModelThatIsNotLoadedHasNoSamplesOfReplicas) {
  ModelInfo loaded;
  loaded.name = "loaded";
  ModelInfo absent;
  absent.name = "absent";
  EngineMetrics of_loaded;
  of_loaded.stats.replicas.emplace_back();
  const EngineMetrics of_absent;
  using Both = std::vector<ModelMetrics>;
  for (const Both& both :
       {Both{{loaded, of_loaded}, {absent, of_absent}}, Both{{absent, of_absent}, {loaded, of_loaded}}}) {
    std::string written;
    PrometheusText text(written);
    write_engine_metrics(text, both);
    const auto has = [&](const std::string& line) { return written.find(line) != std::string::npos; };
    EXPECT_TRUE(has("pagoda:replica_healthy{model_name=\"loaded\",engine=\"0\",replica=\"0\"} 1\n")) << written;
    EXPECT_FALSE(has("pagoda:replica_healthy{model_name=\"absent\"")) << written;
    EXPECT_TRUE(has("pagoda:healthy{model_name=\"absent\",engine=\"0\"} 1\n")) << written;
    EXPECT_TRUE(has("pagoda:healthy{model_name=\"loaded\",engine=\"0\"} 1\n")) << written;
  }
}

TEST(EngineText, AcceptedDraftsAreCountedByTheirPosition) {
  ModelInfo model;
  model.name = "m";
  EngineMetrics metrics;
  const auto samples = [&] {
    std::string written;
    PrometheusText text(written);
    write_engine_metrics(text, {{model, metrics}});
    const std::string name = "pagoda:spec_decode_num_accepted_tokens_per_pos_total";
    std::vector<std::string> found;
    for (std::size_t at = written.find("\n" + name + "{"); at != std::string::npos;
         at = written.find("\n" + name + "{", at + 1)) {
      const std::size_t begin = at + 1 + name.size();
      found.push_back(written.substr(begin, written.find('\n', begin) - begin));
    }
    return found;
  };
  const auto sample = [](std::size_t position, int count) {
    return "{model_name=\"m\",engine=\"0\",position=\"" + std::to_string(position) + "\"} " + std::to_string(count);
  };
  EXPECT_EQ(samples(), std::vector{sample(0, 0)});
  metrics.steps.count_drafts(4, 0);
  EXPECT_EQ(samples(), std::vector{sample(0, 0)});
  metrics.steps.count_drafts(4, 3);
  metrics.steps.count_drafts(1, 1);
  EXPECT_EQ(samples(), (std::vector{sample(0, 2), sample(1, 1), sample(2, 1)}));
  metrics.steps.count_drafts(100, 100);
  const auto all = samples();
  ASSERT_EQ(all.size(), kMaxDraftPositions);
  EXPECT_EQ(all.front(), sample(0, 3));
  EXPECT_EQ(all.back(), sample(kMaxDraftPositions - 1, 1));
  EXPECT_EQ(metrics.steps.accepted_draft_tokens, 104);
}

TEST(EngineText, AdaptersHaveSamplesIfRequestsMayNameThem) {
  ModelInfo model;
  model.name = "m";
  EngineMetrics metrics;
  const auto written_of = [&] {
    std::string written;
    PrometheusText text(written);
    write_engine_metrics(text, {{model, metrics}});
    return written;
  };
  EXPECT_EQ(written_of().find("pagoda:loaded_adapters{"), std::string::npos);
  metrics.adapters = AdapterMetrics{
      .max_in_step = 4, .loaded = 2, .loads = 5, .evictions = 3, .running = {"a", "b"}, .waiting = {"c"}};
  const std::string written = written_of();
  const auto has = [&](const std::string& line) { return written.find(line) != std::string::npos; };
  EXPECT_TRUE(
      has("pagoda:lora_requests_info{model_name=\"m\",engine=\"0\",max_lora=\"4\",running_lora_adapters=\"a,b\","
          "waiting_lora_adapters=\"c\"} "))
      << written;
  EXPECT_TRUE(has("pagoda:loaded_adapters{model_name=\"m\",engine=\"0\"} 2\n")) << written;
  EXPECT_TRUE(has("pagoda:adapter_loads_total{model_name=\"m\",engine=\"0\"} 5\n")) << written;
  EXPECT_TRUE(has("pagoda:adapter_evictions_total{model_name=\"m\",engine=\"0\"} 3\n")) << written;
}

}  // namespace
}  // namespace pagoda::metrics
