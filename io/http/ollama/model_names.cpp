#include "io/http/ollama/model_names.hpp"

#include <string_view>
#include <utility>

#include "io/serving/nearest_model.hpp"

namespace pagoda::http::ollama {
namespace {

constexpr std::string_view kLatest = ":latest";

}  // namespace

std::string with_tag(const std::string& name) {
  const auto slash = name.rfind('/');
  const bool has_tag = name.find(':', slash == std::string::npos ? 0 : slash) != std::string::npos;
  return has_tag ? name : name + std::string(kLatest);
}

tl::expected<NamedModel, ErrorAnswer> read_model_name(const ApiContext& context, const wire::Json& body) {
  auto model = body.find("model");
  if (model == body.end()) model = body.find("name");
  if (model == body.end() || model->is_null()) return tl::unexpected(invalid_request("model is required", "model"));
  if (!model->is_string()) return tl::unexpected(invalid_request("model must be a string", "model"));
  auto name = model->get<std::string>();
  auto served = context.models.find(name);
  if (served != nullptr) return NamedModel{std::move(served), std::move(name)};
  return tl::unexpected(ErrorAnswer{404,
                                    "model '" + name + "' not found." +
                                        serving::did_you_mean(name, context.models, "'") +
                                        " Served: " + context.models.listed("'", "'", with_tag),
                                    "model", "model_not_found"});
}

}  // namespace pagoda::http::ollama
