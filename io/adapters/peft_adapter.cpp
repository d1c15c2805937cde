#include "io/adapters/peft_adapter.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/adapters/adapter_matrix.hpp"
#include "io/adapters/adapter_tensors.hpp"
#include "io/adapters/peft_config.hpp"
#include "io/adapters/prompt_config.hpp"
#include "io/model_files/file_text.hpp"
#include "io/model_files/mapped_file.hpp"
#include "io/model_files/tensor_names.hpp"

namespace pagoda::io {
namespace {

constexpr const char* kConfigName = "adapter_config.json";
constexpr std::size_t kMaxConfigBytes = 10'000'000;
constexpr std::string_view kPrefix = "base_model.model.";
constexpr const char* kPromptTensor = "prompt_embeddings";

/// Modules whose whole weights peft saves without modules_to_save: embeddings and heads, after the vocabulary has
/// grown.
constexpr std::array<std::string_view, 3> kSavedByPeft{"embed_tokens", "wte", "lm_head"};

enum class Part : std::uint8_t { a, b, embedding_a, embedding_b, magnitude, weight, bias, unsupported };

struct Ending {
  std::string_view text;
  Part part;
};

/// Endings of names after a module's name. A longer ending comes before its own ending.
constexpr std::array<Ending, 14> kEndings{{
    {".lora_A.weight", Part::a},
    {".lora_B.weight", Part::b},
    {".lora_embedding_A", Part::embedding_a},
    {".lora_embedding_B", Part::embedding_b},
    {".lora_magnitude_vector.weight", Part::magnitude},
    {".lora_magnitude_vector", Part::magnitude},
    {".lora_A.bias", Part::unsupported},
    {".lora_B.bias", Part::unsupported},
    {".modules_to_save.weight", Part::weight},
    {".modules_to_save.bias", Part::bias},
    {".base_layer.weight", Part::weight},
    {".base_layer.bias", Part::bias},
    {".weight", Part::weight},
    {".bias", Part::bias},
}};

/// Names of the tensors of one module in the file; empty where there is no such tensor.
struct ModuleTensors {
  std::string a;
  std::string b;
  std::string magnitude;
  std::string weight;
  std::string bias;
  bool is_embedding = false;

  bool has_lora() const { return !a.empty() || !b.empty() || !magnitude.empty(); }
  const std::string& first_of_lora() const { return !a.empty() ? a : !b.empty() ? b : magnitude; }

  std::string& name_of(Part part) {
    switch (part) {
      case Part::a:
      case Part::embedding_a:
        return a;
      case Part::b:
      case Part::embedding_b:
        return b;
      case Part::magnitude:
        return magnitude;
      case Part::weight:
        return weight;
      default:
        return bias;
    }
  }
};

/// Tensors by the name of the module in the model that the adapter was trained for.
using Modules = std::map<std::string, ModuleTensors, std::less<>>;

/// Returns the last part of a module's name.
std::string_view last_part(std::string_view module) {
  return module.substr(module.rfind('.') + 1);  // npos + 1 is 0
}

Result<Modules> sort_tensors(const AdapterTensors& tensors) {
  Modules modules;
  for (const auto& [name, entry] : tensors.entries()) {
    const auto* const ending =
        std::ranges::find_if(kEndings, [&](const Ending& each) { return name.ends_with(each.text); });
    const std::size_t end = ending == kEndings.end() ? 0 : name.size() - ending->text.size();
    const bool is_known = end > kPrefix.size() && name.starts_with(kPrefix) &&
                          std::string_view(name).substr(0, end).find(".lora_") == name.npos;
    if (!is_known) {
      return tensors.bad(name, "the name is none of an adapter's tensor (" + std::string(kPrefix) +
                                   "MODULE.lora_A.weight, for example)");
    }
    if (ending->part == Part::unsupported) {
      return tensors.bad(name, "biases of the low-rank matrices (lora_bias) are not supported", ErrorCode::unsupported);
    }
    ModuleTensors& module = modules[name.substr(kPrefix.size(), end - kPrefix.size())];
    std::string& place = module.name_of(ending->part);
    if (!place.empty()) return tensors.bad(name, "it is the same as tensor " + quote(place));
    place = name;
    module.is_embedding = module.is_embedding || ending->part == Part::embedding_a || ending->part == Part::embedding_b;
  }
  return modules;
}

/// Reads the modules of one file.
class ModuleReader {
 public:
  ModuleReader(const PeftConfig& config, const AdapterTensors& tensors) : config_(config), tensors_(tensors) {}

  Result<adapters::ModuleChange> read(const std::string& module, const ModuleTensors& names) const {
    adapters::ModuleChange change;
    if (auto status = check_chosen(module, names); !status) return fail(std::move(status.error()));
    if (names.has_lora()) {
      auto lora = read_lora(module, names);
      if (!lora) return fail(std::move(lora.error()));
      change.lora = std::move(*lora);
    }
    if (!names.weight.empty()) {
      auto weight = tensors_.matrix(names.weight, 2);
      if (!weight) return fail(std::move(weight.error()));
      change.weight = std::move(*weight);
    }
    if (!names.bias.empty()) {
      auto bias = tensors_.matrix(names.bias, 1);
      if (!bias) return fail(std::move(bias.error()));
      change.bias = std::move(*bias);
    }
    return change;
  }

 private:
  /// Checks that the config chooses what the tensors change.
  Status check_chosen(const std::string& module, const ModuleTensors& names) const {
    const auto targeted = config_.targets(module);
    if (!targeted) return fail(targeted.error());
    const auto saved = config_.saves(module);
    if (!saved) return fail(saved.error());
    if (names.has_lora() && !*targeted) {
      return tensors_.bad(names.first_of_lora(), "the config does not choose module " + quote(module) +
                                                     " (target_modules, exclude_modules, layers_to_transform)");
    }
    const bool is_embedding = std::ranges::find(kSavedByPeft, last_part(module)) != kSavedByPeft.end();
    if (!names.weight.empty() && !*saved && !is_embedding) {
      return tensors_.bad(names.weight, "modules_to_save of the config does not have module " + quote(module));
    }
    const bool has_bias =
        *saved || config_.bias() == AdapterBias::all || (config_.bias() == AdapterBias::lora_only && names.has_lora());
    if (!names.bias.empty() && !has_bias) {
      return tensors_.bad(names.bias, "bias of the config does not have the bias of module " + quote(module));
    }
    return {};
  }

  Result<adapters::LoraChange> read_lora(const std::string& module, const ModuleTensors& names) const {
    if (names.a.empty() || names.b.empty()) {
      return tensors_.bad(names.first_of_lora(), std::string("its module has no ") +
                                                     (names.is_embedding ? "lora_embedding_" : "lora_") +
                                                     (names.a.empty() ? "A" : "B"));
    }
    constexpr std::string_view kEmbeddingPart = ".lora_embedding_";
    if ((names.a.find(kEmbeddingPart) == names.a.npos) != (names.b.find(kEmbeddingPart) == names.b.npos)) {
      return tensors_.bad(names.a, "its partner " + quote(names.b) + " is that of another kind of module");
    }
    adapters::LoraChange lora;
    auto a = tensors_.matrix(names.a, 2);
    if (!a) return fail(std::move(a.error()));
    auto b = tensors_.matrix(names.b, 2);
    if (!b) return fail(std::move(b.error()));
    lora.a = std::move(*a);
    lora.b = std::move(*b);
    if (lora.b.columns != lora.a.rows) {
      return tensors_.bad(names.b, "its " + std::to_string(lora.b.columns) + " columns are not the " +
                                       std::to_string(lora.a.rows) + " rows of " + quote(names.a));
    }
    if (auto status = check_rank(module, names, lora.rank()); !status) return fail(std::move(status.error()));
    const auto scale = config_.scale_of(module, lora.rank());
    if (!scale) return fail(scale.error());
    lora.scale = *scale;
    if (auto status = read_magnitude(names, lora); !status) return fail(std::move(status.error()));
    return lora;
  }

  Status check_rank(const std::string& module, const ModuleTensors& names, std::int64_t rank) const {
    if (rank > kMaxAdapterRank) {
      return tensors_.bad(
          names.a, "rank " + std::to_string(rank) + " is more than the limit of " + std::to_string(kMaxAdapterRank));
    }
    const auto expected = config_.rank_of(module);
    if (!expected) return fail(expected.error());
    if (rank == *expected) return {};
    return tensors_.bad(names.a, "rank " + std::to_string(rank) + " is not that of the config, " +
                                     std::to_string(*expected) + " (r, rank_pattern)");
  }

  Status read_magnitude(const ModuleTensors& names, adapters::LoraChange& lora) const {
    if (names.magnitude.empty()) {
      if (!config_.uses_dora()) return {};
      return tensors_.bad(names.a, "its module has no lora_magnitude_vector, though the config has use_dora");
    }
    if (!config_.uses_dora()) return tensors_.bad(names.magnitude, "the config does not have use_dora");
    auto magnitude = tensors_.matrix(names.magnitude, 1);
    if (!magnitude) return fail(std::move(magnitude.error()));
    if (magnitude->rows != lora.b.rows) {
      return tensors_.bad(names.magnitude, "its " + std::to_string(magnitude->rows) + " elements are not the " +
                                               std::to_string(lora.b.rows) + " rows of " + quote(names.b));
    }
    lora.magnitude = std::move(*magnitude);
    return {};
  }

  const PeftConfig& config_;
  const AdapterTensors& tensors_;
};

/// Returns the names that a checkpoint has for the modules, in their order; empty for a module whose name is only one
/// of the prefixes that wrappers add.
std::vector<std::string> checkpoint_names(const Modules& modules) {
  constexpr std::string_view kWeight = ".weight";
  std::vector<std::string> names;
  for (const auto& [module, tensors] : modules) names.push_back(module + std::string(kWeight));
  names.emplace_back("embed_tokens.weight");  // by which the names of a base model without its head are known
  names = canonical_tensor_names(names);
  names.pop_back();
  for (std::string& name : names) name.resize(name.ends_with(kWeight) ? name.size() - kWeight.size() : 0);
  return names;
}

/// Reads the only tensor of a prompt adapter.
Result<adapters::Adapter> read_prompt(const PromptConfig& config, const AdapterTensors& tensors) {
  for (const auto& [name, entry] : tensors.entries()) {
    if (name != kPromptTensor) {
      return tensors.bad(name, "a prompt adapter has only the tensor " + quote(kPromptTensor), ErrorCode::unsupported);
    }
  }
  if (tensors.entries().empty()) {
    return fail(ErrorCode::bad_file, tensors.path() + ": there is no tensor " + quote(kPromptTensor));
  }
  auto rows = tensors.matrix(kPromptTensor, 2);
  if (!rows) return fail(std::move(rows.error()));
  if (rows->rows != config.num_virtual_tokens) {
    return tensors.bad(kPromptTensor, "its " + std::to_string(rows->rows) + " rows are not the " +
                                          std::to_string(config.num_virtual_tokens) +
                                          " tokens of the config (num_virtual_tokens)");
  }
  if (config.columns && rows->columns != *config.columns) {
    return tensors.bad(
        kPromptTensor,
        "its " + std::to_string(rows->columns) + " columns are not the " + std::to_string(*config.columns) +
            " of the config (" +
            (config.kind == adapters::VirtualTokens::Kind::prefix ? "num_layers * 2 * token_dim)" : "token_dim)"));
  }
  adapters::Adapter adapter;
  adapter.prompt = {config.kind, std::move(*rows), config.num_heads};
  return adapter;
}

Result<adapters::Adapter> read_modules(const PeftConfig& config, const AdapterTensors& tensors) {
  const auto modules = sort_tensors(tensors);
  if (!modules) return fail(modules.error());
  if (modules->empty()) return fail(ErrorCode::bad_file, tensors.path() + ": there are no tensors");

  const ModuleReader reader(config, tensors);
  const auto names = checkpoint_names(*modules);
  std::map<std::string, adapters::ModuleChange> changes;
  std::size_t i = 0;
  for (const auto& [module, tensor_names] : *modules) {
    if (names[i].empty()) {
      return fail(ErrorCode::bad_file, tensors.path() + ": " + quote(module) + " is a prefix and not a module");
    }
    auto change = reader.read(module, tensor_names);
    if (!change) return fail(std::move(change.error()));
    change->module = names[i];
    if (!changes.emplace(names[i], std::move(*change)).second) {
      return fail(ErrorCode::bad_file, tensors.path() + ": module " + quote(module) + " has another module's name, " +
                                           quote(names[i]) + ", but for a prefix");
    }
    ++i;
  }
  adapters::Adapter adapter;
  for (auto& [name, change] : changes) adapter.changes.push_back(std::move(change));
  return adapter;
}

}  // namespace

Result<adapters::Adapter> read_peft_adapter(const std::filesystem::path& folder) {
  const auto file = MappedFile::open(folder / kConfigName);
  if (!file) return fail(file.error());
  const auto bytes = file->bytes();
  if (bytes.size() > kMaxConfigBytes) {
    return fail(ErrorCode::bad_config, file->path() + ": " + std::to_string(bytes.size()) +
                                           " bytes are more than the limit of " + std::to_string(kMaxConfigBytes));
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto prompt = PromptConfig::parse(text, file->path());
  if (!prompt) return fail(prompt.error());
  const auto lora = *prompt ? Result<PeftConfig>() : PeftConfig::parse(text, file->path());
  if (!lora) return fail(lora.error());
  const auto tensors = AdapterTensors::open(folder);
  if (!tensors) return fail(tensors.error());
  return *prompt ? read_prompt(**prompt, *tensors) : read_modules(*lora, *tensors);
}

}  // namespace pagoda::io
