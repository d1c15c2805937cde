#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/request/generate_request.hpp"
#include "engine/stats.hpp"
#include "io/http/generation.hpp"
#include "io/serving/served_models.hpp"
#include "io/serving/session.hpp"

namespace pagoda::http {

/// Returns the number of tokens at the end of the prompt that the engine keeps of a longer one
/// (truncate_prompt_tokens); nothing if it keeps all, or refuses the request. Virtual tokens of an adapter, which leave
/// less room, are not counted.
std::optional<std::int64_t> num_echoed_tokens(const GenerateRequest& request, const ModelInfo& model);

/// Gets the prompts of a job that echoes from the engine and passes them to the writer: their texts and the texts of
/// their first tokens. A request with a text gets its token ids, so that it is tokenized only once.
class PromptEcho {
 public:
  /// Both arguments must outlive the object. No other questions may be sent on the session.
  PromptEcho(GenerationJob& job, serving::Session& session)
      : requests_(job.requests), writer_(*job.writer), model_(*job.model), session_(session) {}

  void send_questions() {
    for (std::size_t i = 0; i < requests_.size(); ++i) send_prompt_question(i);
  }
  /// Takes an answer of the engine. Returns the engine's error, or nullopt.
  std::optional<Error> on_answer(serving::QueryAnswered& answered);
  bool is_sent() const { return num_sent_ == requests_.size(); }

 private:
  struct Texts {
    std::string text;
    std::string first_token;
    int questions = 0;  ///< number of unanswered questions
  };
  void send_prompt_question(std::size_t i);
  void send_text_questions(std::size_t i);

  std::vector<GenerateRequest>& requests_;
  GenerationWriter& writer_;
  const serving::ServedModel& model_;
  serving::Session& session_;
  std::map<std::size_t, Texts> texts_;
  std::size_t num_sent_ = 0;
};

}  // namespace pagoda::http
