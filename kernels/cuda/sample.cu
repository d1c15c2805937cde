#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/linear.hpp"
#include "kernels/cuda/sample.hpp"
#include "kernels/cuda/sample_change.cuh"
#include "kernels/cuda/sample_draw.cuh"

namespace pagoda::kernels::cuda {
namespace {

/// Results of one pass over a row.
struct Measured {
  SampleProblem problem = SampleProblem::none;
  float max = 0.0F;
  std::int32_t best = 0;  ///< lowest id among the largest logits
};

/// Measures a row and stores the largest logit of each thread in shared.thread_maxima.
__device__ Measured measure_row(SampleShared& shared, const RowView& view) {
  bool finite = true;
  float best = -INFINITY;
  std::uint32_t best_id = 0;
  for_row(view, [&](int i, float logit) {
    finite = finite && logit < INFINITY;  // false for NaN
    if (logit > best) {
      best = logit;
      best_id = static_cast<std::uint32_t>(i);
    }
  });
  shared.thread_maxima[threadIdx.x] = best;
  const bool all_finite = __syncthreads_and(finite) != 0;
  const std::uint64_t packed = static_cast<std::uint64_t>(key_of(best)) << 32 | static_cast<std::uint32_t>(~best_id);
  const std::uint64_t largest = combine_over_block<Larger>(shared, packed);
  const float max = logit_of(static_cast<std::uint32_t>(largest >> 32));
  const SampleProblem problem = !all_finite        ? SampleProblem::not_finite
                                : max == -INFINITY ? SampleProblem::nothing_left
                                                   : SampleProblem::none;
  return {problem, max, static_cast<std::int32_t>(~static_cast<std::uint32_t>(largest))};
}

/// Makes the row's k largest logits, and some more, the candidates if they fit. At least k threads have read a logit
/// that is as large as the k-th largest of the threads' maxima, so this maximum is a bound of the candidates. Requires
/// the thread_maxima that measure_row() wrote for the row. Returns the number of candidates, or 0 if they do not fit.
__device__ int collect_top(SampleShared& shared, const RowView& row, int k) {
  if (k >= row.count && row.count <= kMaxCandidates) return collect(shared, row, {});
  if (k <= kSampleThreads) {
    const RowView maxima{shared.thread_maxima, nullptr, kSampleThreads};
    const Cut bound{cut_at_top_k(shared, maxima, k).key, kAllTies};
    const int count = collect(shared, row, bound);
    if (count <= kMaxCandidates) return count;
  }
  if (k > kMaxCandidates) return 0;
  return collect(shared, row, cut_at_top_k(shared, row, k));
}

/// Makes the tokens of the whole row that top_p keeps, and some more, the candidates if they fit. Returns the number of
/// candidates, or 0 if they do not fit.
__device__ int collect_nucleus(SampleShared& shared, const RowView& row, Cut cut, const Weigher& weigher, double top_p,
                               std::uint64_t mass, std::uint64_t needed) {
  constexpr double kUnit = 1.0 / static_cast<double>(std::uint64_t{1} << kMassBits);
  const double left_out = (1.0 - top_p) * static_cast<double>(mass) * kUnit;
  // Tokens lighter than left_out / vocab together weigh less than left_out, so the second bound always works. The first
  // bound leaves far fewer tokens and works for the usual peaked row.
  const double bounds[] = {0.01 * left_out, left_out / row.count};
  for (const double bound : bounds) {
    const Cut heavy = narrower(cut, cut_at_weight(weigher, static_cast<float>(bound < 1.0 ? bound : 1.0)));
    const int count = collect(shared, row, heavy);
    if (count > kMaxCandidates) return 0;
    if (measure_kept(shared, candidates(shared, count), {}, weigher).mass >= needed) return count;
  }
  return 0;
}

/// Applies min_p, top_k and top_p, then draws.
__device__ std::int32_t draw_filtered(SampleShared& shared, const RowView& row, const DeviceSampleRow& params,
                                      const Weigher& weigher) {
  RowView view = row;
  Cut cut;
  if (params.top_k > 0 && params.top_k < row.count) {
    if (const int count = collect_top(shared, row, params.top_k); count > 0) view = candidates(shared, count);
    cut = cut_at_top_k(shared, view, params.top_k);
  }
  if (params.min_p > 0.0F) cut = narrower(cut, cut_at_weight(weigher, params.min_p));
  if (params.top_p < 1.0F) {
    const auto top_p = static_cast<double>(params.top_p);
    Kept kept = measure_kept(shared, view, cut, weigher);
    const auto needed = static_cast<std::uint64_t>(ceil(top_p * static_cast<double>(kept.mass)));
    if (view.ids == nullptr) {
      const int count = collect_nucleus(shared, row, cut, weigher, top_p, kept.mass, needed);
      if (count > 0) {
        view = candidates(shared, count);
        cut = {};
        kept = {};
      }
    }
    cut = cut_at_mass(shared, view, cut, kept.ties, weigher, needed);
  }
  return draw_token(shared, view, cut, weigher, params.uniform);
}

__device__ std::int32_t choose_token(SampleShared& shared, const RowView& row, const DeviceSampleRow& params,
                                     const Measured& measured) {
  if (params.forced_token >= 0) return params.forced_token;
  if (params.temperature == 0.0F) return measured.best;
  const Weigher weigher{measured.max, params.inverse_temperature};
  const bool filtered = (params.top_k > 0 && params.top_k < row.count) || params.top_p < 1.0F || params.min_p > 0.0F;
  if (filtered) return draw_filtered(shared, row, params, weigher);
  return draw_token(shared, row, {}, weigher, params.uniform);
}

/// Writes log-probability and rank of the token, and the num_logprobs likeliest or listed tokens. Call after
/// measure_row(row); only draws may come between the two calls, because they do not change shared.thread_maxima.
__device__ void report(SampleShared& shared, const RowView& row, const DeviceSampleRow& params, float max,
                       std::int32_t token, SampleOutput& out) {
  constexpr double kUnit = 1.0 / static_cast<double>(std::uint64_t{1} << kMassBits);
  const Weigher weigher{max, 1.0F};
  const float chosen = row.logits[token];
  std::uint64_t mass = 0;
  std::uint64_t larger = 0;
  for_row(row, [&](int, float logit) {
    mass += weigher.mass(logit);
    if (logit > chosen) ++larger;
  });
  mass = combine_over_block<Add>(shared, mass);
  larger = combine_over_block<Add>(shared, larger);
  const double log_total = static_cast<double>(max) + log(static_cast<double>(mass) * kUnit);
  const auto logprob = [&](float logit) { return static_cast<float>(static_cast<double>(logit) - log_total); };
  out.logprob = logprob(chosen);
  out.rank = static_cast<std::int32_t>(larger) + 1;
  out.num_top = min(params.num_logprobs, row.count);
  if (out.num_top == 0) return;
  if (params.logprob_tokens != nullptr) {
    for (int i = static_cast<int>(threadIdx.x); i < out.num_top; i += kSampleThreads) {
      const std::int32_t listed = params.logprob_tokens[i];
      params.top_tokens[i] = listed;
      params.top_logprobs[i] = logprob(row.logits[listed]);
    }
    return;
  }
  if (out.num_top > kMaxCandidates) {  // rank_tokens_kernel lists them
    if (threadIdx.x == 0) *params.log_total = log_total;
    return;
  }

  // Finds the place of each candidate in descending order of logits; of equal logits the lower id comes first.
  const int count = collect_top(shared, row, out.num_top);
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kSampleThreads) {
    const float logit = shared.candidate_logits[i];
    int place = 0;
    for (int j = 0; j < count && place < out.num_top; ++j) {
      const float other = shared.candidate_logits[j];
      if (other > logit || (other == logit && j < i)) ++place;
    }
    if (place >= out.num_top) continue;
    params.top_tokens[place] = shared.candidate_ids[i];
    params.top_logprobs[place] = logprob(logit);
  }
}

__device__ SampleProblem sample_row(SampleShared& shared, const DeviceSampleRow& params, int vocab, SampleOutput& out) {
  const bool changed = params.changed != nullptr;
  if (changed && params.output->problem != SampleProblem::none) return params.output->problem;
  const RowView row{changed ? params.changed : params.logits, nullptr, vocab};
  Measured measured = measure_row(shared, row);
  if (measured.problem != SampleProblem::none) return measured.problem;
  if (params.forced_token >= vocab) return SampleProblem::token_out_of_range;
  out.token = choose_token(shared, row, params, measured);
  if (params.num_logprobs < 0) return SampleProblem::none;
  if (params.logprob_tokens != nullptr) {
    bool out_of_range = false;
    for (int i = static_cast<int>(threadIdx.x); i < params.num_logprobs; i += kSampleThreads) {
      out_of_range = out_of_range || params.logprob_tokens[i] < 0 || params.logprob_tokens[i] >= vocab;
    }
    if (__syncthreads_or(out_of_range) != 0) return SampleProblem::token_out_of_range;
  }

  RowView reported = row;
  if (changed && !params.processed_logprobs) {
    reported.logits = params.logits;
    measured = measure_row(shared, reported);
    if (measured.problem != SampleProblem::none) return measured.problem;
  }
  report(shared, reported, params, measured.max, out.token, out);
  return SampleProblem::none;
}

// Block r samples row r.
__global__ __launch_bounds__(kSampleThreads) void sample_rows_kernel(const DeviceSampleRow* rows, int vocab) {
  PAGODA_DYNAMIC_SHARED(SampleShared, shared);
  const DeviceSampleRow& row = rows[blockIdx.x];
  SampleOutput out;
  const SampleProblem problem = sample_row(*shared, row, vocab, out);
  __syncthreads();  // every thread has read the problem that change_logits_kernel wrote to the output
  if (threadIdx.x != 0) return;
  if (problem != SampleProblem::none) {
    out = {};
    out.token = -1;
    out.problem = problem;
  }
  *row.output = out;
}

constexpr int kRankThreads = 256;

// Block (b, r) checks tokens 256 * b + [0, 256) and lists each token that is among the num_top likeliest of row r. The
// place of a token in the list is the number of tokens that are likelier (among equal ones: with a lower id), which one
// thread counts; the block loads the logits into shared memory. The kernel handles only rows whose tokens
// sample_rows_kernel has not listed.
__global__ __launch_bounds__(kRankThreads) void rank_tokens_kernel(const DeviceSampleRow* rows, int vocab) {
  __shared__ float tile[kRankThreads];
  const DeviceSampleRow& row = rows[blockIdx.y];
  const SampleOutput& out = *row.output;
  const bool is_left =
      out.problem == SampleProblem::none && out.num_top > kMaxCandidates && row.logprob_tokens == nullptr;
  if (!is_left) return;
  const float* logits = row.processed_logprobs && row.changed != nullptr ? row.changed : row.logits;
  const int token = static_cast<int>(blockIdx.x) * kRankThreads + static_cast<int>(threadIdx.x);
  const float logit = token < vocab ? logits[token] : 0.0F;
  int place = 0;
  for (int first = 0; first < vocab; first += kRankThreads) {
    const int mine = first + static_cast<int>(threadIdx.x);
    __syncthreads();
    tile[threadIdx.x] = mine < vocab ? logits[mine] : -INFINITY;
    __syncthreads();
    const int count = min(kRankThreads, vocab - first);
    for (int i = 0; i < count; ++i) {
      const float other = tile[i];
      place += other > logit || (other == logit && first + i < token) ? 1 : 0;
    }
  }
  if (token >= vocab || place >= out.num_top) return;
  row.top_tokens[place] = token;
  row.top_logprobs[place] = static_cast<float>(static_cast<double>(logit) - *row.log_total);
}

Status change_logits(cudaStream_t stream, const DeviceSampleRow* rows, const std::int32_t* changed_rows,
                     std::size_t count, std::int64_t vocab) {
  constexpr std::int64_t kPerBlock = std::int64_t{kCopyThreads} * kCopyPerThread;
  const dim3 grid(static_cast<unsigned>(ceil_divide(vocab, kPerBlock)), static_cast<unsigned>(count));
  const Status status = launch("copy_logits", copy_logits_kernel, grid, dim3(kCopyThreads), 0, stream, rows,
                               changed_rows, static_cast<int>(vocab));
  if (!status) return status;
  return launch("change_logits", change_logits_kernel, dim3(static_cast<unsigned>(count)), dim3(kChangeThreads), 0,
                stream, rows, changed_rows, static_cast<int>(vocab));
}

Status check_limits(const SampleParams& p) {
  if (p.vocab > kMaxVocab) {
    return fail(ErrorCode::unsupported, "sample: the CUDA device samples from at most " + std::to_string(kMaxVocab) +
                                            " tokens, not " + std::to_string(p.vocab));
  }
  return {};
}

bool lists_many_tokens(const SampleParams& p, const SampleUpload::Pass& pass) {
  const auto rows = p.rows.subspan(pass.first_row, pass.num_rows);
  return std::any_of(rows.begin(), rows.end(), [&](const SampleRow& row) {
    return row.logprob_tokens.empty() && std::min<std::int64_t>(row.num_logprobs, p.vocab) > kMaxCandidates;
  });
}

}  // namespace

Status cuda_sample(CudaStream& stream, const SampleParams& p) {
  if (p.rows.empty()) return {};
  if (Status status = check_limits(p); !status) return status;

  const SampleUpload upload(p);
  const std::size_t row_bytes = changed_row_bytes(p.vocab);
  const std::size_t max_changed =
      std::min(upload.num_changed(), std::max<std::size_t>(1, kMaxScratchBytes / row_bytes));
  std::byte* changed = nullptr;
  if (max_changed > 0) {
    const Result<std::byte*> scratch = stream.scratch(max_changed * row_bytes);
    if (!scratch) return fail(scratch.error());
    changed = *scratch;
  }
  const std::vector<SampleUpload::Pass> passes = upload.passes(std::max<std::size_t>(1, max_changed));
  const Result<Staged> staged = stream.stage(upload.bytes());
  if (!staged) return fail(staged.error());
  upload.write(staged->host, staged->device, passes, changed);
  if (Status status = stream.upload(*staged); !status) return status;

  const DeviceSampleRow* rows = upload.rows(staged->device);
  for (const SampleUpload::Pass& pass : passes) {
    if (pass.num_changed > 0) {
      const std::int32_t* changed_rows = upload.changed_rows(staged->device) + pass.first_changed;
      const Status status = change_logits(stream.get(), rows, changed_rows, pass.num_changed, p.vocab);
      if (!status) return status;
    }
    const Status status =
        launch("sample_rows", sample_rows_kernel, dim3(static_cast<unsigned>(pass.num_rows)), dim3(kSampleThreads),
               sizeof(SampleShared), stream.get(), rows + pass.first_row, static_cast<int>(p.vocab));
    if (!status) return status;
    if (!lists_many_tokens(p, pass)) continue;
    const dim3 grid(static_cast<unsigned>(ceil_divide(p.vocab, std::int64_t{kRankThreads})),
                    static_cast<unsigned>(pass.num_rows));
    const Status ranked = launch("rank_tokens", rank_tokens_kernel, grid, dim3(kRankThreads), 0, stream.get(),
                                 rows + pass.first_row, static_cast<int>(p.vocab));
    if (!ranked) return ranked;
  }
  return {};
}

}  // namespace pagoda::kernels::cuda
