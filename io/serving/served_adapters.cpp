#include "io/serving/served_adapters.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

#include "engine/request/generate_request.hpp"
#include "io/adapters/lora_modules.hpp"

namespace pagoda::serving {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxPathBytes = 4096;

bool has_control(std::string_view text) {
  return std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

bool is_below(const fs::path& path, const fs::path& root) {
  const auto [of_root, of_path] = std::mismatch(root.begin(), root.end(), path.begin(), path.end());
  return of_root == root.end() && of_path != path.end();
}

tl::unexpected<Error> bad_path(std::string why) {
  return fail(ErrorCode::invalid_request, "lora_path " + std::move(why), "lora_path");
}

Status check_name(const std::string& name) {
  const auto problem = io::problem_of_adapter_name(name);
  if (problem.empty()) return {};
  return fail(ErrorCode::invalid_request, "lora_name " + problem, "lora_name");
}

}  // namespace

Result<fs::path> adapter_path(const fs::path& root, const std::string& path) {
  if (path.empty()) return bad_path("must not be empty");
  if (path.size() > kMaxPathBytes) return bad_path("must have at most " + std::to_string(kMaxPathBytes) + " bytes");
  if (has_control(path)) return bad_path("must have no control characters");
  std::error_code error;
  auto canonical_root = fs::canonical(root, error);
  if (error) return fail(ErrorCode::io_failed, "lora_root: " + root.string() + ": " + error.message(), "lora_root");
  const auto outside = [] { return bad_path("must be below the server's lora_root"); };
  const auto wanted = canonical_root / path;  // an absolute path replaces the root
  if (!is_below(fs::weakly_canonical(wanted, error), canonical_root) || error) return outside();
  // A dangling link has no canonical path, so its target cannot be created outside later.
  auto found = fs::canonical(wanted, error);
  if (error) return bad_path("names no file or folder: " + path);
  if (!is_below(found, canonical_root)) return outside();
  if (!fs::is_directory(found, error)) return found;
  const auto end = fs::directory_iterator();
  for (auto file = fs::directory_iterator(found, error); !error && file != end; file.increment(error)) {
    const auto target = fs::canonical(file->path(), error);  // an error for a dangling link
    if (!error && is_below(target, canonical_root)) continue;
    return bad_path("must not have links that lead out of the server's lora_root, or to nothing: " +
                    file->path().filename().string());
  }
  if (error) return bad_path("is a folder that cannot be read: " + error.message());
  return found;
}

Result<std::shared_ptr<ServedAdapters>> ServedAdapters::of(const EngineConfig& config) {
  if (!config.has_adapters()) return nullptr;
  const auto modules = io::parse_lora_modules(config);
  if (!modules) return fail(modules.error());
  if (std::error_code error; config.enable_lora_updates && !fs::is_directory(config.lora_root, error)) {
    return fail(ErrorCode::bad_config, "lora_root: " + config.lora_root + " is not a folder", "lora_root");
  }
  std::vector<Adapter> adapters;
  for (const auto& module : *modules) adapters.push_back({0, module.name, module.path});
  return std::make_shared<ServedAdapters>(std::move(adapters), config.enable_lora_updates ? config.lora_root : "");
}

ServedAdapters::ServedAdapters(std::vector<Adapter> adapters, std::string root) : root_(std::move(root)) {
  for (auto& adapter : adapters) {
    adapter.id = next_id_++;
    entries_.push_back({std::move(adapter)});
  }
}

std::vector<ServedAdapters::Adapter> ServedAdapters::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<Adapter> ready;
  for (const Entry& entry : entries_) {
    if (entry.state == State::ready) ready.push_back(entry.adapter);
  }
  return ready;
}

bool ServedAdapters::contains(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(
      entries_, [&](const Entry& entry) { return entry.state == State::ready && entry.adapter.name == name; });
}

ServedAdapters::Entry* ServedAdapters::find(std::string_view name) {
  const auto found = std::ranges::find_if(entries_, [&](const Entry& entry) { return entry.adapter.name == name; });
  return found == entries_.end() ? nullptr : &*found;
}

Status ServedAdapters::check_may_change() const {
  if (!root_.empty()) return {};
  return fail(ErrorCode::invalid_request, "adapters cannot be loaded and unloaded: start with --enable-lora-updates");
}

Result<SharedAdapterChange> ServedAdapters::begin_add(const std::string& name, const std::string& path) {
  if (auto status = check_may_change(); !status) return fail(status.error());
  if (auto status = check_name(name); !status) return fail(status.error());
  const auto found = adapter_path(root_, path);
  if (!found) return fail(found.error());
  const std::lock_guard lock(mutex_);
  if (const Entry* taken = find(name)) {
    const char* const now = taken->state == State::ready ? "is already loaded"
                            : taken->state == State::adding
                                ? "is being loaded"
                                : "is being unloaded: try again when its requests have ended";
    return fail(ErrorCode::invalid_request, "the adapter `" + name + "` " + now, "lora_name");
  }
  auto change = std::make_shared<AdapterChange>(shared_from_this(), AdapterChange::Kind::add,
                                                Adapter{next_id_, name, found->string()});
  entries_.push_back({change->adapter, State::adding});
  ++next_id_;
  return change;
}

Result<SharedAdapterChange> ServedAdapters::begin_remove(const std::string& name) {
  if (auto status = check_may_change(); !status) return fail(status.error());
  const std::lock_guard lock(mutex_);
  Entry* const entry = find(name);
  if (entry == nullptr || entry->state != State::ready) {
    return fail(ErrorCode::unknown_adapter, "the adapter `" + name + "` does not exist", "lora_name");
  }
  auto change = std::make_shared<AdapterChange>(shared_from_this(), AdapterChange::Kind::remove, entry->adapter);
  entry->state = State::removing;
  return change;
}

void ServedAdapters::settle(const AdapterChange& change, std::optional<ErrorCode> error) {
  const std::lock_guard lock(mutex_);
  // A failed removal leaves the adapter as it was, unless the engine does not know it.
  const bool is_gone = error == ErrorCode::unknown_adapter;
  const bool stays = (change.kind == AdapterChange::Kind::add) == !error && !is_gone;
  if (Entry* const entry = find(change.adapter.name); stays) {
    entry->state = State::ready;
  } else {
    entries_.erase(entries_.begin() + (entry - entries_.data()));
  }
}

AdapterChange::~AdapterChange() {
  if (owner_) owner_->settle(*this, ErrorCode::internal);
}

void AdapterChange::settle(const Status& answer) {
  const auto owner = std::exchange(owner_, nullptr);
  if (owner) owner->settle(*this, answer ? std::nullopt : std::optional(answer.error().code));
}

}  // namespace pagoda::serving
