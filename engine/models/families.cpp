#include "engine/models/families.hpp"

#include <algorithm>
#include <array>

namespace pagoda::models {
namespace {

template <auto read>
ModelSpec describe(ConfigSource& config) {
  return spec_of(read(config));
}

constexpr std::array kFamilies{
    Family{"BaiChuanForCausalLM", describe<read_baichuan_7b>},
    Family{"BaichuanForCausalLM", describe<read_baichuan>},
    Family{"GPT2LMHeadModel", describe<read_gpt2>},
    Family{"LlamaForCausalLM", describe<read_llama>},
    Family{"MistralForCausalLM", describe<read_mistral>},
    Family{"OPTForCausalLM", describe<read_opt>},
    Family{"Phi3ForCausalLM", describe<read_phi3>},
    Family{"Qwen2ForCausalLM", describe<read_qwen2>},
    Family{"Qwen3ForCausalLM", describe<read_qwen3>},
};

}  // namespace

const Family* find_family(std::string_view architecture) {
  const auto* found = std::ranges::find(kFamilies, architecture, &Family::architecture);
  return found == kFamilies.end() ? nullptr : found;
}

std::vector<std::string> known_architectures() {
  std::vector<std::string> names;
  for (const auto& family : kFamilies) names.emplace_back(family.architecture);
  std::ranges::sort(names);
  return names;
}

}  // namespace pagoda::models
