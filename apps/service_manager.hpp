#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace pagoda::apps {

/// The service manager that started this program, as systemd's notification protocol has it: a datagram socket that
/// takes lines such as READY=1. Without one, nothing is told to nobody.
class ServiceManager {
 public:
  /// Nobody.
  ServiceManager() = default;

  /// `socket`: a path, or an abstract name behind '@'. `watchdog`: how long this program may be silent; 0: for ever.
  explicit ServiceManager(std::string socket, std::chrono::microseconds watchdog = {});

  /// That of NOTIFY_SOCKET, with WATCHDOG_USEC where it is meant for this process.
  static ServiceManager of_environment();

  bool is_there() const { return !socket_.empty(); }

  /// Whoever asks for connections gets answers now. `status` is for people.
  void ready(std::string_view status) const;

  /// It goes down, which may take `at_most`.
  void stopping(std::chrono::milliseconds at_most) const;

  /// It is alive.
  void alive() const;

  /// How often `alive` is to be called; 0: never.
  std::chrono::milliseconds alive_interval() const;

 private:
  void tell(const std::string& lines) const;

  std::string socket_;
  std::chrono::microseconds watchdog_{};
};

}  // namespace pagoda::apps
