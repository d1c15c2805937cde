#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <random>
#include <utility>

#include "apps/bench_serve/workload.hpp"

namespace pagoda::bench_serve {
namespace {

/// Words that most tokenizers encode as one token, together with the space before them.
constexpr std::array<std::string_view, 64> kWords{
    "the",  "of",   "and",   "to",   "in",   "is",   "that", "for",  "it",    "as",    "was",   "with",  "be",
    "by",   "on",   "not",   "he",   "his",  "but",  "at",   "are",  "this",  "have",  "from",  "or",    "had",
    "an",   "they", "which", "one",  "you",  "were", "all",  "her",  "she",   "there", "would", "their", "we",
    "him",  "been", "has",   "when", "who",  "will", "no",   "more", "if",    "out",   "so",    "up",    "said",
    "what", "its",  "about", "than", "into", "them", "can",  "only", "other", "time",  "new",   "some"};

class RandomWorkload final : public Workload {
 public:
  RandomWorkload(RandomShape shape, std::uint64_t seed) : shape_(std::move(shape)), random_(seed) {
    std::vector<double> weights;
    for (const auto& part : shape_.mix) weights.push_back(part.weight);
    part_ = std::discrete_distribution<std::size_t>(weights.begin(), weights.end());
    prefix_ = draw(shape_.prefix_len);
  }

  Prompt next() override {
    const MixPart& part = shape_.mix[part_(random_)];
    auto numbers = prefix_;
    const auto own = draw(varied(part.input_len));
    numbers.insert(numbers.end(), own.begin(), own.end());
    const auto output_len = varied(part.output_len);
    if (shape_.vocab_size > 0) return {std::move(numbers), output_len};
    std::string text;
    for (const auto number : numbers) {
      if (!text.empty()) text += ' ';
      text += kWords[static_cast<std::size_t>(number)];
    }
    return {std::move(text), output_len};
  }

 private:
  std::int64_t varied(std::int64_t length) {
    const auto far = static_cast<double>(length) * shape_.range_ratio;
    const auto least = static_cast<std::int64_t>(std::ceil(static_cast<double>(length) - far));
    const auto most = static_cast<std::int64_t>(std::floor(static_cast<double>(length) + far));
    return std::max<std::int64_t>(std::uniform_int_distribution(least, most)(random_), 1);
  }

  std::vector<std::int64_t> draw(std::int64_t count) {
    const auto size = shape_.vocab_size > 0 ? shape_.vocab_size : static_cast<std::int64_t>(kWords.size());
    std::uniform_int_distribution<std::int64_t> number(0, size - 1);
    std::vector<std::int64_t> drawn(static_cast<std::size_t>(count));
    std::ranges::generate(drawn, [&] { return number(random_); });
    return drawn;
  }

  RandomShape shape_;
  std::mt19937_64 random_;
  std::discrete_distribution<std::size_t> part_;
  std::vector<std::int64_t> prefix_;
};

auto refuse_mix(std::string_view part) {
  return fail(
      ErrorCode::bad_config,
      "random_mix must be INPUT_LEN:OUTPUT_LEN:WEIGHT, several with commas between, not \"" + std::string(part) + "\"",
      "random_mix");
}

template <class T>
bool read_number(std::string_view text, T& number) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  return read.ec == std::errc() && read.ptr == text.data() + text.size() && number > 0;
}

/// Returns the text before the next `mark`, and removes both from `text`.
std::string_view take_until(std::string_view& text, char mark) {
  const auto end = std::min(text.find(mark), text.size());
  const auto piece = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return piece;
}

bool read_part(std::string_view text, MixPart& part) {
  constexpr std::int64_t kLongest = 1 << 24;
  if (text.ends_with(':')) return false;
  if (!read_number(take_until(text, ':'), part.input_len) || part.input_len > kLongest) return false;
  if (!read_number(take_until(text, ':'), part.output_len) || part.output_len > kLongest) return false;
  return text.empty() || (read_number(text, part.weight) && std::isfinite(part.weight));
}

}  // namespace

Result<std::vector<MixPart>> parse_mix(std::string_view text) {
  if (text.ends_with(',')) return refuse_mix(text);
  std::vector<MixPart> mix;
  do {
    const auto piece = take_until(text, ',');
    if (!read_part(piece, mix.emplace_back())) return refuse_mix(piece);
  } while (!text.empty());
  return mix;
}

std::unique_ptr<Workload> make_random_workload(const RandomShape& shape, std::uint64_t seed) {
  return std::make_unique<RandomWorkload>(shape, seed);
}

}  // namespace pagoda::bench_serve
