#include "io/serving/recovery.hpp"

#include <algorithm>
#include <iterator>

namespace pagoda::serving {

std::map<std::string, std::string> Recovery::adapters() {
  const std::lock_guard lock(mutex_);
  std::map<std::string, std::string> paths;
  for (const RecoveredRequest& one : requests_) {
    const bool is_live = !one.request->progress->has_ended();
    if (is_live && !one.request->adapter.empty()) paths.emplace(one.request->adapter, one.adapter_path);
  }
  return paths;
}

std::vector<RecoveredRequest> Recovery::requests_of(Api api) {
  const std::lock_guard lock(mutex_);
  const auto of_others = [api](const RecoveredRequest& request) { return request.origin.api != api; };
  const auto taken = std::stable_partition(requests_.begin(), requests_.end(), of_others);
  std::vector<RecoveredRequest> out(std::make_move_iterator(taken), std::make_move_iterator(requests_.end()));
  requests_.erase(taken, requests_.end());
  return out;
}

std::size_t Recovery::give_up_rest() {
  const std::lock_guard lock(mutex_);
  const auto count = requests_.size();
  num_unsettled_ -= count;
  requests_.clear();
  all_settled_.notify_all();
  return count;
}

void Recovery::on_settled() {
  const std::lock_guard lock(mutex_);
  --num_unsettled_;
  all_settled_.notify_all();
}

bool Recovery::wait_until_settled(std::chrono::seconds most) {
  std::unique_lock lock(mutex_);
  return all_settled_.wait_for(lock, most, [this] { return num_unsettled_ == 0; });
}

void Recovery::on_complete(std::function<void()> callback) {
  const std::lock_guard lock(mutex_);
  on_complete_.push_back(std::move(callback));
}

void Recovery::complete() {
  std::vector<std::function<void()>> callbacks;
  {
    const std::lock_guard lock(mutex_);
    callbacks.swap(on_complete_);
  }
  for (const auto& callback : callbacks) callback();
}

}  // namespace pagoda::serving
