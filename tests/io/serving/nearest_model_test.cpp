#include "io/serving/nearest_model.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pagoda::serving {
namespace {

const std::vector<std::string> kServed{"Qwen/Qwen2.5-7B-Instruct", "smollm2", "llama3.1:8b", "m"};

TEST(NearestModel, IsThatOfASmallMistake) {
  for (const auto& [name, nearest] : std::vector<std::pair<const char*, const char*>>{
           {"qwen/qwen2.5-7b-instruct", "Qwen/Qwen2.5-7B-Instruct"},
           {"Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct"},
           {"Qwen/Qwen2.5-7B-Instuct", "Qwen/Qwen2.5-7B-Instruct"},
           {"qwen2.5-7b", "Qwen/Qwen2.5-7B-Instruct"},
           {"smollm", "smollm2"},
           {"smolm2", "smollm2"},
           {"somllm2", "smollm2"},
           {"smolml3", ""},
           {"SmolLM2:latest", "smollm2"},
           {"llama3.1", "llama3.1:8b"},
           {"llama3.1:70b", "llama3.1:8b"},
           {"llama-3.1-8b", ""},
           {"gpt-4o", ""},
           {"", ""},
           {"/", ""},
           {"x", ""},
       }) {
    EXPECT_EQ(nearest_model(name, kServed), nearest) << name;
  }
  EXPECT_EQ(nearest_model(std::string(1 << 20, 'm'), kServed), "");
}

TEST(NearestModel, IsAskedForInTheMarksOfAnApi) {
  EXPECT_EQ(did_you_mean("smolm2", kServed, "`"), " Did you mean `smollm2`?");
  EXPECT_EQ(did_you_mean("gpt-4o", kServed, "`"), "");
}

}  // namespace
}  // namespace pagoda::serving
