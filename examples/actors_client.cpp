// Embeds Pagoda's actors in an actor system of your own: spawns the engine, sends a request to its request router, and
// gives it a sink actor that prints the outputs.
//   actors_client MODEL_DIR [PROMPT]

#include <cstdio>
#include <memory>
#include <string>

#include "pagoda/spawn_engine.hpp"

namespace {

using namespace pagoda;

/// Prints the outputs of one request and ends with it. The router aborts the requests of a sink that ends.
actors::SinkActor::behavior_type printing_sink(actors::SinkActor::pointer self, std::FILE* out) {
  return {[self, out](const OutputBatch& batch) {
    for (const auto& output : batch.outputs) {
      for (const auto& delta : output.deltas) std::fputs(delta.text.c_str(), out);
      std::fflush(out);
      if (output.error) std::fprintf(stderr, "actors_client: %s\n", output.error->message.c_str());
      if (output.done || output.error) self->quit();
    }
  }};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: actors_client MODEL_DIR [PROMPT]\n");
    return 2;
  }
  init_actor_types();  // once, before the first actor system
  caf::actor_system_config system_config;
  actors::configure_pool(system_config, 2);
  caf::actor_system system(system_config);

  EngineConfig config;
  config.model = argv[1];
  const auto engine = spawn_engine(system, config);
  if (!engine) {
    std::fprintf(stderr, "actors_client: %s\n", engine.error().message.c_str());
    return 1;
  }

  auto request = std::make_shared<GenerateRequest>();
  request->prompt = argc > 2 ? argv[2] : "Once upon a time";
  request->sampling.max_tokens = 40;
  request->sampling.seed = 7;
  std::printf("%s", request->prompt->c_str());

  const auto sink = system.spawn(printing_sink, stdout);
  caf::scoped_actor self{system};
  // The caller chooses the tag. Every output repeats it, so one sink can serve many requests.
  actors::ask(self, engine->router, actors::SubmitRequest{request, sink, 1}, [&](const actors::SubmitReply& reply) {
    if (reply.ticket) return;
    std::fprintf(stderr, "actors_client: %s\n", reply.ticket.error().message.c_str());
    caf::anon_send_exit(sink, caf::exit_reason::user_shutdown);
  });
  self->wait_for(sink);
  std::printf("\n");

  // The engine ends with its supervisor. Leaving main waits for every actor.
  pagoda::end_engine(*engine);
  return 0;
}
