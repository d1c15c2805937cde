#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "io/model_files/tensor_entry.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Limit on the copies of tensors that are not row-major: all together at most this many times the file's size.
inline constexpr std::size_t kMaxCopiedTimesFile = 4;

/// Parses and checks a file of torch.save (PyTorch 1.6 or later: a zip file with a pickle and an entry for each
/// storage) that holds a state dict; zip_directory.hpp and torch_pickle.hpp define what is read. Nothing in the file is
/// executed. `file` is the complete file, mapped or not; only its directory and its pickle are read. `file_name` goes
/// into messages.
///
/// Errors, one line that names file, tensor or opcode, and reason: unsupported (a file of an older PyTorch, one that is
/// not little-endian, a compressed entry, a pickle that needs more than tensors), bad_file (damage; a tensor beyond its
/// storage or a storage beyond its entry).
Result<TensorEntries> parse_torch_file(std::span<const std::byte> file, std::string_view file_name);

}  // namespace pagoda::io
