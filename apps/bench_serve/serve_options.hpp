#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/bench_serve/load_generator.hpp"
#include "apps/bench_serve/report.hpp"

namespace CLI {
class App;
}

namespace pagoda::bench_serve {

/// The flags of `pagoda bench serve`, as given.
struct ServeOptions {
  explicit ServeOptions(CLI::App& app);

  std::string base_url = "http://127.0.0.1:8000";
  EndpointType endpoint_type = EndpointType::completions;
  std::string endpoint;
  std::string model;
  std::string api_key;
  std::vector<std::string> headers;
  bool insecure = false;
  double timeout_s = 600;

  std::string dataset_name = "random";
  std::string dataset_path;
  bool shuffle = true;
  std::int64_t input_len = 256;
  std::int64_t output_len = 64;
  std::int64_t own_output_len = 0;  ///< number for all answers, if has_output_len
  bool has_output_len = false;
  std::string mix;
  double range_ratio = 0;
  std::int64_t prefix_len = 0;
  std::int64_t vocab_size = 0;

  std::int64_t num_prompts = 100;
  bool has_num_prompts = false;
  double duration_s = 0;
  std::string request_rate = "inf";
  std::string burstiness = "1";
  std::int64_t max_concurrency = 0;
  std::int64_t num_warmups = 0;
  double slow_fraction = 0;
  double slow_bytes_per_s = 100;
  double stalled_fraction = 0;
  double abort_fraction = 0;
  std::int64_t seed = 0;

  double temperature = 0;
  bool ignore_eos = false;
  std::string extra_body;

  std::string goodput;
  std::string percentile_metrics = "ttft,tpot,itl,e2el";
  std::string metric_percentiles = "50,90,95,99";
  bool save_detailed = false;
  std::string output;
  std::string plot;
  bool json = false;
};

/// The parsed flags: everything that a run needs.
struct Session {
  BaseUrl url;
  RequestForm form;  ///< its model is empty if the server is asked for it
  std::unique_ptr<Workload> workload;
  std::vector<LoadPlan> plans;  ///< one for each rate
  Slo slo;
  ReportOptions report;
};

/// Parses the flags. Errors: bad_config and io_failed, with the flag's key as param.
Result<Session> read_options(const ServeOptions& options);

}  // namespace pagoda::bench_serve
