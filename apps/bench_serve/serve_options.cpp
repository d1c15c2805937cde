#include "apps/bench_serve/serve_options.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "apps/flag_values.hpp"
#include "apps/text_file.hpp"

namespace pagoda::bench_serve {
namespace {

using apps::add_number;

constexpr std::int64_t kMaxTokens = 1 << 24;
constexpr std::int64_t kMaxRequests = 1 << 30;
constexpr double kMaxSeconds = 1e7;

void add_texts(CLI::App& app, const char* flag, std::vector<std::string>& texts, const char* help) {
  const auto set = [&texts](const CLI::results_t& given) {
    texts = given;
    return true;
  };
  app.add_option(flag, set, help)->type_name("TEXT")->take_all();
}

void add_server_flags(CLI::App& app, ServeOptions& options) {
  app.add_option("--base-url", options.base_url, "Where the server is: http://HOST:PORT or https://HOST/PATH")
      ->capture_default_str();
  constexpr EndpointType kTypes[] = {EndpointType::completions, EndpointType::chat, EndpointType::completions,
                                     EndpointType::chat};
  apps::add_words(
      app, "--endpoint-type", {"completions", "chat", "openai", "openai-chat"},
      [&options, kTypes](std::size_t place) { options.endpoint_type = kTypes[place]; },
      "API to call; openai and openai-chat are vLLM's names of the same")
      ->default_str("completions");
  app.add_option("--endpoint", options.endpoint, "Route to call (default: /v1/completions or /v1/chat/completions)");
  app.add_option("--model", options.model, "Name of the model (default: the first of /v1/models)");
  app.add_option("--api-key", options.api_key, "Key that is sent as Authorization: Bearer");
  add_texts(app, "--header", options.headers, "NAME=VALUE of a header of every request; several times");
  app.add_flag("--insecure", options.insecure, "Take any certificate of a server with HTTPS");
  add_number(app, "--timeout", options.timeout_s, "Seconds that one request may take", 0.001, kMaxSeconds);
}

void add_workload_flags(CLI::App& app, ServeOptions& options) {
  apps::add_choice(app, "--dataset-name", options.dataset_name, {"random", "sharegpt", "custom"},
                   "random: drawn by --seed; sharegpt, custom: those of --dataset-path");
  app.add_option("--dataset-path", options.dataset_path,
                 "sharegpt: JSON of conversations; custom: JSON lines with \"prompt\" and \"output_tokens\"");
  app.add_flag_callback(
      "--disable-shuffle", [&options] { options.shuffle = false; }, "Prompts in the order of the file");
  add_number(app, "--random-input-len", options.input_len, "Words of a prompt, or tokens with --random-vocab-size",
             std::int64_t{1}, kMaxTokens);
  add_number(app, "--random-output-len", options.output_len, "Most tokens of an answer", std::int64_t{1}, kMaxTokens);
  app.add_option("--random-mix", options.mix,
                 "Sizes that are mixed, INPUT_LEN:OUTPUT_LEN:WEIGHT with commas between, instead of these two");
  add_number(app, "--random-range-ratio", options.range_ratio,
             "Lengths vary evenly by this share of themselves, up and down", 0.0, 0.999);
  add_number(app, "--random-prefix-len", options.prefix_len, "Words or tokens before those, the same in all prompts",
             std::int64_t{0}, kMaxTokens);
  add_number(app, "--random-vocab-size", options.vocab_size,
             "Prompts are lists of token ids below this; 0: texts of random words", std::int64_t{0}, kMaxTokens);
  const auto set_output_len = [&options](const CLI::results_t& given) {
    options.own_output_len = apps::read_number("--output-len", given.back(), std::int64_t{1}, kMaxTokens);
    options.has_output_len = true;
    return true;
  };
  app.add_option("--output-len", set_output_len,
                 "Most tokens of every answer (default: --random-output-len, or what the dataset says)")
      ->type_name("INT");
}

void add_load_flags(CLI::App& app, ServeOptions& options) {
  const auto set_num_prompts = [&options](const CLI::results_t& given) {
    options.num_prompts = apps::read_number("--num-prompts", given.back(), std::int64_t{1}, kMaxRequests);
    options.has_num_prompts = true;
    return true;
  };
  app.add_option("--num-prompts", set_num_prompts, "Requests at each rate")
      ->type_name("INT")
      ->default_str(std::to_string(options.num_prompts));
  add_number(app, "--duration", options.duration_s, "Seconds in which requests come, instead of --num-prompts", 0.0,
             kMaxSeconds);
  app.add_option("--request-rate", options.request_rate,
                 "Requests a second; several with commas between: a run for each; inf: as soon as --max-concurrency "
                 "allows")
      ->capture_default_str();
  app.add_option("--burstiness", options.burstiness,
                 "1: arrivals are a Poisson process; less: in bursts; more: more even; inf: at a fixed rate")
      ->capture_default_str();
  add_number(app, "--max-concurrency", options.max_concurrency, "Most requests at a time; 0: no limit", std::int64_t{0},
             kMaxRequests);
  add_number(app, "--num-warmups", options.num_warmups, "Requests before that, which do not count", std::int64_t{0},
             kMaxRequests);
  add_number(app, "--slow-fraction", options.slow_fraction, "Share of the requests whose clients read slowly", 0.0,
             1.0);
  add_number(app, "--slow-bytes-per-s", options.slow_bytes_per_s, "How fast those read", 1.0, 1e9);
  add_number(app, "--stalled-fraction", options.stalled_fraction, "Share of the requests whose clients never read", 0.0,
             1.0);
  add_number(app, "--abort-fraction", options.abort_fraction,
             "Share of the requests whose clients go before the answer is whole", 0.0, 1.0);
  add_number(app, "--seed", options.seed, "Of prompts, arrivals and clients", std::int64_t{0});
}

void add_request_flags(CLI::App& app, ServeOptions& options) {
  add_number(app, "--temperature", options.temperature, "Sampling temperature", 0.0, 100.0);
  app.add_flag("--ignore-eos", options.ignore_eos,
               "Send ignore_eos, so that answers have their full length (Pagoda, vLLM and llama-server know it)");
  app.add_option("--extra-body", options.extra_body, "JSON object of more fields of every request");
}

void add_report_flags(CLI::App& app, ServeOptions& options) {
  const auto set_goodput = [&options](const CLI::results_t& given) {
    options.goodput.clear();
    for (const auto& slo : given) options.goodput += (options.goodput.empty() ? "" : ",") + slo;
    return true;
  };
  app.add_option("--goodput", set_goodput,
                 "Milliseconds that good requests keep: ttft:MS tpot:MS e2el:MS; the goodput is those a second")
      ->type_name("TEXT")
      ->expected(1, 3);
  app.add_option("--percentile-metrics", options.percentile_metrics, "Latencies to tell of")->capture_default_str();
  app.add_option("--metric-percentiles", options.metric_percentiles, "Percentiles to tell of them")
      ->capture_default_str();
  app.add_flag("--save-detailed", options.save_detailed, "Lists of every request in the JSON");
  app.add_option("--output", options.output, "File for the result as JSON");
  app.add_option("--plot", options.plot,
                 "SVG file: how latencies are distributed; of several rates goodput and latencies against the rate");
  app.add_flag("--json", options.json, "Print the result as JSON instead of tables");
}

auto refuse_option(const std::string& message, const char* key) {
  return fail(ErrorCode::bad_config, message, key);
}

/// Parses a number above 0, or inf.
Result<double> positive_or_inf(const std::string& text, const char* key) {
  double value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() || !(value > 0)) {
    return refuse_option(std::string(key) + " must be a number above 0, or inf, not \"" + text + "\"", key);
  }
  return value;
}

std::vector<std::string> between_commas(const std::string& text) {
  std::vector<std::string> pieces(1);
  for (const char c : text) {
    if (c == ',') {
      pieces.emplace_back();
    } else {
      pieces.back() += c;
    }
  }
  return pieces;
}

Result<std::string> header_lines(const ServeOptions& options) {
  std::string lines;
  if (!options.api_key.empty()) lines = "Authorization: Bearer " + options.api_key + "\r\n";
  for (const auto& header : options.headers) {
    const auto sign = header.find('=');
    if (sign == std::string::npos || sign == 0) {
      return refuse_option("header must be NAME=VALUE, not \"" + header + "\"", "header");
    }
    lines += header.substr(0, sign) + ": " + header.substr(sign + 1) + "\r\n";
  }
  const auto breaks = static_cast<std::size_t>(std::ranges::count(lines, '\n'));
  if (breaks != options.headers.size() + (options.api_key.empty() ? 0 : 1)) {
    return refuse_option("header and api_key must not contain line breaks", "header");
  }
  return lines;
}

Result<RequestForm> read_form(const ServeOptions& options) {
  RequestForm form{
      .type = options.endpoint_type, .route = options.endpoint, .model = options.model, .headers = {}, .fields = {}};
  const bool is_chat = form.type == EndpointType::chat;
  if (form.route.empty()) form.route = is_chat ? "/v1/chat/completions" : "/v1/completions";
  const bool is_path = form.route.starts_with('/') && std::ranges::all_of(form.route, [](char c) { return c > ' '; });
  if (!is_path) return refuse_option("endpoint must be a path, not \"" + form.route + "\"", "endpoint");
  auto headers = header_lines(options);
  if (!headers) return fail(std::move(headers.error()));
  form.headers = *std::move(headers);
  form.fields["temperature"] = options.temperature;
  form.fields["stream"] = true;
  form.fields["stream_options"] = {{"include_usage", true}};
  if (options.ignore_eos) form.fields["ignore_eos"] = true;
  if (options.extra_body.empty()) return form;
  const auto extra = nlohmann::ordered_json::parse(options.extra_body, nullptr, false);
  if (!extra.is_object()) return refuse_option("extra_body must be a JSON object", "extra_body");
  form.fields.update(extra);
  return form;
}

Result<std::unique_ptr<Workload>> read_random(const ServeOptions& options, std::uint64_t seed) {
  if (!options.dataset_path.empty()) {
    return refuse_option("dataset_path needs dataset_name sharegpt or custom", "dataset_path");
  }
  if (options.vocab_size > 0 && options.endpoint_type == EndpointType::chat) {
    return refuse_option("random_vocab_size is for completions: a chat takes texts", "random_vocab_size");
  }
  RandomShape shape{.mix = {{options.input_len, options.output_len}},
                    .range_ratio = options.range_ratio,
                    .prefix_len = options.prefix_len,
                    .vocab_size = options.vocab_size};
  if (!options.mix.empty()) {
    auto mix = parse_mix(options.mix);
    if (!mix) return fail(std::move(mix.error()));
    shape.mix = *std::move(mix);
  }
  if (options.has_output_len) {
    for (auto& part : shape.mix) part.output_len = options.own_output_len;
  }
  return make_random_workload(shape, seed);
}

Result<std::unique_ptr<Workload>> read_workload(const ServeOptions& options) {
  const auto seed = static_cast<std::uint64_t>(options.seed);
  if (options.dataset_name == "random") return read_random(options, seed);
  if (options.dataset_path.empty()) {
    return refuse_option("dataset_name " + options.dataset_name + " needs dataset_path", "dataset_path");
  }
  const auto text = apps::read_text_file(options.dataset_path, "dataset_path");
  if (!text) return fail(text.error());
  const DatasetOptions dataset{.shuffle = options.shuffle,
                               .output_len = options.has_output_len ? options.own_output_len : 0};
  return options.dataset_name == "custom" ? read_custom_dataset(*text, dataset, seed)
                                          : read_sharegpt_dataset(*text, dataset, seed);
}

/// Returns the plan without its rate.
Result<LoadPlan> read_plan(const ServeOptions& options) {
  const auto burstiness = positive_or_inf(options.burstiness, "burstiness");
  if (!burstiness) return fail(burstiness.error());
  if (options.duration_s > 0 && options.has_num_prompts) {
    return refuse_option("duration and num_prompts exclude each other", "duration");
  }
  if (options.slow_fraction + options.stalled_fraction + options.abort_fraction > 1) {
    return refuse_option("slow_fraction, stalled_fraction and abort_fraction are at most 1 together", "slow_fraction");
  }
  return LoadPlan{.burstiness = *burstiness,
                  .max_concurrency = options.max_concurrency,
                  .num_prompts = options.duration_s > 0 ? 0 : options.num_prompts,
                  .duration_s = options.duration_s,
                  .slow_fraction = options.slow_fraction,
                  .slow_bytes_per_s = options.slow_bytes_per_s,
                  .stalled_fraction = options.stalled_fraction,
                  .abort_fraction = options.abort_fraction,
                  .seed = static_cast<std::uint64_t>(options.seed)};
}

Result<std::vector<LoadPlan>> read_plans(const ServeOptions& options) {
  const auto plan = read_plan(options);
  if (!plan) return fail(plan.error());
  std::vector<LoadPlan> plans;
  for (const auto& text : between_commas(options.request_rate)) {
    const auto rate = positive_or_inf(text, "request_rate");
    if (!rate) return fail(rate.error());
    plans.push_back(*plan);
    plans.back().request_rate = *rate;
    if (plan->duration_s > 0 && std::isinf(*rate) && plan->max_concurrency == 0) {
      return refuse_option(
          "duration with request_rate inf needs max_concurrency: otherwise requests are sent without limit",
          "max_concurrency");
    }
    if (std::isinf(*rate) && plan->max_concurrency > 0 && plan->stalled_fraction > 0) {
      return refuse_option(
          "stalled_fraction needs a request_rate or no max_concurrency: clients that never read keep "
          "their places",
          "stalled_fraction");
    }
  }
  return plans;
}

}  // namespace

ServeOptions::ServeOptions(CLI::App& app) {
  add_server_flags(app, *this);
  add_workload_flags(app, *this);
  add_load_flags(app, *this);
  add_request_flags(app, *this);
  add_report_flags(app, *this);
}

Result<Session> read_options(const ServeOptions& options) {
  Session session;
  auto url = BaseUrl::parse(options.base_url);
  if (!url) return fail(std::move(url.error()));
  session.url = *std::move(url);
  auto form = read_form(options);
  if (!form) return fail(std::move(form.error()));
  session.form = *std::move(form);
  auto plans = read_plans(options);
  if (!plans) return fail(std::move(plans.error()));
  session.plans = *std::move(plans);
  if (!options.goodput.empty()) {
    for (const auto& slo : between_commas(options.goodput)) {
      if (auto status = session.slo.add(slo); !status) return fail(std::move(status.error()));
    }
  }
  auto metrics = parse_metrics(options.percentile_metrics);
  if (!metrics) return fail(std::move(metrics.error()));
  auto percentiles = parse_percentiles(options.metric_percentiles);
  if (!percentiles) return fail(std::move(percentiles.error()));
  session.report = {*std::move(metrics), *std::move(percentiles), options.save_detailed};
  auto workload = read_workload(options);
  if (!workload) return fail(std::move(workload.error()));
  session.workload = *std::move(workload);
  return session;
}

}  // namespace pagoda::bench_serve
