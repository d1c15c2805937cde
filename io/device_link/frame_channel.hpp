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

/// Owns an open file descriptor.
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

/// Size limit of a frame, in bytes: a step that starts requests carries their prompts. A longer frame ends the link.
inline constexpr std::size_t kMaxFrameBytes = std::size_t{256} << 20;
/// Size limit of a frame from a worker, in bytes: results are short.
inline constexpr std::size_t kMaxFrameBytesOfWorkers = std::size_t{32} << 20;

/// One end of a stream socket that carries frames: 4 bytes with the length, little-endian, then that many bytes. Both
/// ends are of the same build. Still, the channel does not trust the length: it allocates memory only for bytes that
/// have arrived, and refuses a frame above the size limit.
class FrameChannel {
 public:
  /// Handles a frame; if it returns false, run() ends.
  using OnFrame = std::function<bool(std::span<const std::byte>)>;
  /// Called whenever run() is about to wait. Returns the time on the engine's clock at which to call it again if
  /// nothing arrives before; no value: no time limit.
  using BeforeWait = std::function<std::optional<TimeUs>()>;

  enum class End : std::uint8_t {
    closed,    ///< the other end has closed, or close() was called
    damaged,   ///< the other end has sent bytes that are no frame
    too_long,  ///< the other end has sent a frame above the size limit of this end
    refused,   ///< on_frame returned false; run() may be called again
  };

  /// `longest`: size limit of received frames, in bytes. Errors: io_failed.
  static Result<std::unique_ptr<FrameChannel>> create(Descriptor socket, std::size_t longest = kMaxFrameBytes);

  /// Returns the bytes of a frame with the message, for a link that this process only relays.
  template <class Message>
  static std::vector<std::byte> frame_of(const Message& message) {
    std::vector<std::byte> frame(kHeaderBytes);
    Encoder(frame).put(message);
    fill_header(frame);
    return frame;
  }

  /// Writes the message. Bytes that do not fit the socket now are kept until run() can write them; never blocks.
  /// Messages after the end are dropped. Any thread.
  template <class Message>
  void send(const Message& message) {
    std::vector<std::byte> frame(kHeaderBytes);
    Encoder(frame).put(message);
    send_frame(std::move(frame));
  }

  /// Reads and writes until the end, and returns the kind of the end. Call on one thread only.
  End run(const OnFrame& on_frame, const BeforeWait& before_wait = {});

  /// Returns the size limit of received frames, in bytes.
  std::size_t longest() const { return longest_; }
  /// Returns the number of bytes received. Call on the thread of run().
  std::uint64_t num_received() const { return num_received_; }

  /// Ends the current run() soon, and every later run(). Any thread.
  void close();
  /// Makes run() call before_wait again. Any thread.
  void wake();

 private:
  static constexpr std::size_t kHeaderBytes = 4;

  FrameChannel(Descriptor socket, Descriptor wakes, std::size_t longest)
      : socket_(std::move(socket)), wakes_(std::move(wakes)), longest_(longest) {}
  static void fill_header(std::vector<std::byte>& frame);
  void send_frame(std::vector<std::byte> frame);
  /// Returns false if the other end has closed.
  bool write_unsent();
  bool has_unsent();
  bool is_closed();
  /// Handles the whole frames in received_. Returns no value if run() goes on.
  std::optional<End> take_frames(const OnFrame& on_frame);
  /// Returns false if the other end has closed.
  bool read();

  Descriptor socket_;
  Descriptor wakes_;  // an eventfd
  std::size_t longest_;
  std::vector<std::byte> received_;
  std::size_t taken_ = 0;  // bytes of received_ that are handled
  std::uint64_t num_received_ = 0;
  std::mutex mutex_;  // guards the fields below
  std::vector<std::byte> unsent_;
  std::size_t written_ = 0;  // bytes of unsent_ that are written
  bool closed_ = false;
};

}  // namespace pagoda::device_link
