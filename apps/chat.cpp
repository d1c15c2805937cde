#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "apps/adapter_flag.hpp"
#include "apps/chat_turn.hpp"
#include "apps/command.hpp"
#include "apps/conversation.hpp"
#include "apps/flags.hpp"
#include "apps/line_input.hpp"
#include "apps/progress.hpp"
#include "io/chat/answer_reading.hpp"
#include "io/model_files/model_files.hpp"
#include "pagoda/engine.hpp"

namespace pagoda::apps {
namespace {

constexpr const char* kHelp =
    "  /system [TEXT]  set the system message; without a text: remove it\n"
    "  /reset          forget the conversation; the system message stays\n"
    "  /stats          show statistics of the last answer and the engine\n"
    "  /save FILE      write the conversation as JSON\n"
    "  /exit           end the chat, like Ctrl-D\n"
    "  \"\"\"             begins and ends a message of several lines\n"
    "  Ctrl-C          ends an answer, not the chat\n";
constexpr const char* kBlock = "\"\"\"";

struct ChatOptions {
  explicit ChatOptions(CLI::App& app) : engine(app, "warn", lazy_memory()) {
    add_text(app, "--prompt", prompt, "Answer this and end; -: all of standard input");
    add_text(app, "--system", system, "The system message");
    add_adapter_flag(app, request.adapter);
    request.sampling.max_tokens = std::numeric_limits<std::int32_t>::max();  // up to the end of the context
    add_sampling_flags(app, request);
  }

  EngineFlags engine;
  std::string prompt;
  std::string system;
  GenerateRequest request;
};

void write(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

class Chat {
 public:
  Chat(Engine& engine, const chat::ChatPrompts& prompts, const ChatOptions& options)
      : engine_(engine), prompts_(prompts), request_(options.request), conversation_(options.system) {}

  /// Answers one message.
  int answer_once(std::string prompt) { return take_turn(std::move(prompt)) ? kExitOk : kExitFailure; }

  /// Answers messages until the input ends.
  int run() {
    if (input_.is_terminal()) std::printf("%s. /? lists the commands.\n", engine_.model_info().name.c_str());
    while (auto message = next_message()) {
      if (message->empty()) continue;
      if (message->front() == '/' && !is_block_) {
        if (!run_command(*message)) break;
      } else if (!take_turn(std::move(*message)) && !input_.is_terminal()) {
        return kExitFailure;
      }
    }
    return kExitOk;
  }

 private:
  /// Returns a line, or the lines of a block. Returns nothing at the end of the input.
  std::optional<std::string> next_message() {
    is_block_ = false;
    auto line = input_.next(">>> ");
    if (!line) return {};
    if (line->interrupted) return "";
    if (!line->text.starts_with(kBlock)) return std::move(line->text);
    is_block_ = true;
    std::string text = line->text.substr(3);
    while (!text.ends_with(kBlock)) {
      line = input_.next("... ");
      if (!line) return text;
      if (line->interrupted) return "";
      text += (text.empty() ? "" : "\n") + line->text;
    }
    text.resize(text.size() - 3);
    while (text.ends_with('\n')) text.pop_back();
    return text;
  }

  /// Returns whether the answer succeeded. If not, the message is removed from the conversation.
  bool take_turn(std::string message) {
    conversation_.add_user(std::move(message));
    auto request = request_;
    chat::ChatInput chat;
    chat.messages = conversation_.messages();
    chat.add_generation_prompt = true;
    request.add_special_tokens = false;
    const auto applied = prompts_.apply(chat, request);
    if (applied) chat::scope_stop_strings(prompts_, /*continues=*/false, request);
    auto result = applied ? run_turn(engine_, std::move(request), interrupts_, write)
                          : Result<RequestResult>(fail(applied.error()));
    if (!result) {
      conversation_.take_back();
      complain(result.error().message + (result.error().code == ErrorCode::context_too_long && !conversation_.empty()
                                             ? "; /reset begins a new conversation"
                                             : ""));
      return false;
    }
    const auto& answer = result->outputs.front();
    std::puts(answer.finish_reason == FinishReason::abort ? " ...\n" : input_.is_terminal() ? "\n" : "");
    std::fflush(stdout);
    conversation_.add_assistant(answer.text);
    last_ = std::move(*result);
    return true;
  }

  /// Returns whether the chat goes on.
  bool run_command(const std::string& line) {
    const auto space = line.find(' ');
    const auto name = line.substr(0, space);
    const auto rest = space == std::string::npos ? std::string() : line.substr(line.find_first_not_of(' ', space));
    if (name == "/exit" || name == "/quit" || name == "/bye") return false;
    if (name == "/?" || name == "/help") {
      std::fputs(kHelp, stdout);
    } else if (name == "/system") {
      conversation_.set_system(rest);
    } else if (name == "/reset") {
      conversation_.reset();
    } else if (name == "/stats") {
      show_stats();
    } else if (name == "/save") {
      save(rest);
    } else {
      complain("unknown command " + name + "; /? lists the commands");
    }
    return true;
  }

  void show_stats() {
    if (last_) {
      const auto& [usage, timing] = std::pair(last_->usage, last_->timing);
      const auto decode_s = (timing.total_ms - timing.ttft_ms) / 1000;
      std::printf("last answer: %lld tokens of prompt, %lld of them cached; first token after %.0f ms; %lld tokens",
                  static_cast<long long>(usage.prompt_tokens), static_cast<long long>(usage.cached_tokens),
                  timing.ttft_ms, static_cast<long long>(usage.completion_tokens));
      if (usage.completion_tokens > 1 && decode_s > 0) {
        std::printf(", %.1f a second", static_cast<double>(usage.completion_tokens - 1) / decode_s);
      }
      std::puts("");
    }
    const auto stats = engine_.stats();
    std::printf("KV cache: %lld of %lld blocks free, %lld with reusable prompts\n",
                static_cast<long long>(stats.device_blocks_free), static_cast<long long>(stats.device_blocks_total),
                static_cast<long long>(stats.device_blocks_cached));
  }

  void save(const std::string& path) {
    if (path.empty()) return complain("/save needs a file's name");
    std::ofstream file(path);
    file << nlohmann::ordered_json{{"messages", conversation_.messages()}}.dump(
                2, ' ', false, nlohmann::ordered_json::error_handler_t::replace)
         << '\n';
    file.close();
    if (!file) complain("cannot write " + path);
  }

  Engine& engine_;
  const chat::ChatPrompts& prompts_;
  const GenerateRequest request_;
  Conversation conversation_;
  Interrupts interrupts_;
  LineInput input_{interrupts_};
  bool is_block_ = false;
  std::optional<RequestResult> last_;
};

int run_chat(ChatOptions& options) {
  if (const auto problems = options.engine.finish(); !problems.empty()) return exit_with(problems);
  if (const auto status = check_adapter(options.engine.config, options.request.adapter); !status) {
    return exit_with(status.error());
  }
  const auto prompts = io::load_chat_prompts(options.engine.config);
  if (!prompts) return exit_with(prompts.error());
  if (*prompts == nullptr) {
    return exit_with(Error{ErrorCode::bad_config,
                           "the model has no chat template: give one with --chat-template, or use pagoda generate",
                           "chat_template"});
  }
  const auto engine = Engine::create(options.engine.config, options.engine.setup());
  if (!engine) return exit_with(engine.error());
  Chat chat(**engine, **prompts, options);
  if (options.prompt.empty()) return chat.run();
  if (options.prompt != "-") return chat.answer_once(std::move(options.prompt));
  std::string prompt(std::istreambuf_iterator<char>(std::cin), {});
  if (prompt.ends_with('\n')) prompt.pop_back();  // the line end of the last line
  return chat.answer_once(std::move(prompt));
}

}  // namespace

Command add_chat(CLI::App& pagoda) {
  auto* app = add_subcommand(pagoda, "chat", "Talk with a model in the terminal");
  const auto options = std::make_shared<ChatOptions>(*app);
  return {app, [options] { return run_chat(*options); }};
}

}  // namespace pagoda::apps
