#include "engine/scheduling/mask_queue.hpp"

namespace pagoda::scheduling {

void MaskQueue::push(MaskJob job) {
  const auto spent = work_of_requests_.find(job.request);
  const std::uint64_t work = spent == work_of_requests_.end() ? 0 : spent->second;
  User& user = users_[job.masks->spec().user];
  user.jobs.emplace(work, std::move(job));
  waiting_.insert(&user);
}

std::optional<MaskJob> MaskQueue::pop(const std::set<const void*>& busy) {
  User* least = nullptr;
  std::multimap<std::uint64_t, MaskJob>::iterator next;
  for (User* user : waiting_) {
    if (least != nullptr && least->work <= user->work) continue;
    for (auto job = user->jobs.begin(); job != user->jobs.end(); ++job) {
      if (busy.contains(job->second.key())) continue;
      least = user;
      next = job;
      break;
    }
  }
  if (least == nullptr) return std::nullopt;
  MaskJob job = std::move(least->jobs.extract(next).mapped());
  if (least->jobs.empty()) waiting_.erase(least);
  return job;
}

void MaskQueue::charge(const MaskJob& job, std::uint64_t work, Time now) {
  users_[job.masks->spec().user].work += static_cast<double>(work);
  work_of_requests_[job.request] += work;
  if (now - halved_at_ < std::chrono::seconds(1)) return;
  halved_at_ = now;
  for (auto& [name, user] : users_) user.work /= 2;
  for (auto& [request, spent] : work_of_requests_) spent /= 2;
  std::erase_if(users_, [](const auto& entry) { return entry.second.work < 1 && entry.second.jobs.empty(); });
  std::erase_if(work_of_requests_, [](const auto& entry) { return entry.second == 0; });
}

}  // namespace pagoda::scheduling
