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
#include "kernels/result.hpp"

namespace pagoda::serving {

/// A model as clients know it.
struct ServedModel {
  ModelInfo info;
  actors::RequestRouterActor router = {};              ///< where its requests go, whether it is loaded or not
  std::shared_ptr<const chat::ChatPrompts> chat = {};  ///< null: the model has no chat template
  std::int64_t max_queued_requests = std::numeric_limits<std::int64_t>::max();  ///< live ones that the engine takes
  std::vector<std::string> aliases = {};       ///< names beside info.name, which answers carry
  model_pool::SharedResidency residency = {};  ///< null: it is loaded, and stays
  std::int64_t memory_bytes = 0;               ///< that it takes while it is loaded; 0: not told
  /// How long it stays loaded without work from now on, in microseconds (model_pool::kForever). Null: it stays.
  std::function<void(TimeUs)> keep_alive = {};

  bool serves(std::string_view name) const;
  /// info.name and the aliases.
  std::vector<std::string> names() const;
  model_pool::ModelState state() const { return residency ? residency->state.load() : model_pool::ModelState::loaded; }
};

/// All models of a server, one or several; they do not change while it runs. A request names the one it is for; where
/// there is one, it need not.
class ServedModels {
 public:
  /// At least one, whose names differ.
  explicit ServedModels(std::vector<ServedModel> models);

  const std::vector<ServedModel>& all() const { return models_; }
  const ServedModel& first() const { return models_.front(); }
  bool are_several() const { return models_.size() > 1; }
  /// Whether they come and go as they are needed.
  bool is_pool() const { return first().residency != nullptr; }

  /// From now on a name that no model has is the first model's.
  void take_any_name() { takes_any_name_ = true; }
  /// The model of that name or alias, or of NAME where `name` is "NAME:latest", as Ollama lists it; null: there is
  /// none.
  const ServedModel* find(std::string_view name) const;

  /// "`a`, `b`": every name, in the marks of an API.
  std::string listed(std::string_view before, std::string_view behind,
                     const std::function<std::string(const std::string&)>& worded = {}) const;

 private:
  std::vector<ServedModel> models_;
  bool takes_any_name_ = false;
};

}  // namespace pagoda::serving
