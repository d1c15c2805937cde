#include "apps/line_input.hpp"

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cwchar>

#include <poll.h>
#include <unistd.h>

#if PAGODA_HAS_LIBEDIT
#include <histedit.h>
#endif

namespace pagoda::apps {
namespace {

/// Waits for input. Returns false if an interrupt comes first, and takes it.
bool is_input_before_interrupt(Interrupts& interrupts) {
  for (;;) {
    pollfd ready[2] = {{STDIN_FILENO, POLLIN, 0}, {interrupts.fd(), POLLIN, 0}};
    if (::poll(ready, 2, -1) < 0 && errno != EINTR) return true;  // the following read reports the error
    if (interrupts.take()) return false;
    if (ready[0].revents != 0) return true;
  }
}

}  // namespace

bool LineInput::can_edit() {
#if PAGODA_HAS_LIBEDIT
  return true;
#else
  return false;
#endif
}

#if PAGODA_HAS_LIBEDIT

struct LineInput::Editor {
  static constexpr int kHistoryLines = 1000;

  explicit Editor(Interrupts& taken)
      : interrupts(taken), history(::history_init()), editor(::el_init("pagoda", stdin, stdout, stderr)) {
    ::history(history, &event, H_SETSIZE, kHistoryLines);
    ::history(history, &event, H_SETUNIQUE, 1);
    ::el_set(editor, EL_CLIENTDATA, this);
    ::el_set(editor, EL_PROMPT, &Editor::show_prompt);
    ::el_set(editor, EL_EDITOR, "emacs");
    ::el_set(editor, EL_HIST, ::history, history);
    ::el_set(editor, EL_GETCFN, &Editor::read_character);
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

  /// Returns 1: a character; 0: the end of the input; -1: an interrupt or a failure.
  static int read_character(EditLine* editor, wchar_t* character) {
    void* pointer = nullptr;
    ::el_get(editor, EL_CLIENTDATA, &pointer);
    auto& self = *static_cast<Editor*>(pointer);
    std::mbstate_t state{};
    for (;;) {
      if (!is_input_before_interrupt(self.interrupts)) {
        self.interrupted = true;
        return -1;
      }
      char byte = 0;
      const auto size = ::read(STDIN_FILENO, &byte, 1);
      if (size <= 0) return static_cast<int>(size);
      const auto used = std::mbrtowc(character, &byte, 1, &state);
      if (used == static_cast<std::size_t>(-2)) continue;  // more bytes of the character follow
      if (used == static_cast<std::size_t>(-1)) *character = static_cast<unsigned char>(byte);
      return 1;
    }
  }

  std::optional<Line> next(const std::string& shown) {
    prompt = shown;
    int count = 0;
    interrupted = false;
    const char* text = ::el_gets(editor, &count);
    if (text == nullptr || count <= 0) {
      if (!interrupted) return {};
      ::el_reset(editor);
      std::fputc('\n', stdout);
      return Line{{}, true};
    }
    std::string line(text, static_cast<std::size_t>(count));
    ::history(history, &event, H_ENTER, line.c_str());
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
    return Line{std::move(line)};
  }

  Interrupts& interrupts;
  bool interrupted = false;
  History* history;
  EditLine* editor;
  HistEvent event{};
  std::string prompt;
};

#else

struct LineInput::Editor {
  explicit Editor(Interrupts&) {}
  std::optional<Line> next(const std::string&) { return {}; }
};

#endif

LineInput::LineInput(Interrupts& interrupts)
    : interrupts_(interrupts), is_terminal_(::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0) {
#if PAGODA_HAS_LIBEDIT
  if (!is_terminal_) return;
  std::setlocale(LC_CTYPE, "");  // so that the cursor moves by whole characters
  editor_ = std::make_unique<Editor>(interrupts);
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
  // A terminal gives whole lines, so no line is in stdio's buffer while this waits for the next.
  if (is_terminal_ && !is_input_before_interrupt(interrupts_)) return Line{{}, true};
  Line line;
  int character = std::fgetc(stdin);
  if (character == EOF) return {};
  for (; character != '\n' && character != EOF; character = std::fgetc(stdin))
    line.text += static_cast<char>(character);
  if (!line.text.empty() && line.text.back() == '\r') line.text.pop_back();
  return line;
}

}  // namespace pagoda::apps
