#include "io/serving/access_log.hpp"

#include <atomic>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/chrono.h>
#include <spdlog/async.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "io/metrics/prometheus_text.hpp"
#include "io/wire/json_writer.hpp"

namespace pagoda::serving {
namespace {

constexpr std::size_t kMaxWaitingLines = 8192;

std::string utc(std::chrono::system_clock::time_point time) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(static_cast<std::time_t>(ms / 1000)), ms % 1000);
}

/// Returns milliseconds with three decimal places.
std::string milliseconds(double ms) {
  return fmt::format("{:.3f}", ms);
}

void write_ms(wire::JsonWriter& json, std::string_view name, const std::optional<double>& ms) {
  json.key(name);
  ms ? json.raw(milliseconds(*ms)) : json.null();
}

void write_generation(wire::JsonWriter& json, const GenerationRecord& generation) {
  json.field("model", generation.model);
  json.field("prompt_tokens", generation.prompt_tokens);
  json.field("cached_tokens", generation.cached_tokens);
  json.field("completion_tokens", generation.completion_tokens);
  write_ms(json, "queue_ms", generation.queue_ms);
  write_ms(json, "ttft_ms", generation.ttft_ms);
  json.key("finish_reason").value_or_null(generation.finish_reason);
}

}  // namespace

class AccessLog::State {
 public:
  explicit State(const spdlog::sink_ptr& sink)
      : pool(std::make_shared<spdlog::details::thread_pool>(kMaxWaitingLines, 1)),
        logger(std::make_shared<spdlog::async_logger>("access", sink, pool,
                                                      spdlog::async_overflow_policy::overrun_oldest)) {
    logger->set_error_handler([this](const std::string& why) {
      if (not_written.fetch_add(1, std::memory_order_relaxed) == 0) {
        spdlog::error("the access log is not written, and its lines are dropped: {}", why);
      }
    });
    logger->set_pattern("%v");
    logger->flush_on(spdlog::level::info);
  }
  ~State() { pool.reset(); }  // the thread ends after the last line; then the file is closed

  std::atomic<std::size_t> not_written = 0;  ///< number of lines whose write failed
  std::shared_ptr<spdlog::details::thread_pool> pool;
  std::shared_ptr<spdlog::async_logger> logger;
};

AccessLog::AccessLog(std::unique_ptr<State> state) : state_(std::move(state)) {}
AccessLog::~AccessLog() = default;

Result<std::shared_ptr<AccessLog>> AccessLog::open(const std::string& path) {
  // The sink would create a missing folder, even if the path is mistyped.
  const auto folder = std::filesystem::path(path).parent_path();
  if (std::error_code error; !folder.empty() && !std::filesystem::is_directory(folder, error)) {
    return fail(ErrorCode::bad_config, "access_log: " + path + ": there is no folder " + folder.string(), "access_log");
  }
  spdlog::sink_ptr sink;
  try {
    if (path == "-") {
      sink = std::make_shared<spdlog::sinks::stdout_sink_mt>();
    } else {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
    }
  } catch (const spdlog::spdlog_ex& error) {
    return fail(ErrorCode::bad_config, "access_log: " + std::string(error.what()), "access_log");
  }
  return std::shared_ptr<AccessLog>(new AccessLog(std::make_unique<State>(sink)));
}

void AccessLog::on_end(const RequestRecord& record) {
  state_->logger->log(spdlog::level::info, spdlog::string_view_t(line(record)));
}

void AccessLog::write(metrics::PrometheusText& text) const {
  text.counter("pagoda:access_log_dropped_total", "Number of lines of the access log that were dropped.");
  text.sample(state_->pool->overrun_counter() + state_->not_written.load(std::memory_order_relaxed));
}

std::string AccessLog::line(const RequestRecord& record) {
  std::string out;
  wire::JsonWriter json(out);
  json.open_object();
  json.field("time", utc(record.time));
  json.field("request_id", record.request_id);
  json.field("client", record.client);
  if (!record.tenant.empty()) json.field("tenant", record.tenant);
  json.field("api", record.api);
  if (!record.method.empty()) json.field("method", record.method);
  json.key("route").value_or_null(record.route);
  if (record.status != 0) json.field("status", record.status);
  if (!record.error.empty()) json.field("error", record.error);
  if (record.is_cut) json.field("cut", true);
  if (record.generation) write_generation(json, *record.generation);
  json.key("total_ms").raw(milliseconds(record.total_ms));
  if (record.trace) json.field("trace_id", record.trace->trace_id);
  json.close_object();
  return out;
}

}  // namespace pagoda::serving
