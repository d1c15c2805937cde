#pragma once

#include <cstddef>
#include <functional>

#include <boost/context/fiber.hpp>
#include <boost/context/stack_context.hpp>

namespace cuda_emulator {

/// A stack that runs one function after the other and can stop in the middle of a function. AddressSanitizer is
/// notified of each change of stacks.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Sets the function that the next resume() begins; it must live until it has ended. Call only when ended().
  void begin(const std::function<void()>& function) { function_ = &function; }
  /// Runs the function until it pauses or ends.
  void resume();
  /// Inside the function: returns from resume().
  void pause();
  /// Ends a paused function where it stands, by an exception in pause().
  void abandon();
  bool ended() const { return function_ == nullptr; }

 private:
  struct Abandoned {};
  void run();

  const std::function<void()>* function_ = nullptr;
  bool abandoned_ = false;
  bool closing_ = false;
  boost::context::stack_context stack_;
  boost::context::fiber context_;
  boost::context::fiber caller_;

  // State for AddressSanitizer.
  void* fake_stack_ = nullptr;
  const void* caller_bottom_ = nullptr;
  std::size_t caller_bytes_ = 0;
};

}  // namespace cuda_emulator
