#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace pagoda::apps {

/// The service manager that started this program, with systemd's notification protocol: a datagram socket that takes
/// lines such as READY=1. Without a service manager, all notifications do nothing.
class ServiceManager {
 public:
  /// Makes an object without a service manager.
  ServiceManager() = default;

  /// `socket`: a path, or an abstract name after '@'. `watchdog`: how long this program may be silent; 0: no limit.
  explicit ServiceManager(std::string socket, std::chrono::microseconds watchdog = {});

  /// Returns the manager of NOTIFY_SOCKET, with WATCHDOG_USEC if WATCHDOG_PID is this process.
  static ServiceManager of_environment();

  bool is_there() const { return !socket_.empty(); }

  /// Notifies that connections are answered now. `status` is text for people.
  void ready(std::string_view status) const;

  /// Notifies that the program ends, which may take `at_most`.
  void stopping(std::chrono::milliseconds at_most) const;

  /// Notifies that the program is alive.
  void alive() const;

  /// Returns the interval at which `alive` must be called; 0: never.
  std::chrono::milliseconds alive_interval() const;

 private:
  void notify(const std::string& lines) const;

  std::string socket_;
  std::chrono::microseconds watchdog_{};
};

}  // namespace pagoda::apps
