#include "engine/models/families.hpp"

#include <algorithm>
#include <array>
#include <set>

namespace pagoda::models {
namespace {

constexpr std::array kFamilies{
    Family{"BaiChuanForCausalLM", describe_baichuan_7b, &kBaichuanGguf},
    Family{"BaichuanForCausalLM", describe_baichuan, &kBaichuanGguf},
    Family{"Cohere2ForCausalLM", describe_cohere2, &kCohere2Gguf},
    Family{"Eagle3DraftModel", describe_eagle3, nullptr, /*is_draft_head=*/true},
    Family{"Eagle3LlamaForCausalLM", describe_eagle3, nullptr, /*is_draft_head=*/true},
    Family{"Eagle3Speculator", describe_eagle3, nullptr, /*is_draft_head=*/true},
    Family{"GPT2LMHeadModel", describe_gpt2, &kGpt2Gguf},
    Family{"Gemma2ForCausalLM", describe_gemma2, &kGemma2Gguf},
    Family{"Gemma3ForCausalLM", describe_gemma3, &kGemma3Gguf},
    Family{"Gemma3ForConditionalGeneration", describe_gemma3_with_images},
    Family{"GraniteForCausalLM", describe_granite, &kGraniteGguf},
    Family{"LlamaForCausalLM", describe_llama, &kLlamaGguf},
    Family{"LlamaForCausalLMEagle3", describe_eagle3, nullptr, /*is_draft_head=*/true},
    Family{"MinistralForCausalLM", describe_ministral},
    Family{"MistralForCausalLM", describe_mistral, &kLlamaGguf},
    Family{"OPTForCausalLM", describe_opt},
    Family{"Phi3ForCausalLM", describe_phi3, &kPhi3Gguf},
    Family{"Qwen2ForCausalLM", describe_qwen2, &kQwen2Gguf},
    Family{"Qwen3ForCausalLM", describe_qwen3, &kQwen3Gguf},
    Family{"SmolLM3ForCausalLM", describe_smollm3, &kSmolLm3Gguf},
};

}  // namespace

const Family* find_family(std::string_view architecture) {
  const auto* found = std::ranges::find(kFamilies, architecture, &Family::architecture);
  return found == kFamilies.end() ? nullptr : found;
}

std::vector<std::string> known_architectures() {
  std::vector<std::string> names;
  for (const auto& family : kFamilies) {
    if (!family.is_draft_head) names.emplace_back(family.architecture);
  }
  std::ranges::sort(names);
  return names;
}

const GgufArchitecture* find_gguf_architecture(std::string_view name) {
  const auto* found = std::ranges::find_if(
      kFamilies, [&](const Family& family) { return family.gguf != nullptr && family.gguf->name == name; });
  return found == kFamilies.end() ? nullptr : found->gguf;
}

std::vector<std::string> gguf_architectures() {
  std::set<std::string> names;
  for (const auto& family : kFamilies) {
    if (family.gguf != nullptr) names.emplace(family.gguf->name);
  }
  return {names.begin(), names.end()};
}

}  // namespace pagoda::models
