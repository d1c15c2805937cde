#pragma once

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/models/families.hpp"
#include "io/model_files/config_reader.hpp"

namespace pagoda::test {

using Describe = models::ModelSpec (*)(models::ConfigSource& config);

/// Returns what a family reads from a config.json, or the error of the config.
inline Result<models::ModelSpec> read_family(Describe describe, const nlohmann::json& source) {
  io::ConfigReader reader(source, "config.json");
  models::ModelSpec spec = describe(reader);
  if (!reader.status()) return fail(reader.status().error());
  return spec;
}

/// Returns what a family reads from a config.json that must be right.
inline models::ModelSpec described(Describe describe, const nlohmann::json& source) {
  auto spec = read_family(describe, source);
  EXPECT_TRUE(spec) << spec.error().message;
  return spec ? std::move(*spec) : models::ModelSpec();
}

}  // namespace pagoda::test
