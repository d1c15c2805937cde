#include "io/model_files/tokenizer_json_sax.hpp"

#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pagoda::io::tokenizer_file {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxDepth = 64;

// A handler stops the parse by returning false; `error` is then the reason.
class Handler : public nlohmann::json_sax<json> {
 public:
  explicit Handler(TokenizerDocument& document) : document_(document) {}

  const std::optional<Error>& error() const { return error_; }

  bool null() override { return value(nullptr); }
  bool boolean(bool v) override { return value(v); }
  bool number_integer(number_integer_t v) override {
    if (mode_ == Mode::vocab) return reject_id("is negative");
    return value(v);
  }
  bool number_unsigned(number_unsigned_t v) override {
    if (mode_ != Mode::vocab) return value(v);
    if (v > static_cast<number_unsigned_t>(std::numeric_limits<TokenId>::max())) return reject_id("is too large");
    document_.bpe.vocab.emplace_back(std::move(key_), static_cast<TokenId>(v));
    return true;
  }
  bool number_float(number_float_t v, const string_t&) override { return value(v); }
  bool binary(binary_t&) override { return reject("", "binary data is not JSON"); }
  bool string(string_t& v) override {
    if (mode_ == Mode::merges) return merge_line(v);
    if (mode_ == Mode::merge_pair) {
      pair_.push_back(std::move(v));
      return pair_.size() <= 2 || reject_merge("has more than two tokens");
    }
    return value(std::move(v));
  }

  bool start_object(std::size_t) override {
    if (mode_ == Mode::rest && at_model_key("vocab")) {
      if (document_.has_vocab) return reject("model.vocab", "is given twice");
      document_.has_vocab = true;
      mode_ = Mode::vocab;
      return true;
    }
    return open(json::object());
  }
  bool key(string_t& v) override {
    if (mode_ == Mode::rest && open_.back()->contains(v)) return reject(path(v), "is given twice");
    key_ = std::move(v);
    return true;
  }
  bool end_object() override {
    if (mode_ == Mode::vocab) {
      mode_ = Mode::rest;
      return true;
    }
    return close();
  }
  bool start_array(std::size_t) override {
    if (mode_ == Mode::rest && at_model_key("merges")) {
      if (document_.has_merges) return reject("model.merges", "is given twice");
      document_.has_merges = true;
      mode_ = Mode::merges;
      return true;
    }
    if (mode_ == Mode::merges) {
      pair_.clear();
      mode_ = Mode::merge_pair;
      return true;
    }
    return open(json::array());
  }
  bool end_array() override {
    if (mode_ == Mode::merges) {
      mode_ = Mode::rest;
      return true;
    }
    if (mode_ == Mode::merge_pair) {
      mode_ = Mode::merges;
      if (pair_.size() != 2) return reject_merge("does not have two tokens");
      document_.bpe.merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
      return true;
    }
    return close();
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return reject("", "is not valid JSON at byte " + std::to_string(position));
  }

 private:
  enum class Mode { rest, vocab, merges, merge_pair };

  bool reject(std::string param, const std::string& reason) {
    std::string message = param.empty() ? reason : param + ": " + reason;
    error_ = Error{ErrorCode::bad_config, std::move(message), std::move(param)};
    return false;
  }
  bool reject_id(const std::string& reason) { return reject("model.vocab", "the id of \"" + key_ + "\" " + reason); }
  bool reject_merge(const std::string& reason) {
    return reject("model.merges[" + std::to_string(document_.bpe.merges.size()) + "]", reason);
  }
  bool at_model_key(std::string_view name) const {
    return open_.size() == 2 && open_.back()->is_object() && keys_.back() == "model" && key_ == name;
  }
  // Returns the path of the key `last` within the open objects, as "pre_tokenizer.pretokenizers[0].type".
  std::string path(const std::string& last) const {
    std::string text;
    for (std::size_t i = 1; i < open_.size(); ++i) {
      if (open_[i - 1]->is_array()) {
        text += '[';
        text += std::to_string(open_[i - 1]->size() - 1);
        text += ']';
      } else {
        if (!text.empty()) text += '.';
        text += keys_[i];
      }
    }
    if (!text.empty()) text += '.';
    return text + last;
  }

  bool value(json v) {
    switch (mode_) {
      case Mode::vocab:
        return reject_id("is not an integer");
      case Mode::merges:
        return reject_merge("is neither a string nor a pair of strings");
      case Mode::merge_pair:
        return reject_merge("is not a pair of strings");
      case Mode::rest:
        break;
    }
    add(std::move(v));
    return true;
  }
  json* add(json v) {
    if (open_.empty()) {
      document_.rest = std::move(v);
      return &document_.rest;
    }
    json& parent = *open_.back();
    if (parent.is_object()) return &(parent[key_] = std::move(v));
    parent.push_back(std::move(v));
    return &parent.back();
  }
  bool open(json container) {
    if (mode_ != Mode::rest) return value(std::move(container));
    if (open_.size() == kMaxDepth) return reject("", "is nested deeper than " + std::to_string(kMaxDepth));
    json* added = add(std::move(container));
    open_.push_back(added);
    keys_.push_back(key_);
    return true;
  }
  bool close() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }
  bool merge_line(const std::string& line) {
    if (line.starts_with("#version")) return true;
    const std::size_t space = line.find(' ');
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
      return reject_merge("is \"" + line + "\", not two tokens with a space between");
    }
    document_.bpe.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
    return true;
  }

  TokenizerDocument& document_;
  Mode mode_ = Mode::rest;
  std::string key_;
  std::vector<json*> open_;
  std::vector<std::string> keys_;  // key of each open value
  std::vector<std::string> pair_;
  std::optional<Error> error_;
};

}  // namespace

Result<TokenizerDocument> read_tokenizer_document(std::string_view text) {
  TokenizerDocument document;
  Handler handler(document);
  if (!json::sax_parse(text.begin(), text.end(), &handler)) {
    return fail(handler.error().value_or(Error{ErrorCode::bad_config, "is not valid JSON"}));
  }
  return document;
}

}  // namespace pagoda::io::tokenizer_file
