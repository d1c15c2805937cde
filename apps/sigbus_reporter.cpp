#include "apps/sigbus_reporter.hpp"

#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <fcntl.h>
#include <unistd.h>

namespace pagoda::apps {
namespace {

// Called in a signal handler: may not allocate or lock.

void say(std::string_view text) {
  while (!text.empty()) {
    const auto written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

/// Removes the hexadecimal number at the front, and returns it.
std::uintptr_t take_number(std::string_view& text) {
  std::uintptr_t value = 0;
  for (; !text.empty(); text.remove_prefix(1)) {
    const char c = text.front();
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) break;
    value = value * 16 + static_cast<std::uintptr_t>(digit);
  }
  return value;
}

/// Returns the file of a line of /proc/self/maps, "BEGIN-END PERMISSIONS OFFSET DEVICE INODE FILE", if the line's range
/// has the address.
std::string_view file_at(std::string_view line, std::uintptr_t address) {
  const auto begin = take_number(line);
  if (line.empty()) return {};
  line.remove_prefix(1);
  const auto end = take_number(line);
  if (address < begin || address >= end) return {};
  const auto slash = line.find('/');
  return slash == std::string_view::npos ? std::string_view("memory without a file") : line.substr(slash);
}

void say_file_at(std::uintptr_t address) {
  const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return;
  std::array<char, 4352> line{};  // a path has at most 4,096 bytes
  std::size_t size = 0;
  for (char c = 0; ::read(maps, &c, 1) == 1;) {
    if (c != '\n') {
      if (size < line.size()) line[size++] = c;
      continue;
    }
    say(file_at({line.data(), size}, address));
    size = 0;
  }
  ::close(maps);
}

void on_bus_error(int, siginfo_t* info, void*) {
  if (info->si_code != BUS_ADRERR) {  // sent by a process, or broken memory: ends the process by default
    ::raise(SIGBUS);
    return;
  }
  say("pagoda: a file in use was truncated, so this process ends: ");
  say_file_at(reinterpret_cast<std::uintptr_t>(info->si_addr));
  say("\n");
  // After the return the access fails again, and the default action ends the process.
}

}  // namespace

void install_sigbus_reporter() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace pagoda::apps
