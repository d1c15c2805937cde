#include "io/http/page/routes.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "io/http/ascii.hpp"
#include "io/http/body.hpp"
#include "io/http/error_answer.hpp"
#include "io/http/ollama/routes.hpp"
#include "io/http/page/files.hpp"
#include "io/http/page/live_feed.hpp"

namespace pagoda::http::page {
namespace {

/// Allows only content of this server, only code in the files of the page, and no embedding in frames.
constexpr const char* kContentSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

std::string_view content_type(std::string_view name) {
  const auto is = [&](std::string_view ending) { return name.ends_with(ending); };
  if (is(".html")) return "text/html; charset=utf-8";
  if (is(".css")) return "text/css; charset=utf-8";
  if (is(".js")) return "text/javascript; charset=utf-8";
  if (is(".svg")) return "image/svg+xml";
  return "application/octet-stream";
}

const File* find_file(std::string_view name) {
  const auto found = std::ranges::find(files(), name, &File::name);
  return found == files().end() ? nullptr : &*found;
}

void answer_file(Exchange& exchange, const Request& request, const File& file) {
  Pairs headers{{"etag", std::string(file.etag)},
                {"cache-control", "no-cache"},
                {"vary", "accept"},
                {"content-security-policy", kContentSecurityPolicy},
                {"x-content-type-options", "nosniff"},
                {"referrer-policy", "no-referrer"}};
  if (request.header("if-none-match") == file.etag) return exchange.respond(304, {}, {}, headers);
  exchange.respond(200, content_type(file.name), std::string(file.body), headers);
}

/// Returns whether the client accepts HTML. A browser that opens a page does; other programs do not.
bool wants_html(const Request& request) {
  return lower_case(request.header("accept")).find("text/html") != std::string::npos;
}

/// Feeds by what they show.
using Feeds = std::map<std::pair<const serving::ServedModel*, ReplicaId>, std::weak_ptr<LiveFeed>>;

/// Returns the replica that the query names, by default 0; nothing for another text.
std::optional<ReplicaId> replica_of_query(const Request& request) {
  const auto text = find_value(request.query, "replica");
  if (text.empty()) return 0;
  ReplicaId id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  const bool is_number = error == std::errc() && end == text.data() + text.size() && id >= 0;
  return is_number ? std::optional(id) : std::nullopt;
}

}  // namespace

void add_routes(Routes& routes, const ApiContext& context) {
  routes.add(Verb::get, "/", Access::open, [](const auto& exchange, const Request& request) {
    if (!wants_html(request)) return ollama::answer_is_running(*exchange);
    answer_file(*exchange, request, *find_file("index.html"));
  });
  // Browsers request this icon when they show a resource without its own icon, such as /health.
  routes.add(Verb::get, "/favicon.ico", Access::open, [](const auto& exchange, const Request& request) {
    answer_file(*exchange, request, *find_file("icon.svg"));
  });
  routes.add(Verb::get, "/ui/live", Access::monitor,
             [&context, feeds = std::make_shared<Feeds>()](const auto& exchange, const Request& request) {
               const auto model = model_of_query(context, request);
               if (!model) return exchange->respond_error(model.error());
               const auto replica = replica_of_query(request);
               if (!replica || *replica >= (*model)->info.num_replicas) {
                 return exchange->respond_error(invalid_request("replica must be the number of a replica", "replica"));
               }
               auto& feed = (*feeds)[{*model, *replica}];
               auto live = feed.lock();
               if (!live) feed = live = std::make_shared<LiveFeed>(context, **model, *replica, exchange->io());
               live->join(exchange);
             });
  routes.add(Verb::get, "/ui/{name}", Access::open, [](const auto& exchange, const Request& request) {
    const auto name = find_value(request.params, "name");
    const File* file = find_file(name);
    if (file == nullptr) {
      return exchange->respond_error({404, "there is no route " + request.path, {}, "not_found"});
    }
    answer_file(*exchange, request, *file);
  });
}

}  // namespace pagoda::http::page
