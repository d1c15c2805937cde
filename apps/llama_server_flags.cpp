#include "apps/foreign_flags.hpp"

namespace pagoda::apps {
namespace {

constexpr auto kNoteIt = ValueRule::Fate::noted;
constexpr auto kNoValue = Values::none;
constexpr auto kOneValue = Values::one;

constexpr std::string_view kSameAsLlamaServer[] = {"--model", "--threads", "--host",
                                                   "--port",  "--api-key", "--api-key-file"};

constexpr TakenFlag kTakenOfLlamaServer[] = {{"-m", "--model"},
                                             {"-a,--alias", "--served-model-name"},
                                             {"-c,--ctx-size", "--max-model-len"},
                                             {"-t", "--threads"},
                                             {"-np,--parallel", "--max-num-seqs"},
                                             {"-s", "--seed"},
                                             {"-ctk,--cache-type-k,-ctv,--cache-type-v", "--kv-cache-dtype"},
                                             {"--chat-template-file", "--chat-template"},
                                             {"--ssl-key-file", "--tls-key"},
                                             {"--ssl-cert-file", "--tls-cert"},
                                             {"--log-disable", "--log-level"},
                                             {"-v,--verbose,--log-verbose", "--log-level"},
                                             {"--no-webui,--no-ui", "--no-page"},
                                             {"--lora", "--lora-modules"}};

constexpr const char* kWholeModelOnGpu = "--device cuda runs the whole model on a GPU, --device cuda:N on the Nth";
constexpr const char* kBoundsOfSteps = "--max-num-batched-tokens and --max-chunk-ms bound a step";
constexpr const char* kPaging = "--weight-memory copied has the weights in memory that is not a file's";
constexpr const char* kRequestsBring =
    "has no counterpart: requests bring it, and the model's generation_config.json has defaults";
constexpr const char* kRope = "has no counterpart: change the model's files instead";
constexpr const char* kPrefixes = "equal beginnings of prompts share KV blocks, always";
constexpr const char* kDrafts = "the draft model runs where the model runs, and as many drafts run as pay";
constexpr const char* kLogFlags = "--log-level sets what is logged";
constexpr const char* kThreadsOfServer = "--threads and --cpu-affinity set how a CPU computes";
constexpr const char* kLocalFile =
    "has no counterpart: nothing is downloaded; --model names a local folder or GGUF file";
constexpr const char* kNamedAdapters =
    "applies an adapter to every request, which has no counterpart: --enable-lora --lora-modules NAME=FILE, and "
    "requests "
    "name the adapter as their model";
constexpr const char* kNoControlVectors = "has no counterpart: only LoRA adapters change a model (docs/adapters.md)";
constexpr const char* kNoEmbeddings = "has no counterpart: texts are generated, not embedded";
constexpr const char* kSeveral = "is --models here: a file that names the models (docs/several-models.md)";
constexpr const char* kNoShift = "has no counterpart: a request ends at --max-model-len";

constexpr ValueRule kValueRulesOfLlamaServer[] = {
    {"-t,--threads", "-1", kNoteIt, "there is a thread for each core"},
    {"-np,--parallel", "-1,0", kNoteIt, "--max-num-seqs sets how many requests run together"},
    {"-s,--seed", "-1", kNoteIt, "requests that bring no seed get theirs derived from --seed, 0 by default"},
    {"-n,--predict,--n-predict", "-1", kNoteIt, "a chat's answer may take the rest of the context"},
    {"--reasoning-format", "auto,deepseek", kNoteIt,
     "how the model writes tool calls and thinking is read from its chat template (pagoda inspect --dialect shows it)"},
    {"--reasoning-budget", "-1", kNoteIt, "thinking is not bounded unless a request has thinking_token_budget"},
    {"--rope-scaling", "none", kNoteIt, "the model's files describe how positions are scaled"},
};

constexpr NotedFlag kNotedOfLlamaServer[] = {
    {"-ngl,--gpu-layers,--n-gpu-layers,-sm,--split-mode,-ts,--tensor-split,-mg,--main-gpu", kOneValue,
     kWholeModelOnGpu},
    {"-ncmoe,--n-cpu-moe,-ot,--override-tensor", kOneValue, kWholeModelOnGpu},
    {"-cmoe,--cpu-moe,-nkvo,--no-kv-offload,--kv-offload,--no-op-offload", kNoValue, kWholeModelOnGpu},
    {"-fit,--fit", Values::maybe_switch, kWholeModelOnGpu},
    {"-b,--batch-size,-ub,--ubatch-size", kOneValue, kBoundsOfSteps},
    {"-tb,--threads-batch", kOneValue, "--threads is for prompts and tokens alike"},
    {"--threads-http", kOneValue, "one thread serves all connections"},
    {"-C,--cpu-mask,-Cr,--cpu-range,--cpu-strict,--prio,--poll,--prio-batch,--poll-batch", kOneValue, kThreadsOfServer},
    {"--numa", kOneValue, "--cpu-affinity numa binds threads to the nodes in turn"},
    {"-fa,--flash-attn", Values::maybe_switch, "attention is always computed so"},
    {"-cb,--cont-batching,-nocb,--no-cont-batching", kNoValue, "batching is always continuous"},
    {"-kvu,--kv-unified,--no-kv-unified,--swa-full", kNoValue, "all requests share the KV cache"},
    {"-dt,--defrag-thold", kOneValue, "KV blocks need no defragmentation"},
    {"--mlock,--mmap,--no-mmap,-dio,--direct-io", kNoValue, kPaging},
    {"--repack,-nr,--no-repack,--check-tensors,--no-host", kNoValue, "weights are packed for the device"},
    {"--jinja,--no-jinja", kNoValue, "the chat template is always rendered"},
    {"--no-context-shift", kNoValue, "a request ends at --max-model-len"},
    {"--cache-reuse,-cram,--cache-ram,--ctx-checkpoints,--swa-checkpoints,-sps,--slot-prompt-similarity,"
     "--slot-save-path",
     kOneValue, kPrefixes},
    {"--cache-prompt,--no-cache-prompt,--slots,--no-slots", kNoValue, kPrefixes},
    {"--lora-init-without-apply", kNoValue, "an adapter is used only by requests that name it"},
    {"--metrics", kNoValue, "GET /metrics always answers (docs/metrics.md)"},
    {"--props", kNoValue, "settings are those of the start"},
    {"--webui,--ui", kNoValue, "the page at / is served unless --no-page is given"},
    {"--warmup,--no-warmup,--offline,--perf,--no-perf,-e,--escape,--no-escape", kNoValue,
     "it has no meaning for a server of local files"},
    {"--no-mmproj,--no-mmproj-offload,--mmproj-offload", kNoValue, "models of text alone are served"},
    {"--draft-min,--draft-p-min,-cd,--ctx-size-draft,-ngld,"
     "--gpu-layers-draft,--n-gpu-layers-draft,-devd,--device-draft,-td,--threads-draft,-ctkd,--cache-type-k-draft,"
     "-ctvd,--cache-type-v-draft",
     kOneValue, kDrafts},
    {"-lv,--verbosity,--log-verbosity,--log-file,--log-colors", kOneValue, kLogFlags},
    {"--log-timestamps,--log-prefix,--no-log-timestamps,--no-log-prefix", kNoValue, kLogFlags},
    {"-to,--timeout", kOneValue, "--http-send-timeout-ms and its neighbours bound how long a client is waited for"},
};

constexpr RefusedFlag kRefusedOfLlamaServer[] = {
    {"-mu,--model-url,-hf,-hfr,--hf-repo,-hff,--hf-file,-hft,-dr,--docker-repo", kLocalFile},
    {"-n,--predict,--n-predict", "has no counterpart: requests bring max_tokens"},
    {"--temp,--top-k,--top-p,--min-p,--typical,--repeat-penalty,--repeat-last-n,--presence-penalty,"
     "--frequency-penalty,--mirostat,--dry-multiplier,--xtc-probability,-l,--logit-bias",
     kRequestsBring},
    {"--samplers,--sampling-seq,--ignore-eos,-sp,--special", kRequestsBring},
    {"--grammar,--grammar-file,-j,--json-schema,-jf,--json-schema-file",
     "has no counterpart: requests bring structured_outputs or response_format"},
    {"--reasoning-format", "has no counterpart: thinking is in the field reasoning, apart from the content"},
    {"--reasoning-budget", "has no counterpart: requests bring thinking_token_budget"},
    {"--chat-template-kwargs", "has no counterpart: requests bring chat_template_kwargs"},
    {"--context-shift", kNoShift},
    {"--keep", kNoShift},
    {"--rope-freq-base,--rope-freq-scale,--rope-scale,--yarn-orig-ctx,--yarn-ext-factor,--yarn-attn-factor,"
     "--override-kv,-gan,--grp-attn-n",
     kRope},
    {"--lora-scaled", kNamedAdapters},
    {"--control-vector,--control-vector-scaled,--control-vector-layer-range", kNoControlVectors},
    {"--models-dir,--models-preset", kSeveral},
    {"--models-max", "is --max-loaded-models here"},
    {"-mm,--mmproj,--mmproj-url", "has no counterpart: models of text alone are served"},
    {"--path,--api-prefix", "has no counterpart: a proxy can serve other files, or under a prefix (docs/deploying.md)"},
    {"--embedding,--embeddings,--reranking,--rerank,--pooling", kNoEmbeddings},
};

}  // namespace

const ForeignServer& llama_server() {
  static constexpr ForeignServer kServer{kSameAsLlamaServer, kTakenOfLlamaServer, kValueRulesOfLlamaServer,
                                         kNotedOfLlamaServer, kRefusedOfLlamaServer};
  return kServer;
}

}  // namespace pagoda::apps
