#include <benchmark/benchmark.h>

#include "bench/cuda/gpu.hpp"

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::AddCustomContext("device", pagoda::kernels::bench::gpu().description());
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
