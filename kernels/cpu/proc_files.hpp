#pragma once

/// Reading of the small text files under /proc and /sys. A file that is missing has no lines.

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pagoda::kernels {

std::vector<std::string> lines_of(const std::filesystem::path& path);

/// The first line; empty when there is none.
std::string first_line_of(const std::filesystem::path& path);

std::vector<std::string> words_of(const std::string& line);

/// None for "max", "unlimited" and whatever else is no number.
std::optional<std::size_t> number_in(std::string_view text);

/// Of the first line.
std::optional<std::size_t> number_in_file(const std::filesystem::path& path);

/// The number that stands after `key` in a file of lines "key number ...".
std::optional<std::size_t> number_after(const std::filesystem::path& path, std::string_view key);

/// `absolute` as it lies under `root`.
std::filesystem::path below_root(const std::filesystem::path& root, const std::filesystem::path& absolute);

}  // namespace pagoda::kernels
