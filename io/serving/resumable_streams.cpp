#include "io/serving/resumable_streams.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

#include <spdlog/spdlog.h>

#include "engine/routing/queue_full.hpp"
#include "io/wire/json_text.hpp"

namespace pagoda::serving {
namespace {

constexpr std::size_t kSparePart = 16;  // 1/16 of the buffer is freed at a time, so that not every event must free some

}  // namespace

std::vector<Error> ResumeConfig::validate() const {
  std::vector<Error> problems;
  const auto within = [&](const char* key, std::int64_t value, std::int64_t least, std::int64_t most) {
    if (value >= least && value <= most) return;
    problems.push_back({ErrorCode::bad_config,
                        std::string(key) + " must be from " + std::to_string(least) + " to " + std::to_string(most) +
                            ", not " + std::to_string(value),
                        key});
  };
  constexpr std::int64_t kDay = 24 * 60 * 60;
  within("resume_window", resume_window, 0, kDay);
  within("max_resumable_streams", max_resumable_streams, 1, 1 << 20);
  within("resume_buffer_mib", resume_buffer_mib, 1, 1 << 20);
  return problems;
}

std::string StreamName::quoted_id() const {
  std::string text;
  wire::append_string(text, id);
  return text;
}

StreamName stream_name(const SharedPrincipal& principal, std::string_view id) {
  return {principal ? principal->id : std::string(), std::string(id)};
}

// -- One stream

ResumableStream::ResumableStream(ResumableStreams& all, boost::asio::io_context& io, StreamName name)
    : all_(&all), name_(std::move(name)), window_(io) {}

void ResumableStream::add(std::string event) {
  if (all_ == nullptr) return;
  const auto before = history_.bytes();
  history_.add(std::move(event));
  all_->bytes_ += history_.bytes() - before;
  all_->make_room();
}

void ResumableStream::tell() {
  delivered_ = history_.next();
  if (reader_ != nullptr) reader_->on_events();
}

void ResumableStream::end() {
  has_ended_ = true;
  if (all_ != nullptr) end_number_ = all_->num_ended_++;
  cancel_ = nullptr;
  give_up_ = nullptr;
  if (reader_ == nullptr) await_reader();  // the time limit of an ended stream begins at its end
  tell();
}

void ResumableStream::admitted() {
  if (all_ != nullptr && std::ssize(all_->streams_) > all_->config_.max_resumable_streams) all_->drop_an_ended();
}

void ResumableStream::withdraw() {
  const auto self = shared_from_this();
  cancel_ = nullptr;
  give_up_ = nullptr;
  window_.cancel();
  if (all_ != nullptr) all_->erase(name_);
}

void ResumableStream::attach(StreamReader& reader) {
  window_.cancel();
  auto* const before = std::exchange(reader_, &reader);
  if (before != nullptr && before != &reader) before->on_replaced();
}

void ResumableStream::detach(StreamReader& reader) {
  if (reader_ != &reader) return;
  reader_ = nullptr;
  await_reader();
}

void ResumableStream::await_reader() {
  if (all_ == nullptr) return;
  window_.expires_after(std::chrono::seconds(all_->config_.resume_window));
  window_.async_wait([weak = weak_from_this()](const boost::system::error_code& cancelled) {
    const auto self = weak.lock();
    // The timer may have expired just before a reader attached.
    if (cancelled || !self || self->reader_ != nullptr) return;
    if (!self->has_ended_) spdlog::info("request {}: its client has not returned", self->name_.quoted_id());
    self->give_up();
  });
}

void ResumableStream::cancel() {
  if (const auto ask = cancel_) ask();
}

void ResumableStream::give_up() {
  const auto self = shared_from_this();
  cancel_ = nullptr;
  window_.cancel();
  if (all_ != nullptr) all_->erase(name_);
  if (const auto give_up = std::exchange(give_up_, nullptr)) give_up();
}

/// Drops the oldest events down to `num_bytes`. Keeps the newest event and, if the reader keeps up, the events that the
/// reader was not notified of yet.
void ResumableStream::drop_down_to(std::size_t num_bytes) {
  const bool keeps_up = reader_ == nullptr || reader_->next_event() >= delivered_;
  const auto kept = keeps_up ? delivered_ : history_.next();
  const auto before = history_.bytes();
  while (history_.bytes() > num_bytes && history_.first() < kept && history_.first() + 1 < history_.next()) {
    history_.drop_oldest();
  }
  all_->bytes_ -= before - history_.bytes();
}

// -- All streams

Result<std::shared_ptr<ResumableStream>> ResumableStreams::open(boost::asio::io_context& io, StreamName name,
                                                                bool is_recovered) {
  if (config_.resume_window == 0 && !is_recovered) {
    return fail(ErrorCode::invalid_request, "resumable: this server keeps no streams (--resume-window is 0)",
                "resumable");
  }
  if (const auto known = find(name)) {
    return fail(ErrorCode::duplicate_id,
                known->has_ended() ? "a request with this id has just ended, and its stream is still kept"
                                   : "a resumable request with this id is live",
                "id");
  }
  const bool is_full = std::ssize(streams_) >= config_.max_resumable_streams;
  if (is_full && !is_recovered && oldest_ended() == nullptr) {
    return fail(Error{ErrorCode::queue_full,
                      std::to_string(streams_.size()) + " resumable streams are live, which is the limit",
                      {},
                      routing::kRetryAfterMs});
  }
  auto stream = std::make_shared<ResumableStream>(*this, io, name);
  streams_.emplace(std::move(name), stream);
  return stream;
}

std::shared_ptr<ResumableStream> ResumableStreams::find(const StreamName& name) const {
  const auto found = streams_.find(name);
  return found == streams_.end() ? nullptr : found->second;
}

/// Drops streams that have ended first. Then streams that hold more than their share lose their oldest events, so that
/// long streams do not shorten short ones.
void ResumableStreams::make_room() {
  const auto most = static_cast<std::size_t>(config_.resume_buffer_mib) << 20U;
  while (bytes_ > most && drop_an_ended()) {
  }
  if (bytes_ <= most) return;
  const auto share = share_of(most - most / kSparePart);
  for (const auto& [name, stream] : streams_) stream->drop_down_to(share);
}

/// Returns the limit of each stream's bytes such that all streams hold `num_bytes` together. Large streams share the
/// bytes that small streams leave.
std::size_t ResumableStreams::share_of(std::size_t num_bytes) const {
  std::vector<std::size_t> sizes;
  sizes.reserve(streams_.size());
  for (const auto& [name, stream] : streams_) sizes.push_back(stream->history_.bytes());
  std::ranges::sort(sizes);
  auto num_left = sizes.size();
  for (const auto size : sizes) {
    if (size > num_bytes / num_left) return num_bytes / num_left;
    num_bytes -= size;
    --num_left;
  }
  return sizes.empty() ? 0 : sizes.back();
}

ResumableStream* ResumableStreams::oldest_ended() const {
  ResumableStream* oldest = nullptr;
  for (const auto& [name, stream] : streams_) {
    if (!stream->has_ended_ || stream->reader_ != nullptr) continue;
    if (oldest == nullptr || stream->end_number_ < oldest->end_number_) oldest = stream.get();
  }
  return oldest;
}

bool ResumableStreams::drop_an_ended() {
  auto* const oldest = oldest_ended();
  if (oldest == nullptr) return false;
  oldest->give_up();
  return true;
}

void ResumableStreams::erase(const StreamName& name) {
  const auto found = streams_.extract(name);
  if (!found) return;
  bytes_ -= found.mapped()->history_.bytes();
  found.mapped()->all_ = nullptr;
}

void ResumableStreams::close() {
  while (!streams_.empty()) streams_.begin()->second->give_up();
}

}  // namespace pagoda::serving
