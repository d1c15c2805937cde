#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "actors/caf_compat.hpp"
#include "engine/types.hpp"

namespace pagoda::actors {

/// An actor of a replica, or its answer.
template <class T>
struct OfReplica {
  ReplicaId replica = 0;
  T value;
};

/// Does nothing with an answer.
struct Nothing {
  template <class Answer>
  void operator()(ReplicaId, Answer&) const {}
};

/// Asks one actor of each replica. Calls `then` with the answers (std::vector<OfReplica<Answer>>&) in the order of
/// `actors`, without those of actors that have ended; if all have ended, calls `failed` with an error. Before, calls
/// `on_each` (ReplicaId, Answer&) for each answer when it comes: so an actor's answers to several questions are taken
/// in the order in which the actor gave them.
template <class Answer, class Self, class Handle, class Message, class Then, class Failed, class OnEach = Nothing>
void gather(Self* self, const std::vector<OfReplica<Handle>>& actors, const Message& message, Then then, Failed failed,
            OnEach on_each = {}) {
  struct Gathering {
    std::vector<std::optional<OfReplica<Answer>>> answers;
    std::size_t num_missing;
    Then then;
    Failed failed;

    void one_less(caf::error& reason) {
      if (--num_missing > 0) return;
      std::vector<OfReplica<Answer>> all;
      for (auto& answer : answers) {
        if (answer) all.push_back(std::move(*answer));
      }
      all.empty() ? failed(reason) : then(all);
    }
  };
  if (actors.empty()) {
    caf::error reason = caf::make_error(caf::sec::runtime_error, "no replica is left");
    return failed(reason);
  }
  const auto gathering = std::make_shared<Gathering>(Gathering{
      std::vector<std::optional<OfReplica<Answer>>>(actors.size()), actors.size(), std::move(then), std::move(failed)});
  for (std::size_t i = 0; i < actors.size(); ++i) {
    request(
        self, actors[i].value, message,
        [gathering, i, replica = actors[i].replica, on_each](Answer& answer) {
          on_each(replica, answer);
          gathering->answers[i] = OfReplica<Answer>{replica, std::move(answer)};
          caf::error none;
          gathering->one_less(none);
        },
        [gathering](caf::error& reason) { gathering->one_less(reason); });
  }
}

}  // namespace pagoda::actors
