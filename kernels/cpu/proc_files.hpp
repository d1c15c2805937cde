#pragma once

/// Reads small text files under /proc and /sys. A missing file has no lines.

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pagoda::kernels {

std::vector<std::string> lines_of(const std::filesystem::path& path);

/// Returns the first line; empty if the file has none.
std::string first_line_of(const std::filesystem::path& path);

std::vector<std::string> words_of(const std::string& line);

/// Returns the number, or nullopt for "max", "unlimited" and any other text that is not a number.
std::optional<std::size_t> number_in(std::string_view text);

/// Returns the number in the first line of a file.
std::optional<std::size_t> number_in_file(const std::filesystem::path& path);

/// Returns the number after `key` in a file of lines "key number ...".
std::optional<std::size_t> number_after(const std::filesystem::path& path, std::string_view key);

/// Returns the path of `absolute` below `root`.
std::filesystem::path below_root(const std::filesystem::path& root, const std::filesystem::path& absolute);

}  // namespace pagoda::kernels
