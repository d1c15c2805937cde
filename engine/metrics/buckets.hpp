#pragma once

#include <array>

namespace pagoda::metrics {

// These are vLLM's buckets, so that dashboards made for vLLM fit.

inline constexpr std::array kFirstTokenSeconds{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
                                               1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
inline constexpr std::array kTokenSeconds{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
                                          0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
inline constexpr std::array kRequestSeconds{0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
                                            30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
inline constexpr std::array kStepTokens{1.0,   8.0,    16.0,   32.0,   64.0,   128.0,  256.0,
                                        512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0};
inline constexpr std::array kSequences{1.0, 2.0, 5.0, 10.0, 20.0};
/// Buckets are shown up to the longest context that is served.
inline constexpr std::array kRequestTokens{1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3,
                                           5e3, 1e4, 2e4, 5e4,  1e5,  2e5,  5e5,   1e6,   2e6,   5e6, 1e7};

// Buckets of metrics that vLLM does not have.

inline constexpr std::array kStepSeconds{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                         0.05,   0.1,     0.25,   0.5,   1.0,    2.5,   5.0,  10.0};

}  // namespace pagoda::metrics
