#include "engine/models/families.hpp"

#include <algorithm>
#include <array>

namespace pagoda::models {
namespace {

constexpr std::array kFamilies{
    Family{"BaiChuanForCausalLM", describe_baichuan_7b},
    Family{"BaichuanForCausalLM", describe_baichuan},
    Family{"Cohere2ForCausalLM", describe_cohere2},
    Family{"GPT2LMHeadModel", describe_gpt2},
    Family{"Gemma2ForCausalLM", describe_gemma2},
    Family{"Gemma3ForCausalLM", describe_gemma3},
    Family{"LlamaForCausalLM", describe_llama},
    Family{"MinistralForCausalLM", describe_mistral},
    Family{"MistralForCausalLM", describe_mistral},
    Family{"OPTForCausalLM", describe_opt},
    Family{"Phi3ForCausalLM", describe_phi3},
    Family{"Qwen2ForCausalLM", describe_qwen2},
    Family{"Qwen3ForCausalLM", describe_qwen3},
    Family{"SmolLM3ForCausalLM", describe_smollm3},
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
