#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/interfaces.hpp"
#include "engine/model_pool/residency.hpp"
#include "engine/stats.hpp"
#include "io/chat/chat_prompts.hpp"
#include "io/serving/served_adapters.hpp"
#include "kernels/result.hpp"

namespace pagoda::serving {

/// A model that the server offers to clients.
struct ServedModel {
  ModelInfo info;
  actors::RequestRouterActor router = {};              ///< router of its requests, whether it is loaded or not
  std::shared_ptr<const chat::ChatPrompts> chat = {};  ///< null: the model has no chat template
  std::int64_t max_queued_requests = std::numeric_limits<std::int64_t>::max();  ///< most live requests of the engine
  std::vector<std::string> aliases = {};       ///< further names that requests may use; answers carry info.name
  model_pool::SharedResidency residency = {};  ///< null: the model is always loaded
  std::int64_t memory_bytes = 0;               ///< memory that it takes while it is loaded; 0: unknown
  /// Sets how long the model stays loaded without work, in microseconds (model_pool::kForever). Null: the model is
  /// always loaded.
  std::function<void(TimeUs)> keep_alive = {};
  std::shared_ptr<ServedAdapters> adapters = {};  ///< adapters that requests may name; null: the engine has none
  /// Name of the model that info.name is an adapter of; empty: a model.
  std::string parent = {};

  bool serves(std::string_view name) const;
  /// Returns info.name and the aliases.
  std::vector<std::string> names() const;
  /// Returns the adapter that requests for this model use; empty: none.
  const std::string& adapter() const;
  /// Returns a copy of this model whose requests use an adapter.
  ServedModel with_adapter(std::string name) const;
  model_pool::ModelState state() const { return residency ? residency->state.load() : model_pool::ModelState::loaded; }
};

/// A model that a request names: one of ServedModels, or a copy for an adapter.
using SharedModel = std::shared_ptr<const ServedModel>;

/// All models of a server. The list does not change while the server runs, but the adapters of a model may. A request
/// names its model, or an adapter; if there is only one model, the name may be absent.
class ServedModels {
 public:
  /// `models`: at least one; their names must differ.
  explicit ServedModels(std::vector<ServedModel> models);

  const std::vector<ServedModel>& all() const { return models_; }
  const ServedModel& first() const { return models_.front(); }
  bool are_several() const { return models_.size() > 1; }
  /// Returns whether models are loaded and unloaded on demand. If not, all are always loaded.
  bool is_pool() const { return first().residency != nullptr; }

  /// Makes find() return the first model for an unknown name.
  void take_any_name() { takes_any_name_ = true; }
  /// Returns the model with this name or alias, or for the adapter with this name. "NAME:latest", as Ollama lists
  /// models, also finds NAME. Returns null if there is none. The result is valid while this object lives.
  SharedModel find(std::string_view name) const;
  /// Returns the model that has this name, or whose adapter has it. Otherwise like find.
  const ServedModel* find_model(std::string_view name) const;
  SharedModel shared(const ServedModel& model) const { return {SharedModel(), &model}; }

  /// Returns all names of models and adapters.
  std::vector<std::string> names() const;
  /// Returns all names, each between `before` and `after`: "`a`, `b`". `worded` maps a name to its text; null: the
  /// name itself.
  std::string listed(std::string_view before, std::string_view after,
                     const std::function<std::string(const std::string&)>& worded = {}) const;

 private:
  std::vector<ServedModel> models_;
  bool takes_any_name_ = false;
};

}  // namespace pagoda::serving
