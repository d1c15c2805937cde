#include "apps/manual/man_page.hpp"

#include <algorithm>
#include <cctype>

namespace pagoda::apps {
namespace {

constexpr const char* kSection = "1";

/// Escapes a text for man(7): dashes do not become hyphens, and no line begins a request.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  if (out.starts_with('.') || out.starts_with('\'')) out.insert(0, "\\&");
  return out;
}

std::string bold(const std::string& text) {
  return "\\fB" + plain(text) + "\\fR";
}

std::string italic(const std::string& text) {
  return "\\fI" + plain(text) + "\\fR";
}

std::string with_dashes(std::string title) {
  std::ranges::replace(title, ' ', '-');
  return title;
}

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

std::string synopsis(const CommandEntry& command) {
  std::string text = bold(command.title);
  if (!command.commands.empty()) return text + " " + italic("COMMAND") + " [" + italic("OPTIONS") + "]\n";
  text += " [" + italic("OPTIONS") + "]";
  for (const auto& flag : command.flags) {
    if (flag.is_positional) text += " [" + italic(flag.names.front()) + "]";
  }
  return text + "\n";
}

/// Returns "--x, -x VALUE", or "--[no-]x".
std::string head_of(const FlagEntry& flag) {
  if (flag.is_switch) return bold("--[no-]" + flag.names.front().substr(2));
  std::string text;
  for (const auto& name : flag.names)
    text += (text.empty() ? "" : ", ") + (flag.is_positional ? italic(name) : bold(name));
  if (!flag.value.empty() && !flag.is_positional) text += " " + italic(flag.value);
  return text;
}

std::string flag_text(const FlagEntry& flag) {
  std::string text = ".TP\n" + head_of(flag) + "\n" + plain(flag.help) + ".";
  if (!flag.default_value.empty()) text += " Default: " + plain(flag.default_value) + ".";
  return text + "\n";
}

std::string see_also(const CommandEntry& command, const CommandEntry& root) {
  std::string text;
  for (const auto* other : all_commands(root)) {
    const bool is_near = other == &root || other->title.starts_with(command.title + " ");
    if (other == &command || !is_near) continue;
    text +=
        (text.empty() ? "" : ",\n") + std::string(".BR ") + plain(with_dashes(other->title)) + " (" + kSection + ")";
  }
  return text;
}

}  // namespace

std::string man_page_name(const CommandEntry& command) {
  return with_dashes(command.title) + "." + kSection;
}

std::string man_page(const CommandEntry& command, const CommandEntry& root, const std::string& version) {
  std::string page = ".TH " + upper(plain(with_dashes(command.title))) + " " + kSection + " \"\" \"pagoda " + version +
                     "\" \"User Commands\"\n";
  page += ".SH NAME\n" + plain(with_dashes(command.title)) + " \\- " + plain(command.help) + "\n";
  page += ".SH SYNOPSIS\n" + synopsis(command);
  page += ".SH DESCRIPTION\n" + plain(command.help) + ".\n";
  if (!command.commands.empty()) {
    page += ".SH COMMANDS\n";
    for (const auto& child : command.commands) page += ".TP\n" + bold(child.name) + "\n" + plain(child.help) + ".\n";
  }
  page += ".SH OPTIONS\n";
  for (const auto& flag : command.flags) page += flag_text(flag);
  page +=
      ".SH EXIT STATUS\n.TP\n.B 0\nDone.\n.TP\n.B 1\nThe command failed.\n.TP\n.B 2\n"
      "A flag, a key of the config file or the config of a model is wrong; the message names it.\n";
  if (const auto others = see_also(command, root); !others.empty()) page += ".SH SEE ALSO\n" + others + "\n";
  return page;
}

}  // namespace pagoda::apps
