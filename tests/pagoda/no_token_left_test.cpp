// Requests for which nothing can be sampled, through the whole engine: on models whose logits are what a test says.

#include <atomic>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "pagoda/engine.hpp"
#include "tests/pagoda/golden_model.hpp"

namespace pagoda {
namespace {

using nlohmann::json;

constexpr std::int64_t kVocab = 87;  // of gpt2-relu-f32, whose end token is 2
constexpr float kRuledOut = -std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// A copy of gpt2-relu-f32 whose logits are `logit(token)` after whatever tokens: its last norm gives (1, 0, 0, ...),
/// and the first column of its head has them.
class ConstantModel {
 public:
  explicit ConstantModel(const std::function<float(std::int64_t)>& logit) : servable_("gpt2-relu-f32") {
    const std::filesystem::path file = std::filesystem::path(servable_.path()) / "model.safetensors";
    std::ifstream original(file, std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(original)), {});
    std::uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
    const json header = json::parse(bytes.substr(sizeof header_bytes, header_bytes));
    const auto tensor = [&](const char* name) {
      const auto begin = header.at(name).at("data_offsets").at(0).get<std::size_t>();
      return bytes.data() + sizeof header_bytes + header_bytes + begin;
    };
    const auto write = [](char* to, float value) { std::memcpy(to, &value, sizeof value); };
    const auto width = header.at("transformer.ln_f.weight").at("shape").at(0).get<std::size_t>();
    for (std::size_t i = 0; i < width; ++i) {
      write(tensor("transformer.ln_f.weight") + i * sizeof(float), 0);
      write(tensor("transformer.ln_f.bias") + i * sizeof(float), i == 0 ? 1 : 0);
    }
    for (std::int64_t token = 0; token < kVocab; ++token) {
      write(tensor("lm_head.weight") + static_cast<std::size_t>(token) * width * sizeof(float), logit(token));
    }
    std::filesystem::remove(file);  // a link to the original
    std::ofstream(file, std::ios::binary) << bytes;
  }

  std::unique_ptr<Engine> engine() const {
    EngineConfig config;
    config.model = servable_.path();
    config.threads = 1;
    auto engine = Engine::create(config);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  }

 private:
  test::ServableModel servable_;
};

GenerateRequest request(std::int64_t max_tokens) {
  GenerateRequest request;
  request.prompt_token_ids = {{5, 6, 7}};
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  request.sampling.seed = 3;
  return request;
}

TEST(NoTokenLeft, BansOfTheWholeVocabularyAreRefusedAtOnce) {
  const ConstantModel model([](std::int64_t token) { return static_cast<float>(token % 5); });
  const auto engine = model.engine();
  ASSERT_TRUE(engine);
  GenerateRequest hopeless = request(20);
  hopeless.sampling.min_tokens = 3;
  for (std::int64_t token = 0; token < kVocab; ++token) {
    if (token != 2) hopeless.sampling.stop_token_ids.push_back(token);
  }
  const auto ticket = engine->submit(hopeless, [](const RequestOutput&) { FAIL(); });
  ASSERT_FALSE(ticket);
  EXPECT_EQ(ticket.error().code, ErrorCode::invalid_request);
  EXPECT_EQ(ticket.error().param, "min_tokens");
  hopeless.sampling.stop_token_ids.pop_back();
  const auto result = engine->generate(hopeless);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->outputs.at(0).token_ids.front(), kVocab - 1) << "the only token that is left";
}

TEST(NoTokenLeft, BansOfAllThatTheModelAllowsFailTheRequestAloneAsInvalid) {
  const ConstantModel model([](std::int64_t token) { return token < 4 ? static_cast<float>(token) : kRuledOut; });
  const auto engine = model.engine();
  ASSERT_TRUE(engine);
  const auto alone = engine->generate(request(100));
  ASSERT_TRUE(alone) << alone.error().message;
  for (const bool beams : {false, true}) {
    GenerateRequest hopeless = request(20);
    hopeless.sampling.min_tokens = 3;
    hopeless.sampling.stop_token_ids = {0, 1, 3};
    if (beams) {
      hopeless.sampling.use_beam_search = true;
      hopeless.sampling.temperature = 0;
      hopeless.sampling.n = 2;
    }
    std::promise<void> first;
    std::promise<RequestResult> done;
    std::atomic<bool> seen = false;
    ASSERT_TRUE(engine->submit(request(100), [&](const RequestOutput& output) {
      if (!seen.exchange(true)) first.set_value();
      EXPECT_FALSE(output.error) << output.error->message;
      if (output.done) done.set_value(*output.done);
    }));
    first.get_future().wait();
    for (int i = 0; i < 5; ++i) {
      const auto failed = engine->generate(hopeless);
      ASSERT_FALSE(failed);
      EXPECT_EQ(failed.error().code, ErrorCode::invalid_request);
      EXPECT_EQ(failed.error().param, "min_tokens");
      EXPECT_NE(failed.error().message.find("no token is left"), std::string::npos) << failed.error().message;
    }
    EXPECT_EQ(done.get_future().get().outputs.at(0).token_ids, alone->outputs.at(0).token_ids);
  }
}

TEST(NoTokenLeft, LogitsThatAreNoNumbersOrAllowNothingAreInternal) {
  for (const float logit : {kNan, kRuledOut}) {
    const ConstantModel model([&](std::int64_t) { return logit; });
    const auto engine = model.engine();
    ASSERT_TRUE(engine);
    const auto failed = engine->generate(request(5));
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, ErrorCode::internal) << failed.error().message;
  }
}

}  // namespace
}  // namespace pagoda
