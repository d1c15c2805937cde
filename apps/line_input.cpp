#include "apps/line_input.hpp"

#include <cerrno>
#include <clocale>
#include <cstdio>

#include <unistd.h>

#if PAGODA_HAS_LIBEDIT
#include <histedit.h>
#endif

namespace pagoda::apps {

#if PAGODA_HAS_LIBEDIT

struct LineInput::Editor {
  static constexpr int kHistoryLines = 1000;

  Editor() : history(::history_init()), editor(::el_init("pagoda", stdin, stdout, stderr)) {
    ::history(history, &event, H_SETSIZE, kHistoryLines);
    ::history(history, &event, H_SETUNIQUE, 1);
    ::el_set(editor, EL_CLIENTDATA, this);
    ::el_set(editor, EL_PROMPT, &Editor::show_prompt);
    ::el_set(editor, EL_EDITOR, "emacs");
    ::el_set(editor, EL_HIST, ::history, history);
  }
  ~Editor() {
    ::el_end(editor);
    ::history_end(history);
  }
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  static char* show_prompt(EditLine* editor) {
    void* self = nullptr;
    ::el_get(editor, EL_CLIENTDATA, &self);
    return static_cast<Editor*>(self)->prompt.data();
  }

  std::optional<Line> next(const std::string& shown) {
    prompt = shown;
    int count = 0;
    errno = 0;
    const char* text = ::el_gets(editor, &count);
    if (text == nullptr || count <= 0) {
      if (errno != EINTR) return {};
      ::el_reset(editor);
      std::fputc('\n', stdout);
      return Line{{}, true};
    }
    std::string line(text, static_cast<std::size_t>(count));
    ::history(history, &event, H_ENTER, line.c_str());
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
    return Line{std::move(line)};
  }

  History* history;
  EditLine* editor;
  HistEvent event{};
  std::string prompt;
};

#else

struct LineInput::Editor {
  std::optional<Line> next(const std::string&) { return {}; }
};

#endif

LineInput::LineInput() : is_terminal_(::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0) {
#if PAGODA_HAS_LIBEDIT
  if (!is_terminal_) return;
  std::setlocale(LC_CTYPE, "");  // what a character is, for the cursor
  editor_ = std::make_unique<Editor>();
#endif
}

LineInput::~LineInput() = default;

std::optional<LineInput::Line> LineInput::next(const std::string& prompt) {
  return editor_ ? editor_->next(prompt) : next_plain(prompt);
}

std::optional<LineInput::Line> LineInput::next_plain(const std::string& prompt) {
  if (is_terminal_) {
    std::fputs(prompt.c_str(), stdout);
    std::fflush(stdout);
  }
  Line line;
  for (;;) {
    errno = 0;
    const int character = std::fgetc(stdin);
    if (character == '\n') break;
    if (character != EOF) {
      line.text += static_cast<char>(character);
      continue;
    }
    if (errno == EINTR) {
      std::clearerr(stdin);
      return Line{{}, true};
    }
    if (line.text.empty()) return {};
    break;
  }
  if (!line.text.empty() && line.text.back() == '\r') line.text.pop_back();
  return line;
}

}  // namespace pagoda::apps
