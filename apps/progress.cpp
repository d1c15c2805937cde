#include "apps/progress.hpp"

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

#include <unistd.h>

namespace pagoda::apps {
namespace {

constexpr auto kRedrawEvery = std::chrono::milliseconds(100);
constexpr double kWidth = 30;

}  // namespace

StartProgress start_progress() {
  if (::isatty(STDERR_FILENO) == 0) return nullptr;
  using Clock = std::chrono::steady_clock;
  return [drawn = Clock::time_point()](std::string_view what, double done) mutable {
    constexpr const char* kClearLine = "\r\033[K";
    if (done >= 1) {
      std::fputs(kClearLine, stderr);
    } else if (Clock::now() - drawn >= kRedrawEvery) {
      drawn = Clock::now();
      std::fprintf(stderr, "%s%.*s: %.0f %%", kClearLine, static_cast<int>(what.size()), what.data(), 100 * done);
    }
  };
}

void ProgressBar::update(double fraction, std::int64_t requests_done, std::int64_t tokens) {
  if (!enabled_ || Clock::now() - drawn_ < kRedrawEvery) return;
  draw(fraction, requests_done, tokens);
}

void ProgressBar::leave() {
  if (enabled_) std::fputc('\n', stderr);
}

void ProgressBar::finish(std::int64_t requests_done, std::int64_t tokens) {
  if (!enabled_) return;
  draw(1, requests_done, tokens);
  std::fputc('\n', stderr);
}

void ProgressBar::draw(double fraction, std::int64_t requests_done, std::int64_t tokens) {
  drawn_ = Clock::now();
  const double seconds = std::chrono::duration<double>(drawn_ - start_).count();
  const double rate = seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  std::string bar;
  if (fraction >= 0) {
    const auto filled = static_cast<std::size_t>(std::clamp(fraction, 0.0, 1.0) * kWidth);
    bar = "[..............................] ";
    bar.replace(1, filled, filled, '#');
  }
  std::fprintf(stderr, "\r%s%lld done, %.1f tokens/s   ", bar.c_str(), static_cast<long long>(requests_done), rate);
}

}  // namespace pagoda::apps
