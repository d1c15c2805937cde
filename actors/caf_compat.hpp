#pragma once

/// One thin layer over CAF 0.17 (Debian) and CAF 1.x: the sources write 1.x shapes and compile with both.
///   Interface<caf::result<R>(Args...), ...>   a typed actor handle
///   PAGODA_MESSAGE_TYPE                       see messages.hpp
///   pagoda::actors::init_caf()                before the first actor_system
///
/// CAF_VERSION is octal in 1.1, so the version is told by the presence of CAF_VERSION_MAJOR.

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/result.hpp>
#include <caf/type_id.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>
#ifdef CAF_VERSION_MAJOR
#include <caf/init_global_meta_objects.hpp>
#else
#include <caf/all.hpp>
#endif

namespace pagoda::actors {

#ifdef CAF_VERSION_MAJOR

template <class... Signatures>
using Interface = caf::typed_actor<Signatures...>;

#else

namespace detail {

template <class Signature>
struct LegacySignature;

template <class R, class... Args>
struct LegacySignature<caf::result<R>(Args...)> {
  using type = typename caf::replies_to<Args...>::template with<R>;
};

template <class... Args>
struct LegacySignature<caf::result<void>(Args...)> {
  using type = caf::reacts_to<Args...>;
};

}  // namespace detail

template <class... Signatures>
using Interface = caf::typed_actor<typename detail::LegacySignature<Signatures>::type...>;

#endif

}  // namespace pagoda::actors
