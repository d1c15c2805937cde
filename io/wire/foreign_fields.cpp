#include "io/wire/foreign_fields.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "io/wire/request_fields.hpp"

namespace pagoda::wire {
namespace {

/// A field of another server, and the values that turn it off.
struct NeutralField {
  const char* name;
  std::vector<Json> off;
};

const std::vector<NeutralField>& neutral_fields() {
  static const Json no_list = Json::array();
  static const std::vector<NeutralField> fields{
      // vLLM
      {"logits_processors", {no_list}},
      {"return_tokens_as_token_ids", {false}},
      {"chat_template", {""}},
      // SGLang
      {"return_hidden_states", {false}},
      {"stop_regex", {no_list, ""}},
      {"custom_logit_processor", {""}},
      // llama-server and text-generation-webui
      {"mirostat", {0}},
      {"mirostat_mode", {0}},
      {"tfs_z", {1, 0}},
      {"tfs", {1, 0}},
      {"typical_p", {1, 0}},
      {"typical", {1, 0}},
      {"top_a", {0}},
      {"top_n_sigma", {-1, 0}},
      {"xtc_probability", {0}},
      {"dry_multiplier", {0}},
      {"dynatemp_range", {0}},
      {"dynamic_temperature", {false}},
      {"smoothing_factor", {0}},
      {"epsilon_cutoff", {0}},
      {"eta_cutoff", {0}},
      {"penalty_alpha", {0}},
      {"no_repeat_ngram_size", {0}},
      {"guidance_scale", {1}},
      {"n_probs", {0}},
      {"min_keep", {0, 1}},
  };
  return fields;
}

/// Parameters of samplers that are turned off, and fields that have no effect on an answer.
constexpr const char* kWithoutEffect[] = {
    "mirostat_tau",
    "mirostat_eta",
    "xtc_threshold",
    "dry_base",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "dry_sequence_breakers",
    "dynatemp_exponent",
    "dynatemp_low",
    "dynatemp_high",
    "smoothing_curve",
    // A context is never shifted.
    "n_keep",
    "n_discard",
    // Every request uses the prefix cache.
    "cache_prompt",
};

/// Fields of other APIs whose names look like misspellings of fields of this API.
constexpr const char* kOfOthers[] = {"mode", "models", "speed"};

bool is_one_of(const Json& value, const auto& values) {
  return std::ranges::find(values, value) != std::ranges::end(values);
}

void refuse_value(FieldReader& fields, const char* name, const auto& off, std::string_view why) {
  const Json* value = fields.find(name);
  if (value == nullptr || value->is_null() || is_one_of(*value, off)) return;
  fields.refuse(name, std::string(name) + " is not supported" + std::string(why));
}

}  // namespace

void refuse_unless(FieldReader& fields, const char* name, std::initializer_list<Json> off, std::string_view why) {
  refuse_value(fields, name, off, why);
}

void read_foreign_fields(FieldReader& fields, GenerateRequest& request) {
  auto& sampling = request.sampling;
  const double penalty = sampling.repetition_penalty;
  read_open(fields, "repeat_penalty", sampling.repetition_penalty, request.open.repetition_penalty);
  if (fields.has("repetition_penalty") && sampling.repetition_penalty != penalty) {
    fields.refuse("repeat_penalty",
                  "repeat_penalty and repetition_penalty are two names of one field, but their values differ");
  }
  bool keeps_stop = false;
  fields.read("no_stop_trim", keeps_stop);
  sampling.include_stop_str_in_output = sampling.include_stop_str_in_output || keeps_stop;
  for (const auto& [name, off] : neutral_fields()) refuse_value(fields, name, off, {});
  for (const char* name : {"adapter", "lora_path"}) {
    refuse_unless(fields, name, {""}, ": a request names its adapter as its model");
  }
  for (const char* name : kWithoutEffect) fields.skip(name);
  for (const char* name : kOfOthers) fields.ignore(name);
}

}  // namespace pagoda::wire
