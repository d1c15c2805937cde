#include <algorithm>
#include <array>
#include <utility>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "apps/doctor/probe.hpp"
#include "io/model_files/model_files.hpp"
#include "kernels/cpu/proc_files.hpp"
#include "pagoda/engine_plan.hpp"

namespace pagoda::apps {
namespace {

namespace fs = std::filesystem;

/// Returns the name of the file system if reads go over a network or through another program, else nothing.
std::string remote_filesystem(const fs::path& path) {
  constexpr long kV9fs = 0x01021997;
  constexpr long kCifs = 0xFF534D42;
  constexpr long kFuse = 0x65735546;
  constexpr std::array<std::pair<long, const char*>, 5> kKnown{
      {{NFS_SUPER_MAGIC, "nfs"}, {SMB_SUPER_MAGIC, "smb"}, {kCifs, "cifs"}, {kFuse, "fuse"}, {kV9fs, "9p"}}};
  struct statfs info {};
  if (::statfs(path.c_str(), &info) != 0) return "";
  for (const auto& [magic, name] : kKnown) {
    if (static_cast<long>(info.f_type) == magic) return name;
  }
  return "";
}

/// Returns whether the file is on a rotating disk; false if the system does not report it.
bool is_on_rotational_disk(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return false;
  const fs::path device =
      "/sys/dev/block/" + std::to_string(major(info.st_dev)) + ":" + std::to_string(minor(info.st_dev));
  for (const auto& queue :
       {device / "queue", device / ".." / "queue"}) {  // queue of a disk, or of the disk of a partition
    const auto word = kernels::first_line_of(queue / "rotational");
    if (!word.empty()) return word == "1";
  }
  return false;
}

std::vector<fs::path> weight_files(const fs::path& model) {
  std::error_code error;
  if (!fs::is_directory(model, error)) return {model};
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(model, error), end; !error && entry != end; entry.increment(error)) {
    const auto ending = entry->path().extension();
    if (ending == ".safetensors" || ending == ".bin" || ending == ".gguf") files.push_back(entry->path());
  }
  return files;
}

/// Returns the host memory that serving needs; 0 on a GPU. Does with the model's files all that serve does before it
/// reads weights.
Result<std::int64_t> bytes_needed(const EngineConfig& config) {
  const EngineConfig replica = config.of_replica(0).of_rank(0);
  const auto device = create_device(replica);
  if (!device) return fail(device.error());
  const auto plan = plan_engine(replica, **device);
  if (!plan) return fail(plan.error());
  if (const auto tokenizer = plan->files->tokenizer(); !tokenizer) return fail(tokenizer.error());
  if (const auto chat = io::load_chat_prompts(config, *plan->files); !chat) return fail(chat.error());
  if (!(*device)->shares_host_memory()) return 0;
  const auto needed = host_bytes_of_all(config, **device, *plan);
  if (!needed) return needed;
  if (auto status = check_host_memory(replica, *plan, all_devices(config), *needed); !status)
    return fail(std::move(status.error()));
  return needed;
}

}  // namespace

std::uint64_t cached_bytes_of(const fs::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  struct stat info {};
  std::uint64_t cached = 0;
  if (::fstat(fd, &info) == 0 && info.st_size > 0) {
    const auto bytes = static_cast<std::size_t>(info.st_size);
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    if (void* map = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0); map != MAP_FAILED) {
      std::vector<unsigned char> is_in((bytes + page - 1) / page);
      if (::mincore(map, bytes, is_in.data()) == 0) {
        for (const unsigned char in : is_in) cached += (in & 1U) != 0 ? page : 0;
      }
      ::munmap(map, bytes);
    }
    cached = std::min<std::uint64_t>(cached, bytes);
  }
  ::close(fd);
  return cached;
}

ModelFacts probe_model(const EngineConfig& config) {
  ModelFacts facts;
  facts.path = config.model;
  if (const auto needed = bytes_needed(config)) {
    facts.needed_bytes = static_cast<std::uint64_t>(*needed);
  } else {
    facts.problem = needed.error().message;
  }
  for (const auto& file : weight_files(config.model)) {
    std::error_code error;
    const auto bytes = fs::file_size(file, error);
    if (error) continue;
    facts.file_bytes += bytes;
    facts.cached_bytes += cached_bytes_of(file);
    facts.is_rotational = facts.is_rotational || is_on_rotational_disk(file);
  }
  facts.filesystem = remote_filesystem(config.model);
  return facts;
}

}  // namespace pagoda::apps
