#pragma once

#include <string_view>

#include "io/model_files/gguf/gguf_file.hpp"
#include "io/model_files/gguf/gguf_tensor_file.hpp"
#include "io/model_files/gguf/gguf_tokenizer.hpp"
#include "io/model_files/gguf/gguf_tokenizer_writer.hpp"
#include "io/model_files/tokenizer_loader.hpp"
#include "tests/io/fuzz/fuzz_folder.hpp"
#include "tests/io/fuzz/tokenizer_target.hpp"

namespace pagoda::io::testing {

/// The tokenizer of `folder` written as GGUF is refused or gives the same ids.
inline void try_as_gguf(const FuzzFolder& folder, const text::Tokenizer& tokenizer) {
  models::ModelSpec model;
  model.vocab_size = static_cast<std::int64_t>(tokenizer.vocab_size()) + 2;
  GgufMetadata metadata;
  if (const Status status = write_gguf_tokenizer(folder.path(), model, metadata); !status) {
    return check_error(status.error());
  }
  const auto writer = create_gguf_file(folder.path() / "m.gguf", metadata, {});
  PAGODA_ASSERT(writer, "a file can be written");
  const auto file = GgufFile::open(writer->part());
  if (!file) return check_error(file.error());
  const auto written = read_gguf_tokenizer(**file);
  if (!written) return check_error(written.error());
  if (const Status status = check_gguf_tokenizer(folder.path(), *written); !status) {
    return check_error(status.error());
  }
  const auto same = text::Tokenizer::create(*written);
  if (!same) return check_error(same.error());
  for (const std::string_view sample : kFuzzTexts) {
    const auto ids = tokenizer.encode(sample, true);
    const auto written_ids = (*same)->encode(sample, true);
    PAGODA_ASSERT(ids.has_value() == written_ids.has_value(), "both take a text, or none does");
    PAGODA_ASSERT(!ids || *ids == *written_ids, "a tokenizer gives the same ids when it is GGUF");
  }
}

/// Reads `bytes` as a tokenizer.model. Whatever they are, there is a one-line error or a tokenizer that works.
inline void try_sentencepiece(std::string_view bytes) {
  static const FuzzFolder folder;
  folder.clear();
  folder.write("tokenizer.model", bytes);
  const auto read = read_folder_tokenizer(folder.path());
  if (!read) return check_error(read.error());
  const auto tokenizer = text::Tokenizer::create(read->spec);
  if (!tokenizer) return check_error(tokenizer.error());
  try_tokenizer(*tokenizer);
  try_as_gguf(folder, **tokenizer);
}

}  // namespace pagoda::io::testing
