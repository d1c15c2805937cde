#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>

#include "io/model_files/gguf/gguf_from_folder.hpp"
#include "io/model_files/model_files.hpp"
#include "tests/io/fuzz/fuzz_folder.hpp"
#include "tests/io/fuzz/tokenizer_target.hpp"
#include "tests/support/safetensors_file.hpp"

namespace pagoda::io::testing {

/// Writes the files that `description` tells of: each begins with a line "=== NAME SIZE", and what is behind it up to
/// the next such line is its content, or for NAME.safetensors its header, which SIZE zeros follow.
inline void write_described_files(std::string_view description, const FuzzFolder& folder) {
  constexpr std::string_view kMark = "=== ";
  constexpr std::size_t kMaxZeros = 1 << 16;
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  };
  for (int i = 0; i < 12 && description.starts_with(kMark); ++i) {
    description.remove_prefix(kMark.size());
    const std::string_view line = description.substr(0, description.find('\n'));
    const std::string_view name = line.substr(0, std::min<std::size_t>(line.find(' '), 64));
    std::size_t zeros = 0;
    if (const auto space = line.find(' '); space != line.npos) {
      std::from_chars(line.data() + space + 1, line.data() + line.size(), zeros);
    }
    description.remove_prefix(std::min(line.size() + 1, description.size()));
    const std::size_t next = description.find("\n=== ");
    const std::string_view content = description.substr(0, next);
    description.remove_prefix(std::min(next == description.npos ? next : next + 1, description.size()));
    if (name.empty() || name.front() == '.' || !std::ranges::all_of(name, is_plain)) continue;
    if (name.ends_with(".safetensors")) {
      folder.write(name, test::safetensors_file(content, std::min(zeros, kMaxZeros)));
    } else {
      folder.write(name, content);
    }
  }
}

/// Reads the files of `description` as a model folder. Whatever they are, there are one-line errors or parts of a model
/// that work.
inline void try_model_folder(std::string_view description) {
  static const FuzzFolder folder;
  folder.clear();
  write_described_files(description, folder);
  const auto check = [](const auto& result) {
    if (!result) check_error(result.error());
  };
  const auto files = open_model_files(folder.path());
  if (!files) return check_error(files.error());
  check((*files)->sampling_defaults());
  const auto tokenizer = (*files)->tokenizer();
  check(tokenizer);
  if (tokenizer) try_tokenizer(*tokenizer);
  const auto prompts = (*files)->chat_prompts({});
  check(prompts);
  if (prompts && *prompts) {
    chat::ChatInput chat;
    chat.messages.push_back({{"role", "user"}, {"content", "hi"}});
    chat.add_generation_prompt = true;
    if (const auto prompt = (*prompts)->render(chat); !prompt) {
      PAGODA_ASSERT(!prompt.error().message.empty(), "an error says what is wrong");
    }
  }
  const auto spec = (*files)->spec();
  check(spec);
  const auto weights = (*files)->weights();
  check(weights);
  check(gguf_parts_of_folder(folder.path()));
  if (!spec || !weights) return;
  const auto model = spec->build(**weights);
  check(model);
  if (model) check((*weights)->check_all_used(*spec));
}

}  // namespace pagoda::io::testing
