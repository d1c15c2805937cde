#include "apps/foreign_flags.hpp"

namespace pagoda::apps {
namespace {

constexpr auto kNoArgument = Values::none;
constexpr auto kOneArgument = Values::one;
constexpr auto kNotedValue = ValueRule::Fate::noted;
constexpr auto kRefusedValue = ValueRule::Fate::refused;

constexpr std::string_view kSameAsVllm[] = {"--model",
                                            "--served-model-name",
                                            "--load-format",
                                            "--dtype",
                                            "--seed",
                                            "--max-model-len",
                                            "--max-logprobs",
                                            "--stream-interval",
                                            "--generation-config",
                                            "--chat-template",
                                            "--enforce-eager",
                                            "--tensor-parallel-size",
                                            "--pipeline-parallel-size",
                                            "--data-parallel-size",
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
                                            "--enable-lora",
                                            "--max-loras",
                                            "--max-cpu-loras",
                                            "--max-lora-rank",
                                            "--lora-dtype",
                                            "--lora-modules",
                                            "--enable-prompt-adapter",
                                            "--max-prompt-adapters",
                                            "--max-prompt-adapter-token",
                                            "--prompt-adapters",
                                            "--device",
                                            "--api-key",
                                            "--tool-call-parser",
                                            "--reasoning-parser",
                                            "--otlp-traces-endpoint",
                                            "--kv-events-config",
                                            "--speculative-config"};

constexpr TakenFlag kTakenOfVllm[] = {{"--host", "--http"},
                                      {"--port", "--http"},
                                      {"--ssl-certfile", "--tls-cert"},
                                      {"--ssl-keyfile", "--tls-key"},
                                      {"--allowed-origins", "--cors-origin"},
                                      {"-tp", "--tensor-parallel-size"},
                                      {"-pp", "--pipeline-parallel-size"},
                                      {"-dp", "--data-parallel-size"},
                                      {"-sc", "--speculative-config"},
                                      {"--shutdown-timeout", "--drain-timeout"},
                                      {"--num-gpu-blocks-override", "--num-device-blocks"},
                                      {"--kv-cache-memory-bytes", "--kv-cache-memory"},
                                      {"--async-scheduling", "--pipeline-depth"},
                                      {"--no-async-scheduling", "--pipeline-depth"},
                                      {"--disable-log-stats", "--log-stats-interval"},
                                      {"--numa-bind", "--cpu-affinity"}};

constexpr const char* kDialect =
    "how the model writes tool calls and thinking is read from its chat template (pagoda inspect --dialect shows it)";
constexpr const char* kOwnDialect =
    "has no counterpart: no code is loaded at start; --answer-dialect FILE describes how the model writes calls and "
    "thinking";
constexpr const char* kOneEngine = "has no counterpart: run a server for each copy, behind a proxy (docs/deploying.md)";
constexpr const char* kTextOnly = "models of text alone are served";
constexpr const char* kNoDownload = "nothing is downloaded";
constexpr const char* kLocalModel =
    "has no counterpart: nothing is downloaded; --model names a local folder or GGUF file";
constexpr const char* kOwnTokenizer = "has no counterpart: the tokenizer is that of the model's folder or file";
constexpr const char* kTokenizerOfFile = "the tokenizer is that of the model's folder or file";
constexpr const char* kConfigFile = "has no counterpart: change the model's config.json instead";
constexpr const char* kFormSeen = "the form of the files is seen from the files";
constexpr const char* kGrammar = "one grammar engine holds structured outputs to every form";
constexpr const char* kGraphs = "nothing is compiled at start; --enforce-eager turns replayed steps off";
constexpr const char* kApiThreads = "the HTTP APIs run on threads of the server's process";
constexpr const char* kCors = "--cors-origin allows what the APIs need";
constexpr const char* kLogs = "--log-level sets what is logged";
constexpr const char* kOneDevice = "a model runs on one host";
constexpr const char* kOtherHost =
    "has no counterpart: workers on other hosts join with pagoda worker --join (docs/scaling.md)";
constexpr const char* kNoCode = "has no counterpart: no code is loaded at start (docs/embedding.md)";
constexpr const char* kGenerates = "has no counterpart: texts are generated, not embedded, classified or scored";
constexpr const char* kNoClientCerts =
    "has no counterpart: clients show no certificates; a proxy can ask for them (docs/deploying.md)";
constexpr const char* kOneDeviceEach =
    "has no counterpart: a model runs on one host; run a server for each, behind a proxy (docs/deploying.md)";
constexpr const char* kHowFilesAreRead = "--weight-memory mapped or copied sets how files are read";
constexpr const char* kNoFit =
    "has no counterpart: 0 takes the model's own, a number less; pagoda inspect shows how many tokens memory holds";
constexpr const char* kPackedFiles = "the files of a quantised model describe how they are packed";

constexpr ValueRule kValueRulesOfVllm[] = {
    {"--load-format", "safetensors,pt,npcache,gguf", kNotedValue, kFormSeen},
    {"--load-format", "fastsafetensors,runai_streamer", kNotedValue, kHowFilesAreRead},
    {"--load-format", "bitsandbytes", kRefusedValue,
     "has no counterpart: --quantize int8 or int4 quantises when loading"},
    {"--load-format", "mistral,sharded_state,runai_streamer_sharded,tensorizer", kRefusedValue,
     "has no counterpart: models are safetensors files in the Hugging Face form, or GGUF files"},
    {"--max-model-len", "auto,-1", kRefusedValue, kNoFit},
    {"--kv-cache-dtype", "fp8_e5m2", kRefusedValue,
     "has no counterpart: fp8_e4m3 takes as much memory, int8 too and is more exact"},
    {"--device", "auto", kRefusedValue, "has no counterpart: the default is cpu; --device cuda selects a GPU"},
    {"--decode-context-parallel-size,-dcp", ">1", kRefusedValue, kOneDeviceEach},
    {"--decode-context-parallel-size,-dcp", "*", kNotedValue, kOneDevice},
    {"--nnodes", "1", kNotedValue, kOneDevice},
    {"--node-rank", "0", kNotedValue, kOneDevice},
    {"--quantization,-q",
     "awq,awq_marlin,gptq,gptq_marlin,compressed-tensors,gguf,marlin,mxfp4,modelopt,modelopt_fp4,None,none",
     kNotedValue, kPackedFiles},
    {"--quantization,-q", "*", kRefusedValue,
     "may change the weights: leave it out for a model whose files are quantised; --quantize int8 or int4 quantises "
     "when loading"},
    {"--tokenizer-mode", "auto,slow,hf,fast", kNotedValue, kTokenizerOfFile},
    {"--tokenizer-mode", "*", kRefusedValue, kOwnTokenizer},
    {"--task", "auto,generate", kNotedValue, "texts are generated"},
    {"--task", "*", kRefusedValue, kGenerates},
    {"--runner", "auto,generate", kNotedValue, "texts are generated"},
    {"--runner", "*", kRefusedValue, kGenerates},
    {"--convert", "auto,none", kNotedValue, "texts are generated"},
    {"--convert", "*", kRefusedValue, kGenerates},
    {"--logprobs-mode", "raw_logprobs", kNotedValue,
     "logprobs are of the distribution before temperature and truncation"},
    {"--logprobs-mode", "*", kRefusedValue,
     "has no counterpart: logprobs are of the distribution before temperature and truncation"},
    {"--response-role", "assistant", kNotedValue, "answers have the role assistant"},
    {"--response-role", "*", kRefusedValue, "has no counterpart: answers have the role assistant"},
    {"--ssl-cert-reqs", "0", kNotedValue, "clients show no certificates"},
};

constexpr NotedFlag kNotedOfVllm[] = {
    {"--trust-remote-code,--no-trust-remote-code", kNoArgument, "no code of a model is run"},
    {"--enable-auto-tool-choice", kNoArgument, "requests with tools may call them, tool_choice auto being the default"},
    {"--enable-reasoning", kNoArgument, kDialect},
    {"--disable-log-requests,--no-enable-log-requests", kNoArgument,
     "requests are not logged unless --log-prompts is given"},
    {"--enable-log-requests", kNoArgument, "--log-prompts logs prompts, --access-log FILE a line for each request"},
    {"--enable-log-outputs", kNoArgument, "no log has outputs; --journal FILE records them"},
    {"--disable-uvicorn-access-log", kNoArgument, "there is no access log unless --access-log FILE is given"},
    {"--disable-access-log-for-endpoints", kOneArgument, "there is no access log unless --access-log FILE is given"},
    {"--uvicorn-log-level,--max-log-len,--log-config-file", kOneArgument, kLogs},
    {"--collect-detailed-traces", kOneArgument, "--trace FILE writes a trace of every step"},
    {"--hf-token,--download-dir,--ignore-patterns,--code-revision", kOneArgument, kNoDownload},
    {"--config-format", kOneArgument, kFormSeen},
    {"--model-impl", kOneArgument, "what a model does follows from its architecture"},
    {"--model-loader-extra-config,--safetensors-load-strategy", kOneArgument, kHowFilesAreRead},
    {"--max-parallel-loading-workers", kOneArgument, kHowFilesAreRead},
    {"--guided-decoding-backend,--structured-outputs-config", kOneArgument, kGrammar},
    {"--chat-template-content-format", kOneArgument, "content is given in the form that the template reads"},
    {"--language-model-only", kNoArgument, kTextOnly},
    {"--limit-mm-per-prompt,--mm-processor-kwargs,--mm-processor-cache-gb,--mm-encoder-tp-mode,--media-io-kwargs,"
     "--allowed-local-media-path,--allowed-media-domains",
     kOneArgument, kTextOnly},
    {"--distributed-executor-backend,--data-parallel-backend,-dpb,--all2all-backend", kOneArgument, kOneDevice},
    {"--worker-use-ray,--disable-custom-all-reduce,--enable-expert-parallel,-ep,--enable-eplb", kNoArgument,
     kOneDevice},
    {"--api-server-count,-asc", kOneArgument, kApiThreads},
    {"--disable-frontend-multiprocessing", kNoArgument, kApiThreads},
    {"--cpu-offload-gb", kOneArgument, "weights lie on one device; --quantize int8 or int4 makes them smaller"},
    {"--calculate-kv-scales", kNoArgument, "int8 has a scale for each token and head, fp8_e4m3 none"},
    {"--prefix-caching-hash-algo", kOneArgument, "blocks are found by keyed hashes"},
    {"--max-long-partial-prefills", kOneArgument, "--max-num-partial-prefills counts long prompts only"},
    {"--attention-backend,--moe-backend", kOneArgument, "kernels follow from the model and the device"},
    {"--disable-cascade-attn", kNoArgument, "there is no such attention"},
    {"--disable-hybrid-kv-cache-manager", kNoArgument, "layers with a window always keep only their window"},
    {"--kv-offloading-size,--kv-offloading-backend", kOneArgument,
     "--swap-space bounds the host memory of requests that are interrupted"},
    {"--num-scheduler-steps", kOneArgument, "--pipeline-depth 2 plans a step while the one before it runs"},
    {"--disable-async-output-proc", kNoArgument, "outputs are always processed beside the next step"},
    {"--use-v2-block-manager", kNoArgument, "there is one block manager"},
    {"--enable-sleep-mode", kNoArgument, "the end of the server frees its memory"},
    {"--compilation-config,-O,-cc", kOneArgument, kGraphs},
    {"-O0,-O1,-O2,-O3", kNoArgument, kGraphs},
    {"--cudagraph-capture-sizes", Values::numbers, kGraphs},
    {"--max-seq-len-to-capture", kOneArgument, kGraphs},
    {"--enable-server-load-tracking", kNoArgument, "GET /load always answers"},
    {"--allow-credentials", kNoArgument, kCors},
    {"--allowed-methods,--allowed-headers", kOneArgument, kCors},
    {"--root-path", kOneArgument, "routes are those of the server; a proxy takes a prefix off (docs/deploying.md)"},
    {"--enable-request-id-headers", kNoArgument, "answers carry x-request-id, that of the request where it brings one"},
    {"--enable-prompt-tokens-details", kNoArgument, "usage has cached_tokens"},
    {"--disable-fastapi-docs", kNoArgument, "there are no such pages"},
    {"--show-hidden-metrics-for-version", kOneArgument, "no metric is hidden (docs/metrics.md)"},
};

constexpr RefusedFlag kRefusedOfVllm[] = {
    {"--tokenizer", kOwnTokenizer},
    {"--tokenizer-revision,--revision", kLocalModel},
    {"--skip-tokenizer-init", "has no counterpart: the tokenizer is always loaded"},
    {"--hf-overrides,--hf-config-path,--rope-scaling,--rope-theta", kConfigFile},
    {"--override-generation-config", "has no counterpart: change the model's generation_config.json"},
    {"--disable-sliding-window", "has no counterpart: lower --max-model-len to the window"},
    {"--tool-parser-plugin,--reasoning-parser-plugin", kOwnDialect},
    {"--exclude-tools-when-tool-choice-none",
     "has no counterpart: with tool_choice none the tools stay in the prompt; leave them out of the request"},
    {"--tool-server", "has no counterpart: a client runs the tools that are called (docs/tools.md)"},
    {"--default-chat-template-kwargs", "has no counterpart: requests bring chat_template_kwargs"},
    {"--fully-sharded-loras", "has no counterpart: a model runs on one host"},
    {"--lora-extra-vocab-size", "has no counterpart: an adapter cannot add tokens"},
    {"--long-lora-scaling-factors", "has no counterpart: positions are those of the model"},
    {"--default-mm-loras", "has no counterpart: models of text alone are served; requests name their adapter"},
    {"--enable-prompt-embeds", "has no counterpart: prompts are texts or token ids"},
    {"--data-parallel-size-local,-dpl", "has no counterpart: all replicas of --data-parallel-size are on this host"},
    {"--data-parallel-address,-dpa,--data-parallel-rank,-dpn,--data-parallel-rpc-port,-dpp,--data-parallel-hybrid-lb,"
     "-dph",
     kOneEngine},
    {"--headless", "has no counterpart: a server has its HTTP APIs; --worker-listen is for workers (docs/scaling.md)"},
    {"--master-addr,--master-port", kOtherHost},
    {"--nnodes,--node-rank", kOtherHost},
    {"--worker-cls,--worker-extension-cls", kNoCode},
    {"--scheduler-cls", "has no counterpart: --scheduling-policy fcfs, priority or fair sets the order of requests"},
    {"--logits-processors", "has no counterpart: requests bring penalties, logit_bias and structured_outputs"},
    {"--kv-transfer-config", "has no counterpart: the KV cache stays in its server"},
    {"--ssl-ca-certs,--ssl-cert-reqs", kNoClientCerts},
    {"--ssl-ciphers",
     "has no counterpart: OpenSSL's own, from TLS 1.2 on; a proxy can have others (docs/deploying.md)"},
    {"--enable-ssl-refresh", "has no counterpart: start the server anew when its certificate changes"},
    {"--middleware", "has no counterpart: a proxy in front can change requests (docs/deploying.md)"},
    {"--uds", "has no counterpart: --http HOST:PORT, on 127.0.0.1 for this machine alone"},
    {"--enable-force-include-usage", "has no counterpart: streams have usage with stream_options.include_usage"},
    {"--return-tokens-as-token-ids", "has no counterpart: logprobs carry the bytes of each token"},
    {"--additional-config", "has no counterpart: every setting is a flag"},
};

}  // namespace

const ForeignServer& vllm() {
  static constexpr ForeignServer kServer{kSameAsVllm, kTakenOfVllm, kValueRulesOfVllm, kNotedOfVllm, kRefusedOfVllm};
  return kServer;
}

}  // namespace pagoda::apps
