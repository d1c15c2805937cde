#include "engine/routing/tokenizer_queue.hpp"

#include <algorithm>
#include <string>

#include "engine/routing/queue_full.hpp"

namespace pagoda::routing {

Status TokenizerQueue::check(ClientId client_id, std::int64_t text_bytes) const {
  const std::int64_t job_bytes = text_bytes + kJobBytes;
  const auto known = clients_.find(client_id);
  const std::int64_t client_bytes = known == clients_.end() ? 0 : known->second.bytes;
  const bool too_many = bytes_ > 0 && bytes_ + job_bytes > max_bytes_;
  const bool too_many_of_client = client_bytes > 0 && client_bytes + job_bytes > max_bytes_ / kClientShare;
  if (!too_many && !too_many_of_client) return {};
  return fail_queue_full("texts of " + std::to_string(too_many ? bytes_ : client_bytes) + " bytes" +
                         (too_many ? "" : " of this client") + " already wait for " + taker_);
}

Result<TokenizerQueue::JobId> TokenizerQueue::add(ClientId client_id, std::int64_t text_bytes) {
  if (Status status = check(client_id, text_bytes); !status) return fail(std::move(status.error()));
  return add_beyond_limits(client_id, text_bytes);
}

TokenizerQueue::JobId TokenizerQueue::add_beyond_limits(ClientId client_id, std::int64_t text_bytes) {
  const std::int64_t job_bytes = text_bytes + kJobBytes;
  Client& client = clients_[client_id];
  const JobId id = next_job_++;
  jobs_.emplace(id, Job{client_id, job_bytes, false});
  if (client.waiting.empty()) {
    client.taken = std::max(client.taken, min_taken_);
    turns_.emplace(client.taken, client_id);
  }
  client.waiting.push_back(id);
  client.bytes += job_bytes;
  bytes_ += job_bytes;
  ++num_waiting_;
  return id;
}

std::optional<TokenizerQueue::JobId> TokenizerQueue::next() {
  if (turns_.empty() || bytes_given_ >= kBytesAtTokenizer) return std::nullopt;
  const auto turn = turns_.begin();
  const ClientId client_id = turn->second;
  Client& client = clients_.at(client_id);
  turns_.erase(turn);
  const JobId id = client.waiting.front();
  client.waiting.pop_front();
  Job& job = jobs_.at(id);
  job.given = true;
  bytes_given_ += job.bytes;
  --num_waiting_;
  min_taken_ = client.taken;
  client.taken += job.bytes;
  if (!client.waiting.empty()) turns_.emplace(client.taken, client_id);
  return id;
}

void TokenizerQueue::finished(JobId id) {
  const auto job = jobs_.find(id);
  if (job == jobs_.end() || !job->second.given) return;
  bytes_given_ -= job->second.bytes;
  remove(job);
}

void TokenizerQueue::withdraw(JobId id) {
  const auto job = jobs_.find(id);
  if (job == jobs_.end() || job->second.given) return;
  const ClientId client_id = job->second.client;
  Client& client = clients_.at(client_id);
  client.waiting.erase(std::find(client.waiting.begin(), client.waiting.end(), id));
  if (client.waiting.empty()) turns_.erase({client.taken, client_id});
  --num_waiting_;
  remove(job);
}

std::vector<TokenizerQueue::JobId> TokenizerQueue::forget(ClientId client_id) {
  const auto client = clients_.find(client_id);
  if (client == clients_.end()) return {};
  std::vector<JobId> jobs(client->second.waiting.begin(), client->second.waiting.end());
  if (!jobs.empty()) turns_.erase({client->second.taken, client_id});
  num_waiting_ -= static_cast<std::int64_t>(jobs.size());
  for (const JobId id : jobs) remove(jobs_.find(id));
  if (client->second.bytes > 0) {  // jobs at the tokenizer
    for (auto& [id, job] : jobs_) {
      if (job.client == client_id) job.client = kNoClient;
    }
  }
  clients_.erase(client);
  return jobs;
}

void TokenizerQueue::remove(std::map<JobId, Job>::iterator job) {
  bytes_ -= job->second.bytes;
  // The job may have no client any more, see forget.
  if (const auto client = clients_.find(job->second.client); client != clients_.end()) {
    client->second.bytes -= job->second.bytes;
  }
  jobs_.erase(job);
}

void TokenizerQueue::save(Encoder& out) const {
  out.put(jobs_);
  out.put(clients_);
  out.put(min_taken_);
  out.put(next_job_);
}

bool TokenizerQueue::load(Decoder& in) {
  if (!in.get(jobs_) || !in.get(clients_) || !in.get(min_taken_) || !in.get(next_job_)) return false;
  constexpr std::int64_t kMaxBytes = std::int64_t{1} << 60;
  constexpr JobId kMaxJobs = JobId{1} << 62U;
  const auto is_count = [](std::int64_t bytes) { return bytes >= 0 && bytes <= kMaxBytes; };
  const auto has_count = [&](const auto& client) { return is_count(client.second.taken); };
  const JobId last_job = jobs_.empty() ? 0 : jobs_.rbegin()->first;
  if (!is_count(min_taken_) || !std::ranges::all_of(clients_, has_count)) return false;
  if (next_job_ <= last_job || next_job_ > kMaxJobs) return false;
  std::map<ClientId, std::int64_t> bytes_of;
  for (auto& [id, job] : jobs_) {
    if (job.bytes < 0 || job.bytes > kMaxBytes - bytes_) return false;
    bytes_ += job.bytes;
    bytes_of[job.client] += job.bytes;
    if (job.given) {
      bytes_given_ += job.bytes;
      if (!clients_.contains(job.client)) job.client = kNoClient;
      continue;
    }
    const auto client = clients_.find(job.client);
    if (client == clients_.end()) return false;
    client->second.waiting.push_back(id);
    ++num_waiting_;
  }
  for (const auto& [id, client] : clients_) {
    if (client.bytes != bytes_of[id]) return false;
    if (!client.waiting.empty()) turns_.emplace(client.taken, id);
  }
  return true;
}

}  // namespace pagoda::routing
