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

}  // namespace
}  // namespace pagoda::metrics
