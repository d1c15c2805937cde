#include "pagoda/recovery.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include <spdlog/spdlog.h>

#include "engine/journal/resumable_requests.hpp"
#include "io/journal/journal_file.hpp"
#include "io/model_files/file_text.hpp"
#include "io/model_files/model_files.hpp"
#include "io/model_files/model_fingerprint.hpp"

namespace pagoda {
namespace {

using Resumable = output::OutputCore::Resumable;

using Requests = std::vector<serving::RecoveredRequest>;

/// The keys of a recorded config that matter here. The config may be of another build, with other keys. Returns nothing
/// if `text` is no config.
struct RecordedConfig {
  std::string model;
  bool journal_tokens = true;
};

std::optional<RecordedConfig> recorded_config(const std::string& text, const std::string& path) {
  const auto config = io::parse_json(text, path, ErrorCode::bad_file);
  if (!config || !config->is_object()) return std::nullopt;
  RecordedConfig read;
  if (const auto model = config->find("model"); model != config->end() && model->is_string()) read.model = *model;
  const auto tokens = config->find("journal_tokens");
  if (tokens != config->end() && tokens->is_boolean()) read.journal_tokens = *tokens;
  return read;
}

Status check_setup(const RecordedConfig& before, const std::string& model_before, const std::string& path,
                   const EngineConfig& config) {
  if (!before.journal_tokens) {
    return fail(
        ErrorCode::bad_config,
        "recover: " + path + " has no prompts and outputs (journal_tokens was off), so nothing can be recovered",
        "recover");
  }
  const auto model = io::model_fingerprint(config.model);
  if (!model) return fail(model.error());
  if (model_before == *model) return {};
  return fail(ErrorCode::bad_config,
              "recover: " + path + " is the journal of another model (" + before.model + "), not of " + config.model +
                  "; to start without its requests, leave --recover out or move the file away",
              "recover");
}

/// Keeps a journal that cannot be read under another name, so that the server can start and the journal is not lost.
Result<Requests> without_journal(const std::string& path, const std::string& why) {
  const auto kept = io::keep_unreadable(path);
  if (!kept) {
    return fail(ErrorCode::bad_config,
                "recover: " + why + ". " + kept.error().message +
                    "; make its folder writable, or start without --recover to leave the file alone",
                "recover");
  }
  spdlog::error("recover: {}. Its requests are not recovered; the file is kept as {}", why, *kept);
  return Requests();
}

/// Returns the rest of the timeout that the request had on arrival.
std::optional<std::int64_t> time_left(const serving::RequestOrigin& origin) {
  using std::chrono::milliseconds;
  if (!origin.timeout_ms) return std::nullopt;
  const auto now = std::chrono::duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch());
  const std::int64_t passed = std::max<std::int64_t>(0, now.count() - origin.arrival_ms);
  return std::max<std::int64_t>(1, *origin.timeout_ms - passed);
}

/// Returns the request as it was admitted: defaults are filled in, the seed is drawn.
std::shared_ptr<GenerateRequest> request_of(const Resumable& resumable, const serving::RequestOrigin& origin) {
  const RequestSpec& spec = *resumable.spec;
  auto request = std::make_shared<GenerateRequest>();
  const auto prompt = spec.own_prompt();
  request->prompt_token_ids.emplace(prompt.begin(), prompt.end());
  request->sampling = spec.sampling;
  request->sampling.seed = spec.seed;
  request->stream = spec.stream;
  request->priority = spec.priority;
  request->user = spec.user;
  request->cache_salt = spec.cache_salt;
  request->adapter = spec.adapter.name;
  request->adapter_fingerprint = spec.adapter.facts.fingerprint;
  if (!resumable.progress->has_ended()) request->timeout_ms = time_left(origin);
  request->request_id = origin.name.id;
  request->resumable = true;
  request->resume = spec.resume;
  request->progress = resumable.progress;
  return request;
}

}  // namespace

Result<Requests> recover_requests(const std::string& path, const EngineConfig& config, const io::JournalLock* lock) {
  if (std::error_code error; !std::filesystem::exists(path, error)) {
    spdlog::info("nothing to recover: there is no {}", path);
    return Requests();
  }
  const auto journal = io::read_journal(path, io::Records::of_resumable_requests, lock);
  if (!journal && journal.error().code == ErrorCode::bad_file && io::is_journal(path))
    return without_journal(path, journal.error().message);
  if (!journal) return fail(journal.error());
  if (journal->segments.empty()) {
    spdlog::info("nothing to recover: {} is empty", path);
    return Requests();
  }
  const auto setup = io::setup_of(*journal);
  const auto before = setup ? recorded_config(setup->config, path) : std::nullopt;
  if (!before) return without_journal(path, path + " does not name its engine: its beginning is damaged");
  if (const Status fits = check_setup(*before, setup->model, path, config); !fits) return fail(fits.error());
  auto tokenizer = io::load_tokenizer(config.model);
  if (!tokenizer) return fail(tokenizer.error());
  journal::ResumableRequests reader(*tokenizer);
  for (const auto& segment : journal->segments) {
    if (segment.follows_gap) reader.on_gap();
    for (const auto& record : segment.records) reader.record(record);
  }
  Requests recovered;
  std::map<std::pair<serving::Api, serving::StreamName>, std::size_t> by_name;
  for (const Resumable& resumable : reader.take()) {
    auto origin = serving::origin_of(*resumable.spec->resume);
    // Checks that the tokenizer turns the recorded tokens into the recorded text.
    output::OutputCore trial(*tokenizer);
    if (!origin || !trial.open(with_progress(*resumable.spec, resumable.progress))) {
      spdlog::warn("{}: a request cannot be recovered: its records are damaged", path);
      continue;
    }
    auto request = request_of(resumable, *origin);
    // Drops an earlier request with the same name, which its client gave up before it sent this request. Requests come
    // in the order of their arrival.
    const auto [same, is_new] = by_name.try_emplace({origin->api, origin->name}, recovered.size());
    if (!is_new) recovered[std::exchange(same->second, recovered.size())].request = nullptr;
    recovered.push_back({std::move(*origin), std::move(request),
                         journal::sent_deltas(*tokenizer, *resumable.spec, *resumable.progress),
                         resumable.spec->adapter.path});
  }
  std::erase_if(recovered, [](const serving::RecoveredRequest& one) { return one.request == nullptr; });
  if (journal->num_damaged > 0 || reader.num_damaged() > 0) {
    spdlog::warn("{}: {} segments end at an incomplete or damaged record, {} records could not be read", path,
                 journal->num_damaged, reader.num_damaged());
  }
  const auto num_live = std::ranges::count_if(
      recovered, [](const serving::RecoveredRequest& one) { return !one.request->progress->has_ended(); });
  if (recovered.empty()) spdlog::info("nothing to recover: no resumable request was live in {}", path);
  if (!recovered.empty()) {
    spdlog::info("recovering {} live requests and {} that had just ended from {}", num_live,
                 std::ssize(recovered) - num_live, path);
  }
  return recovered;
}

}  // namespace pagoda
