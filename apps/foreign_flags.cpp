#include "apps/foreign_flags.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

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

std::string_view advice_for(std::string_view name, std::span<const RefusedFlag> flags) {
  const auto flag = std::ranges::find_if(flags, [&](const RefusedFlag& each) { return is_in(each.names, name); });
  return flag == flags.end() ? std::string_view() : flag->advice;
}

bool is_above_1(std::string_view text) {
  const bool is_number = !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  if (!is_number) return false;
  text.remove_prefix(std::min(text.find_first_not_of('0'), text.size()));
  return !text.empty() && text != "1";
}

std::string_view advice_for_value(std::string_view name, std::string_view value) {
  for (const auto& refused : refused_values_of_vllm()) {
    const bool is_meant = refused.values == ">1" ? is_above_1(value) : is_in(refused.values, value);
    if (is_meant && is_in(refused.names, name)) return refused.advice;
  }
  return {};
}

/// A whole number as vLLM lets it be written: 32768, 32k (thousands), 32K (of 1024), 1.5k, and so with m, g and t.
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

/// One argument: a flag, perhaps with a value behind "=".
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

class Translator {
 public:
  explicit Translator(std::span<const std::string> arguments) : arguments_(arguments) {}

  Translation run() {
    for (; at_ < arguments_.size(); ++at_) take(arguments_[at_]);
    finish_address();
    return std::move(translation_);
  }

 private:
  void refuse(const std::string& flag, const std::string& why) {
    translation_.problems.push_back({ErrorCode::bad_config, flag + " " + why, flag});
  }

  void give(const std::string& flag, const std::string& value) {
    translation_.arguments.push_back(flag);
    translation_.arguments.push_back(value);
  }

  /// The value of a flag, which may be the next argument. None, and a problem, when there is none.
  std::optional<std::string> value_of(const Argument& flag) {
    if (flag.value) return flag.value;
    if (at_ + 1 < arguments_.size()) return arguments_[++at_];
    refuse(flag.name, "needs a value");
    return std::nullopt;
  }

  void take(const std::string& text) {
    const Argument argument(text);
    if (!argument.is_flag()) return translation_.arguments.push_back(text);
    if (is_refused(argument) || is_value_refused(argument)) return;
    if (take_own(argument)) return;
    for (const auto& flag : taken_of_vllm()) {
      if (flag.name != argument.name) continue;
      if (const auto value = value_of(argument)) give(std::string(flag.own), *value);
      return;
    }
    translation_.arguments.push_back(argument.name + (argument.value ? "=" + *argument.value : ""));
  }

  /// Also of a flag like --compilation-config.level. The values of a refused flag go with it.
  bool is_refused(const Argument& argument) {
    const std::string name =
        argument.name.substr(0, argument.name.starts_with("--") ? argument.name.find('.') : std::string::npos);
    auto advice = advice_for(name, refused_of_vllm());
    if (advice.empty()) advice = advice_for(name, refused_of_llama_server());
    if (advice.empty()) return false;
    refuse(argument.name, std::string(advice));
    while (at_ + 1 < arguments_.size() && !Argument(arguments_[at_ + 1]).is_flag()) ++at_;
    return true;
  }

  bool is_value_refused(const Argument& argument) {
    const bool is_next = !argument.value && at_ + 1 < arguments_.size();
    const auto value = is_next ? arguments_[at_ + 1] : argument.value.value_or("");
    const auto advice = advice_for_value(argument.name, value);
    if (advice.empty()) return false;
    refuse(argument.name, value + " " + std::string(advice));
    if (is_next) ++at_;
    return true;
  }

  /// Flags whose values are written in another way here.
  bool take_own(const Argument& argument) {
    const auto& name = argument.name;
    if (name == "--async-scheduling") return give("--pipeline-depth", "2"), true;
    if (name == "--no-async-scheduling") return give("--pipeline-depth", "1"), true;
    if (name == "--http") is_http_given_ = true;
    const bool is_number = name == "--max-model-len" || name == "--max-num-batched-tokens";
    const bool is_own = is_number || name == "--host" || name == "--port" || name == "--dtype" ||
                        name == "--allowed-origins" || name == "--kv-cache-memory-bytes";
    if (!is_own) return false;
    const auto value = value_of(argument);
    if (!value) return true;
    if (name == "--host") {
      host_ = value;
    } else if (name == "--port") {
      port_ = value;
    } else if (name == "--dtype") {
      give(name, *value == "half" ? "float16" : *value == "float" ? "float32" : *value);
    } else if (name == "--allowed-origins") {
      take_origins(*value);
    } else if (name == "--kv-cache-memory-bytes") {
      take_kv_bytes(*value);
    } else {
      give(name, whole_number(*value).value_or(*value));
    }
    return true;
  }

  /// A list in JSON.
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

  /// --host and --port are --http. Unless told, as with --http: this machine alone, and vLLM's port.
  void finish_address() {
    if (!host_ && !port_) return;
    if (is_http_given_) return refuse(host_ ? "--host" : "--port", "cannot be given beside --http, which has both");
    std::string host = host_.value_or("127.0.0.1");
    if (host.find(':') != std::string::npos && !host.starts_with('[')) host = "[" + host + "]";
    give("--http", host + ":" + port_.value_or("8000"));
  }

  std::span<const std::string> arguments_;
  std::size_t at_ = 0;
  Translation translation_;
  std::optional<std::string> host_;
  std::optional<std::string> port_;
  bool is_http_given_ = false;
};

}  // namespace

Translation translate_flags(std::span<const std::string> arguments) {
  return Translator(arguments).run();
}

}  // namespace pagoda::apps
