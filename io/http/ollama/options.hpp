#pragma once

#include "engine/request/generate_request.hpp"
#include "io/wire/field_reader.hpp"

namespace pagoda::http::ollama {

/// Returns a request whose options are not read yet. Options that the client does not give are left to the model's
/// recommendation (generation_config.json) or else to the engine, as Ollama leaves them to the model file. Ollama's own
/// defaults (temperature 0.8, top_k 40, top_p 0.9, repeat_penalty 1.1) are not used: they are not properties of the
/// model, and a prompt would get another distribution than in the other APIs. The answer may use the rest of the
/// context.
GenerateRequest request_with_defaults();

/// Reads `options`, the sampling parameters in Ollama's names. Options that Ollama uses when it loads a model (num_ctx,
/// num_gpu, num_thread, ...) are accepted and have no effect: the server's flags set them. Samplers that are not
/// supported (mirostat, typical_p, tfs_z) are refused unless they are turned off. Whole numbers may be written with a
/// fraction (40.0).
void read_options(wire::FieldReader& fields, GenerateRequest& request);

}  // namespace pagoda::http::ollama
