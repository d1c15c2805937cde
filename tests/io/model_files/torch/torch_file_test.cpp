#include "io/model_files/torch/torch_file.hpp"

#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/safetensors_file.hpp"
#include "tests/support/torch_file.hpp"

namespace pagoda::io {
namespace {

using test::bytes_of;
using test::pickle_dict;
using test::pickle_tensor;
using test::torch_file;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kFolder = PAGODA_SOURCE_DIR "/tests/data/torch/";

std::string read(const std::string& name) {
  std::ifstream file(kFolder + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Result<TensorEntries> entries_of(const std::string& file) {
  return parse_torch_file(bytes_of(file), "w.bin");
}

std::string hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    text += kDigits[static_cast<unsigned char>(c) >> 4];
    text += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

/// The elements of a tensor in row-major order, each found by its index alone: slow and plain.
std::string elements(const std::string& file, const TensorEntry& entry, std::size_t element_bytes) {
  if (entry.strides.empty()) return file.substr(entry.begin, entry.end - entry.begin);
  std::int64_t count = 1;
  for (const auto dimension : entry.shape) count *= dimension;
  std::string out;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t offset = 0;
    std::int64_t rest = i;
    for (std::size_t d = entry.shape.size(); d-- > 0; rest /= entry.shape[d]) {
      offset += rest % entry.shape[d] * entry.strides[d];
    }
    out += file.substr(entry.begin + static_cast<std::size_t>(offset) * element_bytes, element_bytes);
  }
  return out;
}

class TorchGoldens : public ::testing::TestWithParam<const char*> {};

TEST_P(TorchGoldens, TensorsAreThoseThatTorchReads) {
  const auto golden = nlohmann::json::parse(read("golden.json")).at(GetParam());
  const auto file = read(std::string(GetParam()) + ".bin");
  const auto entries = entries_of(file);
  ASSERT_TRUE(entries) << entries.error().message;
  ASSERT_EQ(entries->size(), golden.size());
  for (const auto& [name, expected] : golden.items()) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(entries->contains(name));
    const auto& entry = entries->at(name);
    EXPECT_EQ(entry.dtype, expected.at("dtype"));
    EXPECT_EQ(entry.shape, expected.at("shape"));
    const auto bytes = expected.at("bytes").get<std::string>();
    std::size_t count = 1;
    for (const auto dimension : entry.shape) count *= static_cast<std::size_t>(dimension);
    EXPECT_EQ(hex(elements(file, entry, count == 0 ? 1 : bytes.size() / 2 / count)), bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Files, TorchGoldens,
                         ::testing::Values("module", "dtypes", "views", "protocol4", "protocol5", "nested_state_dict",
                                           "nested_model"),
                         [](const auto& test) { return std::string(test.param); });

TEST(TorchFile, OnlyWhatDoesNotLieRowMajorHasStrides) {
  const auto entries = entries_of(read("views.bin"));
  ASSERT_TRUE(entries) << entries.error().message;
  std::vector<std::string> strided;
  for (const auto& [name, entry] : *entries) {
    if (!entry.strides.empty()) strided.push_back(name);
  }
  EXPECT_THAT(strided, ::testing::UnorderedElementsAre("transposed", "permuted", "column", "steps", "inner", "short",
                                                       "half", "expanded"));
}

TEST(TorchFile, TiedWeightsLieInOnePlace) {
  const auto entries = entries_of(read("module.bin"));
  ASSERT_TRUE(entries) << entries.error().message;
  EXPECT_EQ(entries->at("embed.weight").begin, entries->at("head.weight").begin);
  EXPECT_EQ(entries->at("embed.weight").begin % 4, 0U);
}

struct BadTorchFile {
  std::string name;
  std::string file;
  std::string message;
  ErrorCode code = ErrorCode::bad_file;
};

void PrintTo(const BadTorchFile& bad, std::ostream* out) {
  *out << bad.name;
}

class BadTorchFiles : public ::testing::TestWithParam<BadTorchFile> {};

TEST_P(BadTorchFiles, AreRefusedWithOneLineThatNamesFileTensorAndReason) {
  const auto parsed = entries_of(GetParam().file);
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, GetParam().code);
  EXPECT_THAT(parsed.error().message, HasSubstr(GetParam().message));
  EXPECT_THAT(parsed.error().message, ::testing::StartsWith("w.bin: "));
  EXPECT_THAT(parsed.error().message, Not(HasSubstr("\n")));
}

std::vector<BadTorchFile> bad_torch_files() {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  constexpr std::int64_t kNegative = std::numeric_limits<std::int64_t>::min();
  /// A file of one tensor "w" over a storage of 6 floats.
  const auto one = [](const test::TensorPickle& tensor) {
    return torch_file(pickle_dict({{"w", pickle_tensor(tensor)}}), {std::string(24, 'x')});
  };
  const auto good = pickle_dict({{"w", pickle_tensor({{2, 3}, {3, 1}})}});
  std::vector<std::pair<std::string, std::string>> many;
  for (int i = 0; i < 400; ++i) many.emplace_back(std::to_string(i), pickle_tensor({{64, 64}, {1, 64}, 0, "0", 4096}));
  return {
      {"Empty", "", "no zip directory at the end"},
      {"Legacy", read("legacy.bin"), "a bare pickle, as PyTorch wrote before 1.6: load and save it again",
       ErrorCode::unsupported},
      {"OtherZip", test::zip_file({{"word/document.xml", "<w/>"}}), "a zip file without a data.pkl"},
      {"NoFolder", test::zip_file({{"data.pkl", good}}), "a zip file without a data.pkl"},
      {"TwoFolders", test::zip_file({{"a/data.pkl", good}, {"b/data.pkl", good}}), "two folders hold a data.pkl"},
      {"BigEndian", test::zip_file({{"a/data.pkl", good}, {"a/byteorder", "big"}}), "its byte order is \"big\"",
       ErrorCode::unsupported},
      {"NoStorage", torch_file(good, {}), "tensor \"w\": its storage \"0\" is missing"},
      {"StorageOfAnotherFolder", test::zip_file({{"a/data.pkl", good}, {"b/data/0", std::string(24, 'x')}}),
       "tensor \"w\": its storage \"0\" is missing"},
      {"StorageElsewhere", one({{2}, {1}, 0, "../data.pkl"}), "its storage \"../data.pkl\" is missing"},
      {"StorageTooShort", one({{2}, {1}, 0, "0", 7}),
       "tensor \"w\": its storage \"0\" of 7 x 4 bytes is longer than the entry of 24"},
      {"StorageTooShortForDoubles", one({{2}, {1}, 0, "0", 6, "DoubleStorage"}), "of 6 x 8 bytes is longer"},
      {"StorageHuge", one({{2}, {1}, 0, "0", kHuge}), "bytes is longer than the entry of 24"},
      {"StorageNegative", one({{2}, {1}, 0, "0", -1}), "its storage \"0\" of -1 x 4 bytes"},
      {"TooFewStrides", one({{2, 3}, {1}}), "tensor \"w\": size and stride have different lengths"},
      {"SizeNegative", one({{2, -3}, {3, 1}}), "tensor \"w\": a dimension is negative or the size is too large"},
      {"SizeMostNegative", one({{kNegative}, {1}}), "a dimension is negative or the size is too large"},
      {"SizeHuge", one({{kHuge}, {0}}), "a dimension is negative or the size is too large"},
      {"SizeOverflow", one({{1 << 30, 1 << 30, 16}, {0, 0, 0}}), "a dimension is negative or the size is too large"},
      {"StrideNegative", one({{2, 3}, {3, -1}}), "tensor \"w\": a stride is negative"},
      {"StrideTooLarge", one({{2, 3}, {4, 1}}), "tensor \"w\": it reaches beyond the end of its storage"},
      {"StrideHuge", one({{3, 2}, {kHuge, 1}}), "it reaches beyond the end of its storage"},
      {"OneTooMany", one({{7}, {1}}), "it reaches beyond the end of its storage"},
      {"OffsetTooLarge", one({{2, 3}, {3, 1}, 1}), "it reaches beyond the end of its storage"},
      {"OffsetAtEnd", one({{}, {}, 6}), "it reaches beyond the end of its storage"},
      {"OffsetBehindEnd", one({{0}, {1}, 7}), "tensor \"w\": it begins outside its storage"},
      {"OffsetNegative", one({{2}, {1}, -1}), "tensor \"w\": it begins outside its storage"},
      {"OffsetMostNegative", one({{2}, {1}, kNegative}), "it begins outside its storage"},
      {"ManyCopies", torch_file(pickle_dict(many), {std::string(4096 * 4, 'x')}),
       "the tensors that are not row-major are many times larger than the file"},
      {"WantsMore",
       torch_file("\x80\x02"
                  "cos\nsystem\n.",
                  {}),
       "data.pkl: opcode GLOBAL at byte 2 refers to \"os.system\", which is refused", ErrorCode::unsupported},
  };
}

INSTANTIATE_TEST_SUITE_P(Table, BadTorchFiles, ::testing::ValuesIn(bad_torch_files()),
                         [](const auto& test) { return test.param.name; });

TEST(TorchFile, AFileThatIsCutShortAnywhereIsRefused) {
  for (const char* name : {"module.bin", "protocol4.bin"}) {
    const auto whole = read(name);
    ASSERT_TRUE(entries_of(whole));
    for (std::size_t size = 0; size < whole.size(); ++size) {
      // A copy of its own, so that the address sanitizer sees a read behind the end.
      const std::vector<std::byte> cut(bytes_of(whole).begin(), bytes_of(whole).begin() + static_cast<long>(size));
      ASSERT_FALSE(parse_torch_file(cut, "w.bin")) << name << " " << size;
    }
  }
}

/// What must hold of every tensor that is believed, whatever the file was.
void expect_sound(const TensorEntries& entries, std::size_t file_bytes) {
  for (const auto& [name, entry] : entries) {
    ASSERT_LE(entry.begin, entry.end) << name;
    ASSERT_LE(entry.end, file_bytes) << name;
    std::int64_t last = 0;
    for (std::size_t i = 0; i < entry.shape.size(); ++i) {
      ASSERT_GE(entry.shape[i], 0) << name;
      if (!entry.strides.empty()) last += (entry.shape[i] - 1) * entry.strides[i];
    }
    if (entry.strides.empty()) continue;
    ASSERT_LT(static_cast<std::size_t>(last), entry.end - entry.begin) << name;
  }
}

TEST(TorchFile, RandomDamageIsEitherRefusedOrHarmless) {
  std::mt19937 random(20240607);
  const auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
  int refused = 0;
  int read_anyway = 0;
  for (const char* name : {"module.bin", "dtypes.bin", "views.bin", "protocol4.bin", "nested_model.bin"}) {
    const std::string whole = read(name);
    const auto pickle_begin = whole.find("\x80");
    const auto pickle_end = whole.find("PK", pickle_begin);
    for (int round = 0; round < 4000; ++round) {
      std::string file = whole;
      for (std::size_t edits = 1 + below(3); edits > 0; --edits) {
        // Most damage goes to the pickle; the rest to anything. Lengths stay, or the directory would refuse all.
        const std::size_t at = below(4) != 0 ? pickle_begin + below(pickle_end - pickle_begin) : below(file.size() - 8);
        switch (below(3)) {
          case 0:
            file[at] = static_cast<char>(below(256));
            break;
          case 1:
            file[at] = static_cast<char>(file[at] ^ (1 << below(8)));
            break;
          default:
            file.replace(at, 4, whole.substr(pickle_begin + below(pickle_end - pickle_begin - 4), 4));
            break;
        }
      }
      const std::vector<std::byte> exact(bytes_of(file).begin(), bytes_of(file).end());
      const auto parsed = parse_torch_file(exact, "w.bin");
      ++(parsed ? read_anyway : refused);
      if (parsed) {
        expect_sound(*parsed, file.size());
      } else {
        ASSERT_EQ(parsed.error().message.find('\n'), std::string::npos) << parsed.error().message;
        ASSERT_LT(parsed.error().message.size(), 600U);
      }
    }
  }
  EXPECT_GT(refused, 5000);
  EXPECT_GT(read_anyway, 500);
}

}  // namespace
}  // namespace pagoda::io
