#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <nlohmann/json.hpp>

#include "apps/bench_serve/http_connection.hpp"
#include "apps/command.hpp"
#include "apps/flag_values.hpp"

namespace pagoda::apps {
namespace {

using Json = nlohmann::json;

enum class Output : std::uint8_t { text, json };

struct CtlOptions {
  std::string base_url = "http://127.0.0.1:8000";
  std::string key_file;
  double timeout = 10;
  bool verify = true;
  Output output = Output::text;
  std::string request;  ///< id of the request to cancel or to move
  std::string replica;  ///< id of the replica to drain or to start, or to which a request moves
  bool moves_requests = false;
  /// Model of the request to cancel, if the server has several: each model numbers its requests itself.
  std::string model;
};

struct Reply {
  int status = 0;
  Json body;  ///< discarded if it is no JSON
};

/// Collects a whole answer.
class WholeReply final : public bench_serve::ReplySink {
 public:
  void on_sent() override {}
  void on_head(const bench_serve::ReplyHead& head) override { status_ = head.status; }
  void on_body(std::string_view bytes) override { body_ += bytes; }
  void on_end(const std::string& error) override { error_ = error; }

  Result<Reply> take(const bench_serve::BaseUrl& url) const {
    if (!error_.empty()) return fail(ErrorCode::io_failed, "the server at " + url.authority() + ": " + error_);
    return Reply{status_, Json::parse(body_, nullptr, false)};
  }

 private:
  int status_ = 0;
  std::string body_;
  std::string error_;
};

/// Sends requests to a server, one after the other over one connection.
class Client {
 public:
  static Result<std::unique_ptr<Client>> create(const CtlOptions& options) {
    auto url = bench_serve::BaseUrl::parse(options.base_url);
    if (!url) return fail(std::move(url.error()));
    const auto timeout = std::chrono::milliseconds(static_cast<std::int64_t>(options.timeout * 1000));
    auto server = bench_serve::Server::find(*url, options.verify, timeout);
    if (!server) return fail(std::move(server.error()));
    std::unique_ptr<Client> client(new Client(std::move(*server)));
    if (options.key_file.empty()) return client;
    std::ifstream file(options.key_file);
    std::string key;
    if (!file || !std::getline(file, key) || key.empty()) {
      return fail(ErrorCode::bad_config, "cannot read a key from " + options.key_file, "admin_key_file");
    }
    if (key.back() == '\r') key.pop_back();
    client->key_line_ = "Authorization: Bearer " + key + "\r\n";
    return client;
  }

  Result<Reply> ask(std::string_view verb, std::string_view path) {
    std::string request(verb);
    request.append(" ").append(server_.url.path).append(path).append(" HTTP/1.1\r\nHost: ");
    request += server_.url.authority() + "\r\n" + key_line_ + "Content-Length: 0\r\n\r\n";
    WholeReply reply;
    if (connection_ == nullptr) connection_ = bench_serve::make_connection(io_, server_);
    connection_->exchange(std::move(request), {}, reply);
    io_.restart();
    io_.run();
    return reply.take(server_.url);
  }

 private:
  explicit Client(bench_serve::Server server) : server_(std::move(server)) {}

  bench_serve::Server server_;
  std::string key_line_;
  boost::asio::io_context io_;
  std::shared_ptr<bench_serve::HttpConnection> connection_;
};

/// Returns the error for a refused request, with the reason that the server gives.
Error refusal(const Reply& reply) {
  std::string why = "the server answers with status " + std::to_string(reply.status);
  if (reply.body.is_object() && reply.body.contains("error") && reply.body["error"].is_object()) {
    why = reply.body["error"].value("message", why);
  }
  if (reply.status == 401 || reply.status == 403) why += "; give an admin key with --admin-key-file FILE";
  return {ErrorCode::io_failed, why};
}

/// Returns the body of an answer that must be a JSON object.
Result<Json> object(Client& client, std::string_view verb, std::string_view path) {
  auto reply = client.ask(verb, path);
  if (!reply) return fail(std::move(reply.error()));
  if (reply->status != 200) return tl::unexpected(refusal(*reply));
  if (!reply->body.is_object())
    return fail(ErrorCode::io_failed, "the answer to " + std::string(path) + " is not JSON");
  return std::move(reply->body);
}

void print(const Json& value) {
  std::printf("%s\n", value.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

std::int64_t count(const Json& stats, const char* name) {
  const auto found = stats.find(name);
  return found != stats.end() && found->is_number() ? found->get<std::int64_t>() : 0;
}

std::string share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? "-" : std::to_string(100 * part / whole) + " %";
}

/// Returns the processes of a replica, in the order of its ranks.
std::string processes(const Json& pids) {
  std::string ranks;
  for (std::size_t rank = 0; rank < pids.size(); ++rank) {
    ranks += (rank == 0 ? "" : ", ") + std::string("rank ") + std::to_string(rank) + " is process " + pids[rank].dump();
  }
  return ranks.empty() ? "rank 0 in the server's process" : ranks;
}

/// Returns a text for a terminal. A text that clients chose is shown as JSON if it has other than plain characters.
std::string shown_text(const Json& value) {
  if (!value.is_string()) return "-";
  const auto& text = value.get_ref<const std::string&>();
  const bool is_plain = std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
  return is_plain ? text : value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

void print_replicas(const Json& replicas) {
  for (const Json& one : replicas) {
    const auto number = [&](const char* name) { return std::to_string(count(one, name)); };
    const std::string name = "replica " + number("replica");
    const std::string state = shown_text(one.value("state", Json()));
    const std::string health = shown_text(one.value("health", Json()));
    const auto used =
        count(one, "device_blocks_total") - count(one, "device_blocks_free") - count(one, "device_blocks_cached");
    std::string line = state;
    if (one.contains("model")) line += " (" + shown_text(one["model"]) + ")";
    if (state == "up" || state == "draining") {
      line += ": " + number("requests_running") + " running, " + number("requests_waiting") + " waiting, " +
              number("requests_swapped") + " swapped; " + std::to_string(used) + " of " +
              number("device_blocks_total") + " KV blocks used; " + number("worker_restarts_total") +
              " restarts of devices; " + processes(one.value("worker_pids", Json::array()));
    }
    if (health != "ok") line += "; " + health;
    std::printf("%-14s %s\n", name.c_str(), line.c_str());
  }
}

void print_status(const Json& status) {
  const Json& stats = status["stats"];
  const auto line = [](const char* name, const std::string& what) { std::printf("%-14s %s\n", name, what.c_str()); };
  const auto number = [&](const char* name) { return std::to_string(count(stats, name)); };
  line("version", status.value("version", "?"));
  line("health", status.value("health", "?"));
  line("ready", status.value("ready", "?"));
  line("requests", number("requests_running") + " running, " + number("requests_waiting") + " waiting, " +
                       number("requests_swapped") + " swapped; " + number("requests_finished_total") + " finished, " +
                       number("requests_aborted_total") + " aborted, " + number("requests_failed_total") + " failed");
  line("tokens", number("prompt_tokens_total") + " of prompts, " + number("generation_tokens_total") + " generated, " +
                     number("recomputed_tokens_total") + " recomputed");
  const std::int64_t total = count(stats, "device_blocks_total");
  const std::int64_t free = count(stats, "device_blocks_free");
  const std::int64_t cached = count(stats, "device_blocks_cached");
  line("KV blocks", std::to_string(total - free - cached) + " used, " + std::to_string(cached) + " cached, " +
                        std::to_string(free) + " free of " + std::to_string(total));
  line("prefix cache", share(count(stats, "prefix_cache_hits_total"), count(stats, "prefix_cache_queries_total")) +
                           " of the prompt tokens found");
  const Json replicas = stats.value("replicas", Json::array());
  line(replicas.empty() ? "replica 0" : "replicas",
       number("steps_total") + " steps, " + number("worker_restarts_total") + " restarts of devices (" +
           number("worker_deaths_total") + " deaths, " + number("worker_hangs_total") + " hangs of processes)");
  if (replicas.empty()) {
    line("", processes(stats.value("worker_pids", Json::array())));
  } else {
    print_replicas(replicas);
  }
  char uptime[64];
  std::snprintf(uptime, sizeof uptime, "%.0f s", stats.value("uptime_s", 0.0));
  line("uptime", uptime);
}

/// Prints the status. The exit code is 1 when the server cannot compute.
int run_status(const CtlOptions& options) {
  const auto client = Client::create(options);
  if (!client) return exit_with(client.error());
  Json status;
  // With status 503 these routes give the reason in the body.
  for (const char* name : {"health", "ready"}) {
    const auto reply = (*client)->ask("GET", std::string("/") + name);
    if (!reply) return exit_with(reply.error());
    if (reply->status != 200 && reply->status != 503) return exit_with(refusal(*reply));
    status[name] = reply->body.is_object() ? reply->body.value("status", "?") : "?";
  }
  const auto version = object(**client, "GET", "/version");
  if (!version) return exit_with(version.error());
  status["version"] = version->value("version", "?");
  auto stats = object(**client, "GET", "/stats");
  if (!stats) return exit_with(stats.error());
  status["stats"] = std::move(*stats);
  if (options.output == Output::json) {
    print(status);
  } else {
    print_status(status);
  }
  return status["health"] == "ok" ? kExitOk : kExitFailure;
}

/// Encodes a text for a query.
std::string percent_encoded(const std::string& text) {
  std::string out;
  for (const char c : text) {
    char digits[4];
    std::snprintf(digits, sizeof digits, "%%%02X", static_cast<unsigned char>(c));
    out += std::isalnum(static_cast<unsigned char>(c)) != 0 ? std::string(1, c) : std::string(digits);
  }
  return out;
}

void print_requests(const Json& answer) {
  const Json requests = answer.value("requests", Json::array());
  const bool has_models = !requests.empty() && requests.front().contains("model");
  std::printf("%-8s %-10s %8s %8s %8s  %-20s %-20s %s%s\n", "id", "state", "prompt", "output", "age", "tenant",
              "adapter", "request id", has_models ? ", model" : "");
  for (const Json& one : requests) {
    const auto text = [&one](const char* name) { return shown_text(one.value(name, Json())); };
    const auto model = has_models ? ", " + text("model") : std::string();
    std::printf("%-8s %-10s %8lld %8lld %6.1f s  %-20s %-20s %s%s\n", one.value("id", Json()).dump().c_str(),
                text("state").c_str(), static_cast<long long>(count(one, "prompt_tokens")),
                static_cast<long long>(count(one, "generated_tokens")), one.value("age_s", 0.0), text("tenant").c_str(),
                text("adapter").c_str(), text("request_id").c_str(), model.c_str());
  }
}

bool is_number(const std::string& text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

/// Sends one request, and prints the answer with `show` or as JSON.
template <class Show>
int run_one(const CtlOptions& options, std::string_view verb, const std::string& path, Show show) {
  const auto client = Client::create(options);
  if (!client) return exit_with(client.error());
  const auto answer = object(**client, verb, path);
  if (!answer) return exit_with(answer.error());
  if (options.output == Output::json) {
    print(*answer);
  } else {
    show(*answer);
  }
  return kExitOk;
}

}  // namespace

Command add_ctl(CLI::App& pagoda) {
  auto* app = add_subcommand(pagoda, "ctl", "Query or control a running server over its HTTP port");
  app->require_subcommand(1);
  app->fallthrough();
  const auto options = std::make_shared<CtlOptions>();
  app->add_option("--base-url", options->base_url, "Address of the server: http://HOST:PORT or https://HOST/PATH")
      ->capture_default_str();
  app->add_option("--admin-key-file", options->key_file,
                  "File whose first line is the API key to send; listing and changing "
                  "requests needs an admin key");
  add_number(*app, "--timeout", options->timeout, "Seconds to wait for each answer", 0.001, 3600.0);
  add_switch(*app, "verify", options->verify, "Verify the certificate of an https server");
  add_words(
      *app, "--output", {"text", "json"}, [options](std::size_t word) { options->output = static_cast<Output>(word); },
      "Form of the answer")
      ->default_str("text");
  auto* status = app->add_subcommand("status", "Show health, requests, KV blocks and device processes");
  auto* requests = app->add_subcommand("requests", "List the live requests");
  auto* cancel = app->add_subcommand("cancel", "Cancel a live request; its client gets the output so far");
  cancel->add_option("ID", options->request, "The id of the request, as `ctl requests` shows it");
  cancel->add_option("--model", options->model, "The model of the request, if the server has several");
  auto* migrate =
      app->add_subcommand("migrate", "Move a request to another replica, where it goes on with the tokens that it has");
  migrate->add_option("ID", options->request, "The id of the request, as `ctl requests` shows it");
  migrate->add_option("REPLICA", options->replica, "The number of the replica, as `ctl replicas` shows it");
  auto* replicas = app->add_subcommand("replicas", "List the replicas: their state, requests and device processes");
  auto* drain_replica =
      app->add_subcommand("drain-replica", "Give a replica no new requests; it ends when those that it has have ended");
  drain_replica->add_option("ID", options->replica, "The number of the replica, as `ctl replicas` shows it");
  drain_replica->add_flag("--move-requests", options->moves_requests,
                          "Do not wait: its requests go on at the other replicas with the tokens that they have");
  auto* start_replica = app->add_subcommand(
      "start-replica", "Start a replica again that has ended; it takes requests when its model is loaded");
  start_replica->add_option("ID", options->replica, "The number of the replica, as `ctl replicas` shows it");
  auto* drain = app->add_subcommand("drain", "Refuse new requests; live requests run to their end");
  app->add_subcommand("reset-prefix-cache", "Empty the prefix cache: later prompts are computed anew");
  const auto run = [=] {
    if (*status) return run_status(*options);
    if (*requests) return run_one(*options, "GET", "/admin/requests", print_requests);
    if (*cancel) {
      if (!is_number(options->request)) {
        return exit_with(Error{ErrorCode::bad_config, "ctl cancel needs the ID of a request, which is a number", "ID"});
      }
      const auto query = options->model.empty() ? std::string() : "?model=" + percent_encoded(options->model);
      return run_one(*options, "DELETE", "/admin/requests/" + options->request + query,
                     [&](const Json&) { std::printf("cancelled %s\n", options->request.c_str()); });
    }
    if (*migrate) {
      if (!is_number(options->request) || !is_number(options->replica)) {
        return exit_with(Error{ErrorCode::bad_config,
                               "ctl migrate needs the ID of a request and the ID of a replica, which are numbers",
                               "ID"});
      }
      const auto path = "/admin/requests/" + options->request + "/migrate?replica=" + options->replica;
      return run_one(*options, "POST", path, [&](const Json&) {
        std::printf("request %s goes on at replica %s\n", options->request.c_str(), options->replica.c_str());
      });
    }
    if (*replicas) {
      return run_one(*options, "GET", "/admin/replicas",
                     [](const Json& answer) { print_replicas(answer.value("replicas", Json::array())); });
    }
    if ((*drain_replica || *start_replica) && !is_number(options->replica)) {
      const std::string command = *drain_replica ? "drain-replica" : "start-replica";
      return exit_with(
          Error{ErrorCode::bad_config, "ctl " + command + " needs the ID of a replica, which is a number", "ID"});
    }
    if (*start_replica) {
      return run_one(*options, "POST", "/admin/replicas/" + options->replica + "/start", [&](const Json&) {
        std::printf("replica %s is starting; `ctl replicas` shows when it is up\n", options->replica.c_str());
      });
    }
    if (*drain_replica) {
      const std::string query = options->moves_requests ? "?move_requests=true" : "";
      return run_one(*options, "POST", "/admin/replicas/" + options->replica + "/drain" + query, [&](const Json&) {
        std::printf(options->moves_requests ? "replica %s ends; its requests go on at the other replicas\n"
                                            : "replica %s takes no new requests, and ends when it has none\n",
                    options->replica.c_str());
      });
    }
    if (*drain) {
      return run_one(*options, "POST", "/admin/drain", [](const Json& answer) {
        std::printf("draining: %lld live requests\n", static_cast<long long>(count(answer, "live_requests")));
      });
    }
    return run_one(*options, "POST", "/admin/reset_prefix_cache",
                   [](const Json&) { std::printf("the prefix cache is reset\n"); });
  };
  return {app, run};
}

}  // namespace pagoda::apps
