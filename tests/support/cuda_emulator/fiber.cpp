#include "tests/support/cuda_emulator/fiber.hpp"

#include <memory>
#include <utility>

#include <boost/context/preallocated.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace cuda_emulator {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kStackBytes = std::size_t{256} << 10;
#else
constexpr std::size_t kStackBytes = std::size_t{64} << 10;
#endif

/// Memory of a stack with an inaccessible page below it.
struct StackAllocator : boost::context::protected_fixedsize_stack {
  using Base = boost::context::protected_fixedsize_stack;
  using Base::Base;

  void deallocate(boost::context::stack_context& stack) noexcept {
#if defined(__SANITIZE_ADDRESS__)
    // The last frame on the stack never returns. The next owner of this memory may use all of it.
    __asan_unpoison_memory_region(static_cast<std::byte*>(stack.sp) - stack.size, stack.size);
#endif
    Base::deallocate(stack);
  }
};

/// leave_stack is called before a change of stacks, arrive_on_stack after it. They notify AddressSanitizer.
/// ThreadSanitizer takes all fibers of a thread for one: they take turns, so it could find nothing between them, and
/// its records of 1,024 fibers take gigabytes. The stacks that it prints for code in a fiber may hold frames of other
/// fibers.
void leave_stack([[maybe_unused]] void** fake_stack, [[maybe_unused]] const void* bottom,
                 [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(fake_stack, bottom, bytes);
#endif
}

void arrive_on_stack([[maybe_unused]] void* fake_stack, [[maybe_unused]] const void** bottom,
                     [[maybe_unused]] std::size_t* bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, bottom, bytes);
#endif
}

/// Returns how far below the top of its memory the next stack begins. Stacks that all began at the same place of a page
/// would share a few sets of the caches.
std::size_t next_stack_offset() {
  static thread_local std::size_t count = 0;
  return count++ * 5 % 64 * 64;
}

}  // namespace

Fiber::Fiber() {
  StackAllocator allocator(kStackBytes);
  stack_ = allocator.allocate();
  const std::size_t offset = next_stack_offset();
  const boost::context::preallocated memory(static_cast<std::byte*>(stack_.sp) - offset, stack_.size - offset, stack_);
  context_ = boost::context::fiber(std::allocator_arg, memory, allocator, [this](boost::context::fiber&& caller) {
    caller_ = std::move(caller);
    arrive_on_stack(nullptr, &caller_bottom_, &caller_bytes_);
    run();
    leave_stack(nullptr, caller_bottom_, caller_bytes_);
    return std::move(caller_);
  });
}

Fiber::~Fiber() {
  if (!ended()) abandon();
  closing_ = true;
  resume();
}

void Fiber::resume() {
  void* fake_stack = nullptr;
  leave_stack(&fake_stack, static_cast<const std::byte*>(stack_.sp) - stack_.size, stack_.size);
  context_ = std::move(context_).resume();
  arrive_on_stack(fake_stack, nullptr, nullptr);
}

void Fiber::pause() {
  leave_stack(&fake_stack_, caller_bottom_, caller_bytes_);
  caller_ = std::move(caller_).resume();
  arrive_on_stack(fake_stack_, &caller_bottom_, &caller_bytes_);
  if (abandoned_) throw Abandoned{};
}

void Fiber::abandon() {
  abandoned_ = true;
  resume();
}

void Fiber::run() {
  while (!closing_) {
    try {
      (*function_)();
    } catch (const Abandoned&) {
      // The exception only serves to unwind the stack.
    }
    function_ = nullptr;
    abandoned_ = false;
    pause();
  }
}

}  // namespace cuda_emulator
