#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "engine/step/codec.hpp"
#include "engine/types.hpp"
#include "kernels/result.hpp"

namespace pagoda::device_link {

/// An open file descriptor of its own.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { reset(); }

  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  void reset();

 private:
  int fd_ = -1;
};

/// The longest frame: a step that starts requests carries their prompts. Who would send a longer one ends the link.
inline constexpr std::size_t kMaxFrameBytes = std::size_t{256} << 20;
/// And of those that workers send, whose results are short.
inline constexpr std::size_t kMaxFrameBytesOfWorkers = std::size_t{32} << 20;

/// One end of a stream socket that carries frames: the length in 4 bytes, little-endian, then so many bytes. Both ends
/// are of one build, but memory grows with what has come, and a frame is no longer than the longest.
class FrameChannel {
 public:
  /// What run() does with a frame: false ends it.
  using OnFrame = std::function<bool(std::span<const std::byte>)>;
  /// Called whenever run() is about to wait; the time on the engine's clock at which it is to be called again, if
  /// nothing comes before.
  using BeforeWait = std::function<std::optional<TimeUs>()>;

  enum class End : std::uint8_t {
    closed,   ///< the other end is not there any more, or close() was called
    damaged,  ///< the other end has sent what is no frame
    refused,  ///< on_frame was false; run() may be called again
  };

  /// `longest`: that is taken from the other end. Errors: io_failed.
  static Result<std::unique_ptr<FrameChannel>> create(Descriptor socket, std::size_t longest = kMaxFrameBytes);

  /// Writes, or keeps what does not fit the socket now until run() can write it; never waits. What is sent after the
  /// end is dropped. Any thread.
  template <class Message>
  void send(const Message& message) {
    std::vector<std::byte> frame(kHeaderBytes);
    Encoder(frame).put(message);
    send_frame(std::move(frame));
  }

  /// Reads and writes until there is an end. One thread.
  End run(const OnFrame& on_frame, const BeforeWait& before_wait = {});

  /// Bytes that have come. On the thread of run().
  std::uint64_t num_received() const { return num_received_; }

  /// Ends run() soon, and each later one. Any thread.
  void close();
  /// Has run() call before_wait again. Any thread.
  void wake();

 private:
  static constexpr std::size_t kHeaderBytes = 4;

  FrameChannel(Descriptor socket, Descriptor wakes, std::size_t longest)
      : socket_(std::move(socket)), wakes_(std::move(wakes)), longest_(longest) {}
  void send_frame(std::vector<std::byte> frame);
  /// False when the other end has gone.
  bool write_unsent();
  bool has_unsent();
  bool is_closed();
  /// Takes whole frames out of what was read; no value while there is none left.
  std::optional<End> take_frames(const OnFrame& on_frame);
  /// False when the other end has gone.
  bool read();

  Descriptor socket_;
  Descriptor wakes_;  // an eventfd
  std::size_t longest_;
  std::vector<std::byte> received_;
  std::size_t taken_ = 0;  // of received_
  std::uint64_t num_received_ = 0;
  std::mutex mutex_;  // of what follows
  std::vector<std::byte> unsent_;
  std::size_t written_ = 0;  // of unsent_
  bool closed_ = false;
};

}  // namespace pagoda::device_link
