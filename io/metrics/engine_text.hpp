#pragma once

#include <vector>

#include "engine/metrics/engine_metrics.hpp"
#include "engine/stats.hpp"

namespace pagoda::metrics {

class PrometheusText;

/// How much of the KV blocks is held by requests: 0 to 1. Blocks that only the prefix cache holds count as free.
double kv_cache_usage(const EngineStats& stats);

/// What was counted of one model.
struct ModelMetrics {
  const ModelInfo& model;
  const EngineMetrics& metrics;
};

/// All of the engines: vLLM's metrics, with `pagoda:` for `vllm:` in their names, and those that vLLM has not
/// (docs/metrics.md).
void write_engine_metrics(PrometheusText& text, const std::vector<ModelMetrics>& engines);

}  // namespace pagoda::metrics
