#include "io/http/prompt_echo.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include "engine/routing/admission.hpp"

namespace pagoda::http {
namespace {

/// Each prompt has three tags: for the ids of its text, for its text and for its first token.
constexpr std::size_t kTags = 3;
constexpr std::size_t kText = 1;
constexpr std::size_t kFirstToken = 2;

}  // namespace

std::optional<std::int64_t> num_echoed_tokens(const GenerateRequest& request, const ModelInfo& model) {
  routing::AdmissionLimits limits;
  limits.max_model_len = model.max_model_len;
  limits.max_kv_tokens = model.max_kv_tokens;
  const auto num_kept = routing::prompt_tokens_kept(request, limits);
  return num_kept.value_or(0) >= 1 ? num_kept : std::nullopt;
}

void PromptEcho::send_prompt_question(std::size_t i) {
  auto& request = requests_[i];
  if (request.prompt) {
    session_.ask(model_.router, kTags * i, actors::TokenizeRequest{*request.prompt, request.add_special_tokens});
    texts_[i].text = *request.prompt;
  } else {
    send_text_questions(i);
  }
}

void PromptEcho::send_text_questions(std::size_t i) {
  auto& ids = *requests_[i].prompt_token_ids;
  const auto num_kept = num_echoed_tokens(requests_[i], model_.info);
  const bool is_cut = num_kept && *num_kept < std::ssize(ids);
  if (is_cut) ids.erase(ids.begin(), ids.end() - *num_kept);
  const bool has_text = requests_[i].prompt && !is_cut;
  requests_[i].prompt.reset();
  if (!has_text) {
    session_.ask(model_.router, kTags * i + kText, actors::DetokenizeRequest{ids, false});
    ++texts_[i].questions;
  }
  session_.ask(
      model_.router, kTags * i + kFirstToken,
      actors::DetokenizeRequest{{ids.begin(), ids.begin() + std::min<std::ptrdiff_t>(1, std::ssize(ids))}, false});
  ++texts_[i].questions;
}

std::optional<Error> PromptEcho::on_answer(serving::QueryAnswered& answered) {
  const auto i = static_cast<std::size_t>(answered.tag) / kTags;
  if (auto* error = std::get_if<Error>(&answered.answer)) return std::move(*error);
  if (auto* ids = std::get_if<TokenIds>(&answered.answer)) {
    requests_[i].prompt_token_ids.emplace(ids->begin(), ids->end());
    send_text_questions(i);
    return std::nullopt;
  }
  auto& texts = texts_[i];
  (answered.tag % kTags == kText ? texts.text : texts.first_token) = std::get<std::string>(std::move(answered.answer));
  if (--texts.questions > 0) return std::nullopt;
  writer_.prompt(i, std::move(texts.text), std::move(texts.first_token));
  ++num_sent_;
  return std::nullopt;
}

}  // namespace pagoda::http
