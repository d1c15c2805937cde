#include "kernels/sample.hpp"

namespace pagoda::kernels {

const char* describe(SampleProblem problem) {
  switch (problem) {
    case SampleProblem::none:
      return "nothing is wrong";
    case SampleProblem::not_finite:
      return "a logit is NaN or +inf";
    case SampleProblem::nothing_left:
      return "no token is left to choose from (every logit is -inf)";
    case SampleProblem::token_out_of_range:
      return "a penalised, biased, banned or forced token is not in the vocabulary";
  }
  return "?";
}

}  // namespace pagoda::kernels
