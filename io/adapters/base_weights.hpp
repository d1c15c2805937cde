#pragma once

#include "engine/adapters/adapter.hpp"
#include "engine/weights/weight_source.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Removes the weights of modules that also have low-rank matrices. peft saves the base model's weight beside the
/// matrices of an embedding or a head (base_layer.weight). Call it before the adapter is bound to its model.
///
/// Checks that each such weight is the weight in `base`, as far as a 16-bit copy can be: another weight would also
/// change the base model. Quantised weights in `base` are not compared.
///
/// Errors: unsupported (another weight, or more or fewer rows: the adapter was trained with a changed vocabulary);
/// errors of `base`. The message names the module.
Status drop_base_weights(adapters::Adapter& adapter, const weights::WeightSource& base);

}  // namespace pagoda::io
