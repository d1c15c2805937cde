#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "apps/command.hpp"
#include "apps/doctor/findings.hpp"
#include "apps/doctor/probe.hpp"
#include "apps/flag_values.hpp"
#include "apps/serve_options.hpp"

namespace pagoda::apps {
namespace {

struct DoctorOptions {
  explicit DoctorOptions(CLI::App& app) : serve(app, ServeOptions::kNoListen) {
    add_choice(app, "--output", output, {"text", "json"}, "text for people, json for programs");
  }

  ServeOptions serve;
  std::string output = "text";
};

/// Returns the problems of the flags. A missing model is no problem here. Facts about the machine, such as an
/// instruction set that it lacks, are reported as findings.
std::vector<Error> mistakes(ServeOptions& options) {
  auto problems = options.finish();
  const bool has_model = !options.engine.config.model.empty();
  std::erase_if(problems, [&](const Error& problem) {
    return (problem.param == "model" && !has_model) || problem.code == ErrorCode::out_of_memory;
  });
  return problems;
}

MachineFacts probe_machine(const ServeOptions& options) {
  const auto& config = options.engine.config;
  std::uint64_t connections = 0;
  // serve listens for JSON lines by default, but only the port of an address that was given is tried.
  if (options.has_lines() || !options.engine.flags.is_given("listen")) {
    connections += static_cast<std::uint64_t>(options.lines.max_connections);
  }
  if (!options.http.http.empty()) connections += static_cast<std::uint64_t>(options.http.http_max_connections);
  const auto addresses = options.addresses();
  const auto tried = try_addresses(addresses);
  std::vector<PortFacts> ports;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    ports.push_back({addresses[i].key, addresses[i].address, tried[i] ? "" : tried[i].error().message});
  }
  MachineFacts facts{.build = probe_build(),
                     .processor = probe_processor(config.cpu_isa),
                     .cores = probe_cores(config.threads),
                     .memory = probe_memory(),
                     .files = probe_file_limit(connections),
                     .gpu = probe_gpu(config),
                     .ports = std::move(ports),
                     .model = {}};
  if (!config.model.empty()) facts.model = probe_model(config);
  return facts;
}

int run_doctor(DoctorOptions& options) {
  if (const auto problems = mistakes(options.serve); !problems.empty()) return exit_with(problems);
  const auto findings = examine(probe_machine(options.serve));
  const auto text = options.output == "json" ? as_json(findings) : as_text(findings);
  std::fputs(text.c_str(), stdout);
  return would_run(findings) ? kExitOk : kExitFailure;
}

}  // namespace

Command add_doctor(CLI::App& pagoda) {
  auto* app = add_subcommand(pagoda, "doctor", "What this machine can do, what limits it, and what to set");
  const auto options = std::make_shared<DoctorOptions>(*app);
  return {app, [options] { return run_doctor(*options); }};
}

}  // namespace pagoda::apps
