#include <array>

#include "apps/foreign_flags.hpp"

namespace pagoda::apps {
namespace {

constexpr std::string_view kSame[] = {"--model",
                                      "--served-model-name",
                                      "--load-format",
                                      "--dtype",
                                      "--seed",
                                      "--max-model-len",
                                      "--max-logprobs",
                                      "--generation-config",
                                      "--chat-template",
                                      "--enforce-eager",
                                      "--tensor-parallel-size",
                                      "--pipeline-parallel-size",
                                      "--block-size",
                                      "--gpu-memory-utilization",
                                      "--swap-space",
                                      "--kv-cache-dtype",
                                      "--enable-prefix-caching",
                                      "--no-enable-prefix-caching",
                                      "--max-num-seqs",
                                      "--max-num-batched-tokens",
                                      "--enable-chunked-prefill",
                                      "--no-enable-chunked-prefill",
                                      "--scheduling-policy",
                                      "--preemption-mode",
                                      "--scheduler-delay-factor",
                                      "--long-prefill-token-threshold",
                                      "--max-num-partial-prefills",
                                      "--device",
                                      "--api-key",
                                      "--otlp-traces-endpoint"};

constexpr TakenFlag kTaken[] = {{"--host", "--http"},
                                {"--port", "--http"},
                                {"--ssl-certfile", "--tls-cert"},
                                {"--ssl-keyfile", "--tls-key"},
                                {"--allowed-origins", "--cors-origin"},
                                {"-tp", "--tensor-parallel-size"},
                                {"-pp", "--pipeline-parallel-size"},
                                {"--shutdown-timeout", "--drain-timeout"},
                                {"--num-gpu-blocks-override", "--num-device-blocks"},
                                {"--kv-cache-memory-bytes", "--kv-cache-memory"},
                                {"--async-scheduling", "--pipeline-depth"},
                                {"--no-async-scheduling", "--pipeline-depth"}};

constexpr const char* kDialect =
    "is not needed: how the model writes tool calls and thinking is read from its chat template (pagoda inspect "
    "--dialect shows it); --answer-dialect FILE says it otherwise";
constexpr const char* kNoLora = "has no counterpart: adapters are not served; merge them into the model's weights";
constexpr const char* kOneEngine = "has no counterpart: run a server for each copy, behind a proxy (docs/deploying.md)";
constexpr const char* kNoMedia = "has no counterpart: models of text alone are served";
constexpr const char* kNoSpeculation =
    "has no counterpart: nothing drafts free text; structured outputs and calls are drafted by their grammars, always";
constexpr const char* kNoHub = "has no counterpart: nothing is downloaded; --model names a local folder or GGUF file";
constexpr const char* kOwnTokenizer = "has no counterpart: the tokenizer is that of the model's folder or file";
constexpr const char* kConfigFile = "has no counterpart: change the model's config.json instead";
constexpr const char* kGrammar =
    "is not needed: structured output is held to by one grammar engine, whatever the request's form";
constexpr const char* kGraphs =
    "has no counterpart: nothing is compiled at start; --enforce-eager turns replayed steps off";
constexpr const char* kOneProcess = "is not needed: the HTTP APIs run on threads of the server's process";
constexpr const char* kCorsFixed = "has no counterpart: --cors-origin allows what the APIs need";
constexpr const char* kLogs = "has no counterpart: --log-level says what is logged";
constexpr const char* kOneDevice = "has no counterpart: a model runs on one device";
constexpr const char* kOtherHost =
    "has no counterpart: a model runs on one device; --worker-listen has it run on another host (docs/scaling.md)";
constexpr const char* kNoCode = "has no counterpart: no code is loaded at start (docs/embedding.md)";
constexpr const char* kByModel = "has no counterpart: what a model does follows from its architecture";

constexpr const char* kOneDeviceEach =
    "has no counterpart: a model runs on one device; run a server for each, behind a proxy (docs/deploying.md)";
constexpr const char* kFilesSay = "is auto here: the form of the files is seen from the files, safetensors first";
constexpr const char* kNoFit =
    "has no counterpart: 0 takes the model's own, a number less; pagoda inspect shows how many tokens memory holds";

constexpr RefusedValue kRefusedValuesOfVllm[] = {
    {"--load-format", "safetensors,pt,npcache,gguf,bitsandbytes,mistral", kFilesSay},
    {"--load-format", "fastsafetensors,runai_streamer,sharded_state,tensorizer",
     "has no counterpart: --weight-memory mapped or copied says how files are read"},
    {"--max-model-len", "auto,-1", kNoFit},
    {"--kv-cache-dtype", "fp8_e5m2", "has no counterpart: fp8_e4m3 takes as much memory, int8 too and is more exact"},
    {"--device", "auto", "has no counterpart: cpu unless told; --device cuda for a GPU"},
    {"--tensor-parallel-size,-tp", ">1", kOneDeviceEach},
    {"--pipeline-parallel-size,-pp", ">1", kOneDeviceEach},
};

constexpr RefusedFlag kRefusedOfVllm[] = {
    {"--quantization,-q",
     "is not needed for quantised models: their files say how; --quantize int8 or int4 quantises when loading"},
    {"--tokenizer", kOwnTokenizer},
    {"--tokenizer-mode", kOwnTokenizer},
    {"--tokenizer-revision", kNoHub},
    {"--revision", kNoHub},
    {"--code-revision", kNoHub},
    {"--hf-token", kNoHub},
    {"--download-dir", kNoHub},
    {"--trust-remote-code,--no-trust-remote-code", "is not needed: no code of a model is run"},
    {"--model-loader-extra-config", "has no counterpart: --weight-memory mapped or copied says how files are read"},
    {"--safetensors-load-strategy", "is --weight-memory here: mapped, copied or auto"},
    {"--ignore-patterns", kNoHub},
    {"--skip-tokenizer-init", "has no counterpart: the tokenizer is always loaded"},
    {"--hf-overrides", kConfigFile},
    {"--hf-config-path", kConfigFile},
    {"--rope-scaling", kConfigFile},
    {"--rope-theta", kConfigFile},
    {"--config-format", "is not needed: the form of the files is seen from the files"},
    {"--model-impl", kByModel},
    {"--task", kByModel},
    {"--runner", kByModel},
    {"--convert", kByModel},
    {"--override-generation-config", "has no counterpart: change the model's generation_config.json"},
    {"--logprobs-mode", "has no counterpart: logprobs are of the distribution before temperature and truncation"},
    {"--disable-sliding-window", "has no counterpart: lower --max-model-len to the window"},
    {"--enable-auto-tool-choice",
     "is not needed: requests with tools may call them, tool_choice auto being the default"},
    {"--tool-call-parser", kDialect},
    {"--tool-parser-plugin", kDialect},
    {"--reasoning-parser", kDialect},
    {"--reasoning-parser-plugin", kDialect},
    {"--enable-reasoning", kDialect},
    {"--exclude-tools-when-tool-choice-none",
     "has no counterpart: with tool_choice none the tools stay in the prompt; leave them out of the request"},
    {"--tool-server", "has no counterpart: a client runs the tools that are called (docs/tools.md)"},
    {"--guided-decoding-backend", kGrammar},
    {"--structured-outputs-config", kGrammar},
    {"--chat-template-content-format", "is not needed: content is given in the form that the template reads"},
    {"--default-chat-template-kwargs", "has no counterpart: requests bring chat_template_kwargs"},
    {"--response-role", "has no counterpart: answers have the role assistant"},
    {"--speculative-config,-sc", kNoSpeculation},
    {"--num-speculative-tokens", kNoSpeculation},
    {"--speculative-model", kNoSpeculation},
    {"--enable-lora", kNoLora},
    {"--lora-modules", kNoLora},
    {"--max-loras", kNoLora},
    {"--max-lora-rank", kNoLora},
    {"--max-cpu-loras", kNoLora},
    {"--lora-dtype", kNoLora},
    {"--fully-sharded-loras", kNoLora},
    {"--language-model-only", "is not needed: models of text alone are served"},
    {"--enable-prompt-embeds", "has no counterpart: prompts are texts or token ids"},
    {"--limit-mm-per-prompt", kNoMedia},
    {"--mm-processor-kwargs", kNoMedia},
    {"--allowed-local-media-path", kNoMedia},
    {"--allowed-media-domains", kNoMedia},
    {"--media-io-kwargs", kNoMedia},
    {"--mm-processor-cache-gb", kNoMedia},
    {"--mm-encoder-tp-mode", kNoMedia},
    {"--data-parallel-size,-dp", kOneEngine},
    {"--data-parallel-size-local,-dpl", kOneEngine},
    {"--data-parallel-address,-dpa", kOneEngine},
    {"--data-parallel-rank,-dpn", kOneEngine},
    {"--data-parallel-backend,-dpb", kOneEngine},
    {"--data-parallel-rpc-port,-dpp", kOneEngine},
    {"--data-parallel-hybrid-lb,-dph", kOneEngine},
    {"--api-server-count,-asc", kOneProcess},
    {"--headless", kOneProcess},
    {"--enable-expert-parallel", kOneDevice},
    {"--enable-eplb", kOneDevice},
    {"--all2all-backend", kOneDevice},
    {"--decode-context-parallel-size,-dcp", kOneDevice},
    {"--nnodes", kOtherHost},
    {"--node-rank", kOtherHost},
    {"--master-addr", kOtherHost},
    {"--master-port", kOtherHost},
    {"--worker-cls", kNoCode},
    {"--worker-extension-cls", kNoCode},
    {"--scheduler-cls", "has no counterpart: --scheduling-policy fcfs, priority or fair says who goes first"},
    {"--logits-processors", "has no counterpart: requests bring penalties, logit_bias and structured_outputs"},
    {"--distributed-executor-backend",
     "has no counterpart: a model runs on one device; --worker-processes runs it in a process of its own"},
    {"--worker-use-ray",
     "has no counterpart: a model runs on one device; --worker-processes runs it in a process of its own"},
    {"--disable-custom-all-reduce", "is not needed: a model runs on one device"},
    {"--max-parallel-loading-workers", "is not needed: a model runs on one device"},
    {"--cpu-offload-gb", "has no counterpart: weights lie on one device; --quantize int8 or int4 makes them smaller"},
    {"--calculate-kv-scales", "is not needed: int8 has a scale for each token and head, fp8_e4m3 none"},
    {"--prefix-caching-hash-algo", "is not needed: blocks are found by keyed hashes"},
    {"--max-long-partial-prefills", "is --max-num-partial-prefills here: only long prompts are counted"},
    {"--attention-backend", "is not needed: kernels follow from the device; --cpu-isa is a CPU's instruction set"},
    {"--moe-backend", "is not needed: kernels follow from the model and the device"},
    {"--disable-cascade-attn", "is not needed: there is no such attention"},
    {"--disable-hybrid-kv-cache-manager", "is not needed: all layers share one kind of KV blocks"},
    {"--kv-offloading-size", "is --swap-space here, for requests that are interrupted"},
    {"--kv-offloading-backend",
     "has no counterpart: --swap-space bounds the host memory of requests that are interrupted, --swap-dir puts it on "
     "a "
     "disk"},
    {"--kv-events-config", "has no counterpart: GET /metrics tells of the KV cache (docs/metrics.md)"},
    {"--num-scheduler-steps", "has no counterpart: --pipeline-depth 2 plans a step while the one before it runs"},
    {"--disable-async-output-proc", "has no counterpart: outputs are always processed beside the next step"},
    {"--use-v2-block-manager", "is not needed: there is one block manager"},
    {"--enable-sleep-mode", "has no counterpart: end the server to free its memory"},
    {"--kv-transfer-config", "has no counterpart: the KV cache stays in its server"},
    {"--compilation-config,-O,-O0,-O1,-O2,-O3,-cc", kGraphs},
    {"--cudagraph-capture-sizes", kGraphs},
    {"--max-seq-len-to-capture", kGraphs},
    {"--stream-interval", "has no counterpart: tokens go out as they come, together where a client reads slowly"},
    {"--enable-server-load-tracking", "is not needed: GET /load tells always"},
    {"--uvicorn-log-level", kLogs},
    {"--disable-uvicorn-access-log", kLogs},
    {"--disable-log-stats", "is --log-stats-interval 0 here"},
    {"--disable-log-requests,--no-enable-log-requests", "is not needed: requests are not logged by default"},
    {"--enable-log-requests", "is --log-prompts here, with --access-log FILE for the rest"},
    {"--enable-log-outputs", "has no counterpart: no log has outputs; --journal FILE records them"},
    {"--max-log-len", kLogs},
    {"--log-config-file", kLogs},
    {"--collect-detailed-traces", "has no counterpart: --trace FILE writes a trace of every step"},
    {"--allow-credentials", kCorsFixed},
    {"--allowed-methods", kCorsFixed},
    {"--allowed-headers", kCorsFixed},
    {"--ssl-ca-certs",
     "has no counterpart: clients show no certificates; a proxy can ask for them (docs/deploying.md)"},
    {"--ssl-cert-reqs",
     "has no counterpart: clients show no certificates; a proxy can ask for them (docs/deploying.md)"},
    {"--ssl-ciphers",
     "has no counterpart: OpenSSL's own, from TLS 1.2 on; a proxy can have others (docs/deploying.md)"},
    {"--enable-ssl-refresh", "has no counterpart: start the server anew when its certificate changes"},
    {"--root-path", "has no counterpart: let the proxy take the prefix off (docs/deploying.md)"},
    {"--middleware", "has no counterpart: a proxy in front can change requests (docs/deploying.md)"},
    {"--uds", "has no counterpart: --http HOST:PORT, on 127.0.0.1 for this machine alone"},
    {"--enable-request-id-headers",
     "is not needed: answers carry x-request-id, that of the request where it brings one"},
    {"--enable-prompt-tokens-details", "is not needed: usage tells cached_tokens"},
    {"--enable-force-include-usage", "has no counterpart: streams tell usage with stream_options.include_usage"},
    {"--return-tokens-as-token-ids", "has no counterpart: logprobs carry the bytes of each token"},
    {"--disable-frontend-multiprocessing", kOneProcess},
    {"--disable-fastapi-docs", "is not needed: there are no such pages"},
    {"--numa-bind", "is --cpu-affinity numa here"},
    {"--disable-access-log-for-endpoints",
     "has no counterpart: --access-log FILE writes a line for each request, with its route to choose by"},
    {"--show-hidden-metrics-for-version", "is not needed: no metric is hidden (docs/metrics.md)"},
    {"--additional-config", "has no counterpart: every setting is a flag"},
};

constexpr RefusedFlag kRefusedOfLlamaServer[] = {
    {"-m", "is --model here"},
    {"-mu,--model-url,-hf,-hfr,--hf-repo,--hf-file", kNoHub},
    {"-a,--alias", "is --served-model-name here"},
    {"-c,--ctx-size", "is --max-model-len here, which is for each request; --kv-cache-memory bounds all together"},
    {"-t", "is --threads here"},
    {"-tb,--threads-batch", "is --threads here, for prompts and tokens alike"},
    {"-np,--parallel", "is --max-num-seqs here; the KV cache is shared, not divided"},
    {"-ngl,--gpu-layers,--n-gpu-layers", "is --device cuda here; all layers run there"},
    {"-sm,--split-mode,-ts,--tensor-split,-mg,--main-gpu", "is --device cuda:N here: a model runs on one GPU"},
    {"-b,--batch-size", "is --max-num-batched-tokens here"},
    {"-ub,--ubatch-size", "is --max-num-batched-tokens here; --max-chunk-ms bounds what prompts take of a step"},
    {"-fa,--flash-attn", "is not needed: attention is always computed so"},
    {"-cb,--cont-batching", "is not needed: batching is always continuous"},
    {"-ctk,--cache-type-k,-ctv,--cache-type-v", "is --kv-cache-dtype here, for keys and values"},
    {"--mlock", "is --weight-memory copied here: weights in memory that is not a file's"},
    {"--no-mmap", "is --weight-memory copied here"},
    {"--numa", "is --cpu-affinity numa here"},
    {"--jinja,--no-jinja", "is not needed: the chat template is always rendered"},
    {"--chat-template-file", "is --chat-template here"},
    {"--reasoning-format", kDialect},
    {"--ssl-key-file", "is --tls-key here"},
    {"--ssl-cert-file", "is --tls-cert here"},
    {"-to,--timeout", "is --http-send-timeout-ms here, and its neighbours"},
    {"-n,--predict,--n-predict", "has no counterpart: requests bring max_tokens"},
    {"--temp,--top-k,--top-p,--min-p,--repeat-penalty",
     "has no counterpart: requests bring it, and the model's generation_config.json has defaults"},
    {"--cache-reuse,--slot-save-path,--slots,--no-slots", "is not needed: equal beginnings of prompts share KV blocks"},
    {"--lora,--lora-scaled", kNoLora},
    {"--models-dir,--models-preset", "is --models here: a file that names the models (docs/several-models.md)"},
    {"--models-max", "is --max-loaded-models here"},
    {"--mmproj", kNoMedia},
    {"-md,--model-draft,--draft-max", kNoSpeculation},
    {"-v,--verbose,--log-disable", kLogs},
    {"--no-webui", "is called --no-page here"},
    {"--webui", "is not needed: the page at / is served unless --no-page is given"},
    {"--path", "has no counterpart: the page at / is part of the program"},
    {"--embedding,--embeddings,--reranking", "has no counterpart: texts are generated, not embedded"},
};

}  // namespace

std::span<const std::string_view> same_as_vllm() {
  return kSame;
}

std::span<const TakenFlag> taken_of_vllm() {
  return kTaken;
}

std::span<const RefusedFlag> refused_of_vllm() {
  return kRefusedOfVllm;
}

std::span<const RefusedValue> refused_values_of_vllm() {
  return kRefusedValuesOfVllm;
}

std::span<const RefusedFlag> refused_of_llama_server() {
  return kRefusedOfLlamaServer;
}

}  // namespace pagoda::apps
