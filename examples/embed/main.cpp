// Embeds Pagoda in a program of your own: starts an engine, streams one request, runs a few more together.
//   embed MODEL_DIR [PROMPT]

#include <cstdio>
#include <future>
#include <string>
#include <vector>

#include "pagoda/engine.hpp"

namespace {

pagoda::GenerateRequest make_request(std::string prompt) {
  pagoda::GenerateRequest request;
  request.prompt = std::move(prompt);
  request.sampling.max_tokens = 40;
  request.sampling.temperature = 0;  // always the most likely token
  return request;
}

int complain(const pagoda::Error& error) {
  std::fprintf(stderr, "embed: %s\n", error.message.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: embed MODEL_DIR [PROMPT]\n");
    return 2;
  }
  pagoda::EngineConfig config;
  config.model = argv[1];
  auto engine = pagoda::Engine::create(config);
  if (!engine) return complain(engine.error());

  // A callback gets each output as it comes, on a thread of the engine. The output with `done` or `error` is the last.
  const std::string prompt = argc > 2 ? argv[2] : "Once upon a time";
  std::promise<pagoda::Status> ended;
  std::printf("%s", prompt.c_str());
  const auto ticket = (*engine)->submit(make_request(prompt), [&](const pagoda::RequestOutput& output) {
    for (const auto& delta : output.deltas) std::printf("%s", delta.text.c_str());
    std::fflush(stdout);
    if (output.done) ended.set_value({});
    if (output.error) ended.set_value(pagoda::fail(*output.error));
  });
  if (!ticket) return complain(ticket.error());
  if (const auto status = ended.get_future().get(); !status) return complain(status.error());
  std::printf("\n");

  // generate() runs all of its requests in one batch and waits for them.
  std::vector<pagoda::GenerateRequest> requests;
  for (const char* start : {"The dog", "The sun", "One day"}) requests.push_back(make_request(start));
  for (const auto& result : (*engine)->generate(std::move(requests))) {
    if (!result) return complain(result.error());
    std::printf("...%s (%lld tokens in %.0f ms)\n", result->outputs.front().text.c_str(),
                static_cast<long long>(result->usage.completion_tokens), result->timing.total_ms);
  }
  return 0;
}
