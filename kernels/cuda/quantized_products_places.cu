#include "kernels/cuda/quantized_products.cuh"

namespace pagoda::kernels::cuda {

Status multiply_places(cudaStream_t stream, const QuantizedProduct& product) {
  return multiply_coded<Coding::places>(stream, product);
}

}  // namespace pagoda::kernels::cuda
