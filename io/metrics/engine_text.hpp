#pragma once

#include <vector>

#include "engine/metrics/engine_metrics.hpp"
#include "engine/stats.hpp"

namespace pagoda::metrics {

class PrometheusText;

/// Returns the fraction of the KV blocks that requests hold: 0 to 1. Blocks that only the prefix cache holds count as
/// free.
double kv_cache_usage(const EngineStats& stats);

/// Metrics of one model.
struct ModelMetrics {
  const ModelInfo& model;
  const EngineMetrics& metrics;
};

/// Writes all metrics of the engines: vLLM's metrics, with `pagoda:` in place of `vllm:` in their names, and metrics
/// that vLLM does not have (docs/metrics.md). `engines`: at least one.
void write_engine_metrics(PrometheusText& text, const std::vector<ModelMetrics>& engines);

}  // namespace pagoda::metrics
