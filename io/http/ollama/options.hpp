#pragma once

#include "engine/request/generate_request.hpp"
#include "io/wire/field_reader.hpp"

namespace pagoda::http::ollama {

/// A request before its options are read: whatever the client does not say is left to the model's own recommendation
/// (generation_config.json), as Ollama leaves it to the model file, and without one to the engine. Ollama's own
/// temperature 0.8, top_k 40, top_p 0.9 and repeat_penalty 1.1 are not put in their place: they are no property of the
/// model, and the same prompt would get another distribution here than by the other APIs. The answer may take the rest
/// of the context.
GenerateRequest request_with_defaults();

/// Reads `options`, Ollama's names for how tokens are chosen. What Ollama reads when it loads a model (num_ctx,
/// num_gpu, num_thread, ...) is known and changes nothing: the server's flags say it. Samplers that this server does
/// not have (mirostat, typical_p, tfs_z) are refused unless they are switched off. Whole numbers may be written with a
/// fraction (40.0).
void read_options(wire::FieldReader& fields, GenerateRequest& request);

}  // namespace pagoda::http::ollama
