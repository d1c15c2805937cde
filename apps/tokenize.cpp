#include <cstdio>
#include <iostream>
#include <iterator>
#include <string>

#include "apps/command.hpp"
#include "apps/flag_values.hpp"
#include "apps/model_location.hpp"
#include "io/model_files/model_files.hpp"
#include "io/wire/json_text.hpp"

namespace pagoda::apps {
namespace {

struct TokenizeOptions {
  std::string model;
  bool add_special_tokens = true;
};

int run_tokenize(TokenizeOptions options) {
  if (options.model.empty()) return exit_with(Error{ErrorCode::bad_config, "--model is required", "model"});
  if (const Status status = locate_model(options.model); !status) return exit_with(status.error());
  const auto tokenizer = io::load_tokenizer(options.model);
  if (!tokenizer) return exit_with(tokenizer.error());
  const std::string text(std::istreambuf_iterator<char>(std::cin), {});
  const auto ids = (*tokenizer)->encode(text, options.add_special_tokens);
  if (!ids) return exit_with(ids.error());
  std::string line = "[";
  for (const auto id : *ids) {
    if (line.size() > 1) line += ", ";
    wire::append_integer(line, id);
  }
  line += "]\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
  return kExitOk;
}

}  // namespace

Command add_tokenize(CLI::App& pagoda) {
  auto* app = pagoda.add_subcommand("tokenize", "Print the token ids of the text on standard input");
  const auto options = std::make_shared<TokenizeOptions>();
  app->add_option("--model", options->model, "Model folder or GGUF file; only its tokenizer is read");
  add_switch(*app, "add-special-tokens", options->add_special_tokens,
             "With the tokens that the tokenizer puts around a text");
  return {app, [options] { return run_tokenize(*options); }};
}

}  // namespace pagoda::apps
