#pragma once

#include "engine/stats.hpp"
#include "io/wire/json_writer.hpp"

namespace pagoda::wire {

/// The members of an open object: what a client may know of the model, and the counters and gauges of now.
void write_model(JsonWriter& json, const ModelInfo& model);
void write_stats(JsonWriter& json, const EngineStats& stats);

}  // namespace pagoda::wire
