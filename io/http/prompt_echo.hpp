#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/request/generate_request.hpp"
#include "io/http/generation.hpp"
#include "io/serving/session.hpp"

namespace pagoda::http {

/// Asks the engine for the prompts of a job that echoes them, and tells the writer: their texts, and those of their
/// first tokens. Requests with a text get its ids, so that it is tokenized once.
class PromptEcho {
 public:
  /// All of them outlive it; its questions are the only ones of the session.
  PromptEcho(GenerationJob& job, serving::Session& session)
      : requests_(job.requests), writer_(*job.writer), router_(job.model->router), session_(session) {}

  void ask() {
    for (std::size_t i = 0; i < requests_.size(); ++i) ask_for_prompt(i);
  }
  /// Error: why the engine does not tell.
  std::optional<Error> on_answer(serving::Answered& answered);
  bool is_sent() const { return num_sent_ == requests_.size(); }

 private:
  struct Texts {
    std::string text;
    std::string first_token;
    int questions = 0;  ///< not answered yet
  };
  void ask_for_prompt(std::size_t i);
  void ask_for_texts(std::size_t i);

  std::vector<GenerateRequest>& requests_;
  GenerationWriter& writer_;
  const actors::RequestRouterActor& router_;
  serving::Session& session_;
  std::map<std::size_t, Texts> texts_;
  std::size_t num_sent_ = 0;
};

}  // namespace pagoda::http
