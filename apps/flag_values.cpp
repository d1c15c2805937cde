#include "apps/flag_values.hpp"

#include <cmath>
#include <sstream>
#include <utility>

#include <boost/algorithm/string/join.hpp>

namespace pagoda::apps {
namespace {

class HelpFormat : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    return is_switch(*option) ? "--[no-]" + option->get_lnames().front()
                              : CLI::Formatter::make_option_name(option, is_positional);
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    return is_switch(*option) ? "" : CLI::Formatter::make_option_opts(option);
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    const std::string help = CLI::Formatter::make_option_desc(option);
    return is_switch(*option) ? help + " (default: " + option->get_default_str() + ")" : help;
  }

 private:
  static bool is_switch(const CLI::Option& option) {
    const auto& names = option.get_lnames();
    return names.size() == 2 && names[1] == "no-" + names[0];
  }
};

}  // namespace

void refuse_value(const std::string& flag, const std::string& expected, const std::string& given) {
  const std::string name = flag.substr(flag.rfind(',') + 1);
  throw CLI::ConversionError(name + " must be " + expected + ", not " + (given.empty() ? "\"\"" : given),
                             CLI::ExitCodes::ConversionError);
}

std::string shown(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

double read_number(const std::string& flag, const std::string& text, double least, double most) {
  double value = 0;
  const auto end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  if (read.ec != std::errc() || read.ptr != end || !std::isfinite(value)) refuse_value(flag, "a number", text);
  if (value < least) refuse_value(flag, "at least " + shown(least), text);
  if (value > most) refuse_value(flag, "at most " + shown(most), text);
  return value;
}

CLI::Option* add_words(CLI::App& app, const std::string& flag, std::vector<std::string> words,
                       std::function<void(std::size_t)> set, const std::string& help) {
  const std::string type = boost::algorithm::join(words, "|");
  const auto read = [flag, words = std::move(words), set = std::move(set)](const CLI::results_t& given) {
    const auto found = std::ranges::find(words, given.back());
    if (found == words.end()) refuse_value(flag, "one of " + boost::algorithm::join(words, ", "), given.back());
    set(static_cast<std::size_t>(found - words.begin()));
    return true;
  };
  return app.add_option(flag, read, help)->type_name(type);
}

CLI::Option* add_choice(CLI::App& app, const std::string& flag, std::string& field, std::vector<std::string> words,
                        const std::string& help) {
  const auto set = [words, &field](std::size_t place) { field = words[place]; };
  return add_words(app, flag, std::move(words), set, help)->default_str(field);
}

CLI::Option* add_list(CLI::App& app, const std::string& flag, std::string& field, const std::string& help) {
  const auto set = [&field](const CLI::results_t& given) {
    field = given.front();
    for (std::size_t i = 1; i < given.size(); ++i) field += "," + given[i];
    return true;
  };
  return app.add_option(flag, set, help)->type_name("TEXT")->take_all()->default_str(field);
}

CLI::Option* add_switch(CLI::App& app, const std::string& name, bool& field, const std::string& help) {
  return app.add_flag("--" + name + ",!--no-" + name, field, help)->default_str(field ? "on" : "off");
}

std::shared_ptr<CLI::FormatterBase> help_format() {
  return std::make_shared<HelpFormat>();
}

}  // namespace pagoda::apps
