#include "apps/foreign_flags.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "engine/speculation_config.hpp"

namespace pagoda::apps {
namespace {

constexpr double kBytesOfGib = 1 << 30;

bool is_in(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const auto comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == word) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_above_1(std::string_view text) {
  if (!is_number(text)) return false;
  text.remove_prefix(std::min(text.find_first_not_of('0'), text.size()));
  return !text.empty() && text != "1";
}

/// Returns both servers: the flags of both may be mixed.
std::array<const ForeignServer*, 2> servers() {
  return {&vllm(), &llama_server()};
}

/// Returns the first entry of a table whose names include `name`; null if there is none.
template <class Entry>
const Entry* find(std::span<const Entry> ForeignServer::*table, std::string_view name) {
  for (const auto* server : servers()) {
    for (const auto& entry : server->*table) {
      if (is_in(entry.names, name)) return &entry;
    }
  }
  return nullptr;
}

const ValueRule* find_rule(std::string_view name, std::string_view value) {
  for (const auto* server : servers()) {
    for (const auto& rule : server->values) {
      const bool is_meant = rule.values == "*" || (rule.values == ">1" ? is_above_1(value) : is_in(rule.values, value));
      if (is_meant && is_in(rule.names, name)) return &rule;
    }
  }
  return nullptr;
}

/// Converts a whole number in vLLM's notation: 32768, 32k (thousands), 32K (of 1024), 1.5k, and so with m, g and t.
std::optional<std::string> whole_number(const std::string& text) {
  constexpr std::string_view kUnits = "kmgt";
  if (text.size() < 2) return std::nullopt;
  const auto letter = static_cast<char>(text.back() | 0x20);
  const auto unit = kUnits.find(letter);
  const std::string digits = text.substr(0, text.size() - 1);
  const bool is_decimal = letter == text.back();
  const auto allowed = is_decimal ? "0123456789." : "0123456789";
  if (unit == std::string_view::npos || digits.find_first_not_of(allowed) != std::string::npos) return std::nullopt;
  if (digits.front() == '.' || digits.back() == '.' || std::ranges::count(digits, '.') > 1) return std::nullopt;
  const double value = std::stod(digits) * std::pow(is_decimal ? 1000.0 : 1024.0, static_cast<double>(unit + 1));
  constexpr double kMost = 9e15;
  if (value > kMost) return std::nullopt;
  return std::to_string(static_cast<std::int64_t>(value));
}

/// One argument: a flag, possibly with a value after "=".
struct Argument {
  explicit Argument(const std::string& text) {
    if (!text.starts_with('-') || text == "-" || text == "--") return;
    const auto equals = text.find('=');
    name = text.substr(0, equals);
    if (equals != std::string::npos) value = text.substr(equals + 1);
    if (name.starts_with("--")) std::ranges::replace(name, '_', '-');
  }

  bool is_flag() const { return !name.empty(); }

  std::string name;
  std::optional<std::string> value;
};

/// Returns whether an argument may be the value of the flag before it.
bool is_value(const std::string& argument) {
  return !Argument(argument).is_flag() || is_number(std::string_view(argument).substr(1));
}

class Translator {
 public:
  explicit Translator(std::span<const std::string> arguments) : arguments_(arguments) {}

  Translation run() {
    for (; at_ < arguments_.size(); ++at_) take(arguments_[at_]);
    finish_context();
    finish_kv_type();
    finish_adapters();
    finish_drafts();
    finish_address();
    return std::move(translation_);
  }

 private:
  void refuse(const std::string& flag, const std::string& why) {
    translation_.problems.push_back({ErrorCode::bad_config, flag + " " + why, flag});
  }

  void note(const std::string& flag, std::string_view why) {
    translation_.notes.push_back(flag + " has no effect: " + std::string(why));
  }

  void give(const std::string& flag, const std::string& value) {
    translation_.arguments.push_back(flag);
    translation_.arguments.push_back(value);
  }

  bool has_next() const { return at_ + 1 < arguments_.size(); }

  /// Returns the value of a flag, which may be the next argument. If there is none, reports a problem and returns
  /// nothing.
  std::optional<std::string> value_of(const Argument& flag) {
    if (flag.value) return flag.value;
    if (has_next()) return arguments_[++at_];
    refuse(flag.name, "needs a value");
    return std::nullopt;
  }

  void take(const std::string& text) {
    const Argument argument(text);
    if (!argument.is_flag()) return translation_.arguments.push_back(text);
    if (takes_by_value(argument) || takes_own(argument) || takes_noted(argument) || takes_refused(argument)) return;
    if (const auto* flag = find(&ForeignServer::taken, argument.name)) {
      is_foreign_ = true;
      if (const auto value = value_of(argument)) give(std::string(flag->own), *value);
      return;
    }
    translation_.arguments.push_back(argument.name + (argument.value ? "=" + *argument.value : ""));
  }

  bool takes_by_value(const Argument& argument) {
    const bool is_next = !argument.value && has_next() && is_value(arguments_[at_ + 1]);
    const auto value = is_next ? arguments_[at_ + 1] : argument.value.value_or("");
    const auto* rule = find_rule(argument.name, value);
    if (rule == nullptr) return false;
    if (rule->fate == ValueRule::Fate::refused) {
      refuse(argument.name, (value.empty() ? "" : value + " ") + std::string(rule->text));
    } else {
      note(argument.name + " " + value, rule->text);
    }
    if (is_next) ++at_;
    return true;
  }

  /// Returns the name without a member: --compilation-config for --compilation-config.level.
  static std::string without_member(const std::string& name) {
    return name.substr(0, name.starts_with("--") ? name.find('.') : std::string::npos);
  }

  bool takes_noted(const Argument& argument) {
    const auto* flag = find(&ForeignServer::noted, without_member(argument.name));
    if (flag == nullptr) return false;
    note(argument.name, flag->why);
    is_foreign_ = true;
    if (argument.value) return true;
    const auto next_is = [this](const auto& fits) { return has_next() && fits(arguments_[at_ + 1]); };
    switch (flag->values) {
      case Values::none:
        break;
      case Values::one:
        if (next_is(is_value)) ++at_;
        break;
      case Values::maybe_switch:
        if (next_is([](const std::string& next) { return is_in("on,off,auto,true,false,0,1", next); })) ++at_;
        break;
      case Values::numbers:
        while (next_is(is_number)) ++at_;
        break;
    }
    return true;
  }

  /// Refuses a flag together with its values.
  bool takes_refused(const Argument& argument) {
    const auto* flag = find(&ForeignServer::refused, without_member(argument.name));
    if (flag == nullptr) return false;
    refuse(argument.name, std::string(flag->advice));
    while (has_next() && !Argument(arguments_[at_ + 1]).is_flag()) ++at_;
    return true;
  }

  /// Replaces flags without a value by flags with a value.
  bool takes_switch(const std::string& name) {
    if (name == "--async-scheduling") return give("--pipeline-depth", "2"), true;
    if (name == "--no-async-scheduling") return give("--pipeline-depth", "1"), true;
    if (name == "--disable-log-stats") return give("--log-stats-interval", "0"), true;
    if (name == "--numa-bind") return give("--cpu-affinity", "numa"), true;
    if (name == "--log-disable") return give("--log-level", "off"), true;
    if (is_in("-v,--verbose,--log-verbose", name)) return give("--log-level", "debug"), true;
    if (!is_in("--no-webui,--no-ui", name)) return false;
    translation_.arguments.emplace_back("--no-page");
    return true;
  }

  /// Converts flags whose values are written differently here.
  bool takes_own(const Argument& argument) {
    const auto& name = argument.name;
    if (takes_switch(name)) return true;
    if (name == "--http") is_http_given_ = true;
    if (is_in("--gpu-memory-utilization,--enforce-eager", name) && is_for_cpu()) return drop_of_gpu(argument);
    if (is_in("-np,--parallel", name)) return keep(argument, parallel_);
    if (is_in("-c,--ctx-size", name)) return keep(argument, context_);
    if (is_in("-kvu,--kv-unified", name)) shares_context_ = true;
    if (is_in("-ctk,--cache-type-k", name)) return keep(argument, key_type_);
    if (is_in("-ctv,--cache-type-v", name)) return keep(argument, value_type_);
    if (name == kLoraModules || name == "--prompt-adapters") return take_adapters(argument);
    if (name == "--lora") return take_adapter_files(argument);
    if (is_in("-md,--model-draft,--speculative-model", name)) return keep(argument, draft_model_);
    if (is_in("--draft,--draft-n,--draft-max,--num-speculative-tokens", name)) {
      max_drafts_flag_ = name;
      return keep(argument, max_drafts_);
    }
    if (name == "--host") return keep(argument, host_);
    if (name == "--port") return keep(argument, port_);
    const bool is_length = name == "--max-model-len" || name == "--max-num-batched-tokens";
    const bool is_own =
        is_length || is_in("--dtype,--allowed-origins,--kv-cache-memory-bytes,--tokenizer,--hf-config-path", name);
    if (!is_own) return false;
    const auto value = value_of(argument);
    if (!value) return true;
    if (name == "--dtype") {
      give(name, *value == "half" ? "float16" : *value == "float" ? "float32" : *value);
    } else if (name == "--allowed-origins") {
      take_origins(*value);
    } else if (name == "--kv-cache-memory-bytes") {
      take_kv_bytes(*value);
    } else if (is_length) {
      give(name, whole_number(*value).value_or(*value));
    } else {
      take_companion(name, *value);
    }
    return true;
  }

  /// Returns whether the model runs on the CPU as far as the command line shows. A config file may name another device.
  bool is_for_cpu() const {
    return std::ranges::none_of(arguments_, [](const std::string& argument) {
      return argument.starts_with("--config") || argument.starts_with("cuda") || argument.starts_with("--device=cuda");
    });
  }

  bool drop_of_gpu(const Argument& argument) {
    note(argument.name, "it is for --device cuda, and the model runs on the CPU");
    if (argument.name == "--gpu-memory-utilization") value_of(argument);
    return true;
  }

  bool keep(const Argument& argument, std::optional<std::string>& value) {
    value = value_of(argument);
    return true;
  }

  /// Takes flags for files that vLLM needs beside a GGUF file. The GGUF file contains them, and so does the model's
  /// folder.
  void take_companion(const std::string& name, const std::string& value) {
    const bool is_within = std::ranges::any_of(arguments_, [&](const std::string& argument) {
      return argument.ends_with(".gguf") || (argument == value && &argument != &arguments_[at_]);
    });
    if (is_within) return note(name, "the model's folder or GGUF file has its own");
    refuse(name, std::string(find(&ForeignServer::refused, name)->advice));
  }

  /// Converts llama-server's context length, which is for all slots together: each slot has an equal part, unless they
  /// share it.
  void finish_context() {
    if (parallel_) give("--max-num-seqs", *parallel_);
    if (!context_) return;
    const bool is_divided = parallel_ && !shares_context_ && is_number(*context_) && is_above_1(*parallel_);
    constexpr std::size_t kMaxDigits = 9;
    if (!is_divided || context_->size() > kMaxDigits || parallel_->size() > kMaxDigits) {
      return give("--max-model-len", *context_);
    }
    give("--max-model-len", std::to_string(std::stoll(*context_) / std::stoll(*parallel_)));
  }

  /// Takes the values of vLLM's flag: NAME=PATH or a JSON object each, as many as follow.
  bool take_adapters(const Argument& argument) {
    auto& adapters = adapters_[argument.name];
    if (argument.value) return add_adapters(*argument.value, adapters), true;
    if (!has_next() || Argument(arguments_[at_ + 1]).is_flag()) return refuse(argument.name, "needs a value"), true;
    // An argument without "=" and without a brace at its start is the model, and not an adapter.
    const auto is_module = [](const std::string& text) {
      return !Argument(text).is_flag() && (text.find('=') != std::string::npos || text.starts_with('{'));
    };
    add_adapters(arguments_[++at_], adapters);
    while (has_next() && is_module(arguments_[at_ + 1])) add_adapters(arguments_[++at_], adapters);
    return true;
  }

  /// Adds the entries of a value: one, a JSON list, or texts with commas between.
  static void add_adapters(const std::string& value, std::vector<nlohmann::json>& adapters) {
    const bool is_json = value.starts_with('{') || value.starts_with('[');
    auto json = is_json ? nlohmann::json::parse(value, nullptr, false) : nlohmann::json();
    if (is_json && !json.is_discarded()) {
      if (!json.is_array()) return adapters.push_back(std::move(json));
      for (auto& entry : json) adapters.push_back(std::move(entry));
      return;
    }
    std::vector<std::string> entries;
    for (std::string_view rest = value; !rest.empty();) {
      const auto comma = std::min(rest.find(','), rest.size());
      const std::string piece(rest.substr(0, comma));
      rest.remove_prefix(std::min(comma + 1, rest.size()));
      const bool is_part_of_path = !entries.empty() && piece.find('=') == std::string::npos;
      if (is_part_of_path) {
        entries.back() += "," + piece;
      } else {
        entries.push_back(piece);
      }
    }
    for (std::string& entry : entries) adapters.emplace_back(std::move(entry));
  }

  /// Takes llama-server's files of adapters. There they are applied to every request unless
  /// --lora-init-without-apply is given; here a request names its adapter.
  bool take_adapter_files(const Argument& argument) {
    const auto value = value_of(argument);
    if (!value) return true;
    if (std::ranges::find(arguments_, "--lora-init-without-apply") == arguments_.end()) {
      refuse(argument.name, std::string(find(&ForeignServer::refused, "--lora-scaled")->advice) +
                                "; beside --lora-init-without-apply it is taken");
      return true;
    }
    is_foreign_ = true;
    enables_adapters_ = true;
    for (std::string_view rest = *value; !rest.empty();) {
      const auto comma = std::min(rest.find(','), rest.size());
      const std::string file(rest.substr(0, comma));
      adapters_[kLoraModules].push_back({{"name", std::filesystem::path(file).stem().string()}, {"path", file}});
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
    return true;
  }

  void finish_adapters() {
    if (enables_adapters_) translation_.arguments.emplace_back("--enable-lora");
    for (const auto& [flag, adapters] : adapters_) {
      const bool is_one = adapters.size() == 1;
      const bool is_plain = std::ranges::all_of(adapters, [&](const nlohmann::json& entry) {
        return entry.is_string() && (is_one || entry.get_ref<const std::string&>().find(',') == std::string::npos);
      });
      std::string joined;
      for (const auto& entry : adapters) {
        if (is_plain) joined += (joined.empty() ? "" : ",") + entry.get<std::string>();
      }
      const auto as_json = [&] {
        return nlohmann::json(adapters).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
      };
      if (!adapters.empty()) give(flag, is_plain ? joined : as_json());
    }
  }

  /// Joins the draft model and the number of its drafts.
  void finish_drafts() {
    if (!draft_model_ && !max_drafts_) return;
    is_foreign_ = true;
    if (!draft_model_) return note(max_drafts_flag_, "no draft model is named");
    nlohmann::ordered_json config;
    config[*draft_model_ == "[ngram]" ? "method" : "model"] = *draft_model_ == "[ngram]" ? "ngram" : *draft_model_;
    if (max_drafts_ == "0") return note(max_drafts_flag_ + " 0", "no drafts are made without --speculative-config");
    constexpr std::size_t kMaxDigits = 9;
    if (max_drafts_ && is_number(*max_drafts_) && max_drafts_->size() <= kMaxDigits) {
      config["num_speculative_tokens"] = std::clamp(std::stoi(*max_drafts_), 1, SpeculationConfig::kMaxTokens);
    } else if (max_drafts_) {
      return refuse(max_drafts_flag_, "must be a number, not " + *max_drafts_);
    }
    give("--speculative-config", config.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }

  void finish_kv_type() {
    if (!key_type_ && !value_type_) return;
    const auto keys = key_type_.value_or("f16");
    const auto values = value_type_.value_or("f16");
    const auto flag = key_type_ ? "--cache-type-k" : "--cache-type-v";
    constexpr std::pair<const char*, const char*> kTypes[] = {
        {"f32", "float32"}, {"f16", "float16"}, {"bf16", "bfloat16"}, {"q8_0", "int8"}};
    for (const auto& [theirs, ours] : kTypes) {
      if (keys == theirs && values == theirs) return give("--kv-cache-dtype", ours);
    }
    refuse(flag, "must be f32, f16, bf16 or q8_0 here, as --kv-cache-dtype, for keys and values alike, not " + keys +
                     " and " + values);
  }

  /// Reads origins, which are a list in JSON.
  void take_origins(const std::string& text) {
    const auto list = nlohmann::json::parse(text, nullptr, false);
    const bool is_one = list.is_array() && list.size() == 1 && list.front().is_string();
    if (!is_one) return refuse("--allowed-origins", "must be a list of one origin here, as [\"*\"], not " + text);
    give("--cors-origin", list.front().get<std::string>());
  }

  void take_kv_bytes(const std::string& text) {
    const std::string digits = whole_number(text).value_or(text);
    if (digits.empty() || digits.size() > 15 || digits.find_first_not_of("0123456789") != std::string::npos) {
      return refuse("--kv-cache-memory-bytes", "must be a number of bytes, not " + text);
    }
    char gib[64];
    std::snprintf(gib, sizeof gib, "%.12f", std::stod(digits) / kBytesOfGib);
    give("--kv-cache-memory", gib);
  }

  /// Converts --host and --port to --http. The defaults are this machine only, and vLLM's port.
  void finish_address() {
    if (!host_ && !port_) return note_missing_address();
    if (is_http_given_) return refuse(host_ ? "--host" : "--port", "cannot be given beside --http, which has both");
    std::string host = host_.value_or("127.0.0.1");
    if (host.find(':') != std::string::npos && !host.starts_with('[')) host = "[" + host + "]";
    give("--http", host + ":" + port_.value_or("8000"));
  }

  /// Notes that no HTTP port was given: both other servers serve HTTP by default.
  void note_missing_address() {
    const auto names_file = [](const std::string& argument) { return argument.starts_with("--config"); };
    if (!is_foreign_ || is_http_given_ || std::ranges::any_of(arguments_, names_file)) return;
    translation_.notes.emplace_back("the HTTP APIs are off: --port 8000 turns them on");
  }

  std::span<const std::string> arguments_;
  std::size_t at_ = 0;
  Translation translation_;
  std::optional<std::string> host_;
  std::optional<std::string> port_;
  std::optional<std::string> context_;   ///< context of llama-server
  std::optional<std::string> parallel_;  ///< number of llama-server's slots
  std::optional<std::string> key_type_;
  std::optional<std::string> value_type_;
  std::optional<std::string> draft_model_;
  std::optional<std::string> max_drafts_;
  std::string max_drafts_flag_;
  static constexpr const char* kLoraModules = "--lora-modules";
  std::map<std::string, std::vector<nlohmann::json>> adapters_;  ///< entries, by flag
  bool enables_adapters_ = false;                                ///< whether a flag of llama-server adds adapters
  bool shares_context_ = false;
  bool is_http_given_ = false;
  bool is_foreign_ = false;  ///< whether a flag of another server was given
};

}  // namespace

Translation translate_flags(std::span<const std::string> arguments) {
  return Translator(arguments).run();
}

}  // namespace pagoda::apps
