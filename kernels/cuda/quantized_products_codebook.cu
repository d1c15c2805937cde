#include "kernels/cuda/quantized_products.cuh"

namespace pagoda::kernels::cuda {

Status multiply_codebook(cudaStream_t stream, const QuantizedProduct& product) {
  return multiply_coded<Coding::codebook>(stream, product);
}

}  // namespace pagoda::kernels::cuda
