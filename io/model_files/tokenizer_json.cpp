#include "io/model_files/tokenizer_json.hpp"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "io/model_files/tokenizer_json_fields.hpp"
#include "io/model_files/tokenizer_json_sax.hpp"

namespace pagoda::io {
namespace {

using nlohmann::json;
using tokenizer_file::JsonFields;

constexpr std::size_t kMaxTokenizerBytes = std::size_t{512} << 20;

void reject_type(JsonFields& fields, const std::string& type, const std::string& supported) {
  fields.reject("type", "\"" + type + "\" is not supported; " + supported + " are", ErrorCode::unsupported);
}

std::string item_path(const std::string& list, std::size_t index) {
  return list + "[" + std::to_string(index) + "]";
}

// Calls parse(item, path, out) for each element of the array under `key`.
template <class Parse, class Out>
Status parse_list(JsonFields& fields, const std::string& key, Parse parse, Out& out) {
  const json* list = fields.require(key);
  if (list != nullptr && !list->is_array()) fields.reject(key, "is not a list");
  if (Status status = fields.finish(); !status) return status;
  for (std::size_t i = 0; i < list->size(); ++i) {
    if (Status status = parse((*list)[i], item_path(fields.path_of(key), i), out); !status) return status;
  }
  return {};
}

text::Pattern parse_pattern(JsonFields& fields) {
  text::Pattern pattern;
  const json* value = fields.require("pattern");
  if (value == nullptr) return pattern;
  const bool known =
      value->is_object() && value->size() == 1 && (value->contains("String") || value->contains("Regex"));
  if (!known || !value->begin()->is_string()) {
    fields.reject("pattern", R"(is neither {"String": text} nor {"Regex": text})");
    return pattern;
  }
  pattern.is_regex = value->contains("Regex");
  pattern.text = value->begin()->get<std::string>();
  if (pattern.text.empty()) fields.reject("pattern", "is empty");
  return pattern;
}

text::SplitBehavior parse_behavior(JsonFields& fields, const std::string& name) {
  if (name == "Removed") return text::SplitBehavior::removed;
  if (name == "Isolated") return text::SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return text::SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return text::SplitBehavior::merged_with_next;
  if (name == "Contiguous") return text::SplitBehavior::contiguous;
  fields.reject("behavior",
                "\"" + name + "\" is not one of Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
  return text::SplitBehavior::removed;
}

// Older files have add_prefix_space in place of prepend_scheme.
text::PrependScheme parse_prepend_scheme(JsonFields& fields) {
  const bool add_prefix_space = fields.boolean("add_prefix_space", true);
  const std::optional<std::string> name = fields.optional_string("prepend_scheme");
  if (!name) return add_prefix_space ? text::PrependScheme::always : text::PrependScheme::never;
  if (*name != "always" && *name != "first" && *name != "never") {
    fields.reject("prepend_scheme", "\"" + *name + "\" is not one of always, first, never");
  }
  if (!add_prefix_space && *name != "never") {
    fields.reject("add_prefix_space", "is false, but prepend_scheme is \"" + *name + "\"");
  }
  if (*name == "first") return text::PrependScheme::first;
  return *name == "never" ? text::PrependScheme::never : text::PrependScheme::always;
}

Status parse_normalizer(const json& value, const std::string& path, std::vector<text::NormalizerSpec>& out) {
  JsonFields fields(value, path);
  const std::string type = fields.string("type");
  if (type == "Sequence") return parse_list(fields, "normalizers", parse_normalizer, out);
  if (type == "Prepend") {
    out.emplace_back(text::PrependNormalizer{fields.string("prepend")});
  } else if (type == "Replace") {
    text::Pattern pattern = parse_pattern(fields);
    out.emplace_back(text::ReplaceNormalizer{std::move(pattern), fields.string("content")});
  } else if (type == "NFC") {
    out.emplace_back(text::UnicodeNormalizer{text::UnicodeForm::nfc});
  } else if (type == "NFD") {
    out.emplace_back(text::UnicodeNormalizer{text::UnicodeForm::nfd});
  } else if (type == "NFKC") {
    out.emplace_back(text::UnicodeNormalizer{text::UnicodeForm::nfkc});
  } else if (type == "NFKD") {
    out.emplace_back(text::UnicodeNormalizer{text::UnicodeForm::nfkd});
  } else if (type == "Strip") {
    const bool left = fields.boolean("strip_left");
    out.emplace_back(text::StripNormalizer{left, fields.boolean("strip_right")});
  } else if (type == "Lowercase") {
    out.emplace_back(text::LowercaseNormalizer{});
  } else {
    reject_type(fields, type, "Sequence, Prepend, Replace, NFC, NFD, NFKC, NFKD, Strip and Lowercase");
  }
  return fields.finish();
}

Status parse_pre_tokenizer(const json& value, const std::string& path, std::vector<text::PreTokenizerSpec>& out) {
  JsonFields fields(value, path);
  const std::string type = fields.string("type");
  if (type == "Sequence") return parse_list(fields, "pretokenizers", parse_pre_tokenizer, out);
  if (type == "ByteLevel") {
    fields.find("trim_offsets");  // affects offsets only, which are not computed
    const bool add_prefix_space = fields.boolean("add_prefix_space");
    out.emplace_back(text::ByteLevelPreTokenizer{add_prefix_space, fields.boolean("use_regex", true)});
  } else if (type == "Split") {
    text::SplitPreTokenizer split{parse_pattern(fields), {}, fields.boolean("invert")};
    split.behavior = parse_behavior(fields, fields.string("behavior"));
    out.emplace_back(std::move(split));
  } else if (type == "Digits") {
    out.emplace_back(text::DigitsPreTokenizer{fields.boolean("individual_digits")});
  } else if (type == "Metaspace") {
    fields.find("str_rep");  // a copy of replacement that older versions wrote
    text::MetaspacePreTokenizer metaspace{fields.character("replacement"), parse_prepend_scheme(fields), true};
    metaspace.split = fields.boolean("split", true);
    out.emplace_back(std::move(metaspace));
  } else if (type == "Whitespace") {
    out.emplace_back(text::WhitespacePreTokenizer{});
  } else if (type == "WhitespaceSplit") {
    out.emplace_back(text::WhitespaceSplitPreTokenizer{});
  } else if (type == "Punctuation") {
    const std::string behavior = fields.optional_string("behavior").value_or("Isolated");
    out.emplace_back(text::PunctuationPreTokenizer{parse_behavior(fields, behavior)});
  } else {
    reject_type(fields, type,
                "Sequence, ByteLevel, Split, Digits, Metaspace, Whitespace, WhitespaceSplit and Punctuation");
  }
  return fields.finish();
}

Status parse_decoder(const json& value, const std::string& path, std::vector<text::DecoderSpec>& out) {
  JsonFields fields(value, path);
  const std::string type = fields.string("type");
  if (type == "Sequence") return parse_list(fields, "decoders", parse_decoder, out);
  if (type == "ByteLevel") {
    // These keys affect encoding only; the tokenizers library writes them here too.
    for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) fields.boolean(key, true);
    out.emplace_back(text::ByteLevelDecoder{});
  } else if (type == "Replace") {
    text::Pattern pattern = parse_pattern(fields);
    out.emplace_back(text::ReplaceDecoder{std::move(pattern), fields.string("content")});
  } else if (type == "ByteFallback") {
    out.emplace_back(text::ByteFallbackDecoder{});
  } else if (type == "Fuse") {
    out.emplace_back(text::FuseDecoder{});
  } else if (type == "Strip") {
    text::StripDecoder strip{fields.character("content"), fields.natural("start"), 0};
    strip.stop = fields.natural("stop");
    out.emplace_back(std::move(strip));
  } else if (type == "Metaspace") {
    fields.find("str_rep");
    fields.boolean("split", true);  // affects encoding only
    std::string replacement = fields.character("replacement");
    out.emplace_back(text::MetaspaceDecoder{std::move(replacement), parse_prepend_scheme(fields)});
  } else {
    reject_type(fields, type, "Sequence, ByteLevel, Replace, ByteFallback, Fuse, Strip and Metaspace");
  }
  return fields.finish();
}

// Appends the ids that a template's special_tokens have for one of its names.
Status parse_special_token(const json& specials, const std::string& name, const std::string& path, TokenIds& out) {
  const auto special = specials.find(name);
  const std::string key = path + ".special_tokens." + name;
  if (special == specials.end()) return fail(ErrorCode::bad_config, key + ": is missing", key);
  JsonFields fields(*special, key);
  fields.string("id");
  const json* ids = fields.require("ids");
  const json* tokens = fields.require("tokens");
  if (ids != nullptr && !ids->is_array()) fields.reject("ids", "is not a list");
  if (ids != nullptr && tokens != nullptr && (!tokens->is_array() || tokens->size() != ids->size())) {
    fields.reject("tokens", "is not a list of as many tokens as ids");
  }
  if (Status status = fields.finish(); !status) return status;
  for (const json& id : *ids) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > std::numeric_limits<TokenId>::max()) {
      return fail(ErrorCode::bad_config, key + ".ids: is not a list of token ids", key + ".ids");
    }
    out.push_back(id.get<TokenId>());
  }
  return {};
}

Status parse_template_piece(const json& value, const std::string& path, const json& specials,
                            const std::string& template_path, text::TemplateSpec& out) {
  JsonFields piece(value, path);
  const json* text_piece = piece.find("Sequence");
  const json* special_piece = piece.find("SpecialToken");
  if ((text_piece == nullptr) == (special_piece == nullptr)) {
    piece.reject("", "is neither a Sequence nor a SpecialToken");
  }
  if (Status status = piece.finish(); !status) return status;
  JsonFields fields(text_piece != nullptr ? *text_piece : *special_piece,
                    piece.path_of(text_piece != nullptr ? "Sequence" : "SpecialToken"));
  const std::string id = fields.string("id");
  fields.natural("type_id", 0);
  if (text_piece != nullptr && id != "A") fields.reject("id", "is not \"A\", the only text there is");
  if (Status status = fields.finish(); !status) return status;
  text::TemplatePiece& added = out.emplace_back();
  added.is_text = text_piece != nullptr;
  return added.is_text ? Status() : parse_special_token(specials, id, template_path, added.ids);
}

Status parse_post_processor(const json& value, const std::string& path, std::vector<text::TemplateSpec>& out) {
  JsonFields fields(value, path);
  const std::string type = fields.string("type");
  if (type == "Sequence") return parse_list(fields, "processors", parse_post_processor, out);
  if (type == "ByteLevel") {
    // Trims offsets, which are not computed; ids do not change.
    for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) fields.boolean(key, true);
    return fields.finish();
  }
  if (type != "TemplateProcessing") {
    reject_type(fields, type, "Sequence, ByteLevel and TemplateProcessing");
    return fields.finish();
  }
  fields.find("pair");  // for pairs of texts, which this engine does not have
  const json* specials = fields.require("special_tokens");
  if (specials != nullptr && !specials->is_object()) fields.reject("special_tokens", "is not an object");
  text::TemplateSpec pieces;
  const auto parse_piece = [&](const json& piece, const std::string& piece_path, text::TemplateSpec& spec) {
    return parse_template_piece(piece, piece_path, *specials, path, spec);
  };
  if (Status status = parse_list(fields, "single", parse_piece, pieces); !status) return status;
  out.push_back(std::move(pieces));
  return {};
}

Status parse_added_token(const json& value, const std::string& path, std::vector<text::AddedToken>& out) {
  JsonFields fields(value, path);
  text::AddedToken token;
  token.id = fields.natural("id");
  token.content = fields.string("content");
  token.single_word = fields.boolean("single_word");
  token.lstrip = fields.boolean("lstrip");
  token.rstrip = fields.boolean("rstrip");
  token.normalized = fields.boolean("normalized");
  token.special = fields.boolean("special");
  if (token.content.empty()) fields.reject("content", "is empty");
  out.push_back(std::move(token));
  return fields.finish();
}

// Reads the model's settings; its vocabulary and merges are in `document` already.
Status parse_model(const json& value, tokenizer_file::TokenizerDocument& document) {
  JsonFields fields(value, "model");
  if (!value.is_object()) return fields.finish();
  // Files from the format's first years have no type; with merges they are BPE.
  const std::string type = fields.optional_string("type").value_or(document.has_merges ? "BPE" : "");
  if (type != "BPE") {
    return fail(ErrorCode::unsupported, "model.type: \"" + type + "\" is not supported; only BPE is", "model.type");
  }
  if (!document.has_vocab) fields.reject("vocab", "is missing or not an object");
  if (!document.has_merges) fields.reject("merges", "is missing or not a list");
  if (const json* dropout = fields.find("dropout"); dropout != nullptr && *dropout != 0) {
    fields.reject("dropout", "is not supported; only null is", ErrorCode::unsupported);
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!fields.optional_string(key).value_or("").empty()) {
      fields.reject(key, "is not supported; only \"\" or null is", ErrorCode::unsupported);
    }
  }
  document.bpe.unk_token = fields.optional_string("unk_token");
  document.bpe.fuse_unk = fields.boolean("fuse_unk", false);
  document.bpe.byte_fallback = fields.boolean("byte_fallback", false);
  document.bpe.ignore_merges = fields.boolean("ignore_merges", false);
  return fields.finish();
}

Result<text::TokenizerSpec> parse_document(std::string_view text) {
  Result<tokenizer_file::TokenizerDocument> document = tokenizer_file::read_tokenizer_document(text);
  if (!document) return fail(std::move(document.error()));
  JsonFields fields(document->rest, "");
  text::TokenizerSpec spec;
  if (const auto version = fields.optional_string("version"); version && *version != "1.0") {
    fields.reject("version", "\"" + *version + "\" is not supported; only \"1.0\" is", ErrorCode::unsupported);
  }
  // Both are for training batches. Transformers and vLLM turn them off too.
  for (const char* key : {"truncation", "padding"}) fields.find(key);
  const json* added_tokens = fields.find("added_tokens");
  if (added_tokens != nullptr && !added_tokens->is_array()) fields.reject("added_tokens", "is not a list");
  const json* model = fields.require("model");
  const json* normalizer = fields.find("normalizer");
  const json* pre_tokenizer = fields.find("pre_tokenizer");
  const json* post_processor = fields.find("post_processor");
  const json* decoder = fields.find("decoder");
  Status status = fields.finish();
  if (status) status = parse_model(*model, *document);
  for (std::size_t i = 0; status && added_tokens != nullptr && i < added_tokens->size(); ++i) {
    status = parse_added_token((*added_tokens)[i], item_path("added_tokens", i), spec.added_tokens);
  }
  if (status && normalizer != nullptr) status = parse_normalizer(*normalizer, "normalizer", spec.normalizers);
  if (status && pre_tokenizer != nullptr) {
    status = parse_pre_tokenizer(*pre_tokenizer, "pre_tokenizer", spec.pre_tokenizers);
  }
  if (status && post_processor != nullptr) {
    status = parse_post_processor(*post_processor, "post_processor", spec.post_processors);
  }
  if (status && decoder != nullptr) status = parse_decoder(*decoder, "decoder", spec.decoders.emplace());
  if (!status) return fail(status.error());
  spec.model = std::move(document->bpe);
  return spec;
}

}  // namespace

Result<text::TokenizerSpec> parse_tokenizer_json(std::string_view json_text, std::string_view file_name) {
  Result<text::TokenizerSpec> spec = parse_document(json_text);
  if (spec) return spec;
  Error error = std::move(spec.error());
  error.message = tokenizer_file::one_line(std::string(file_name) + ": " + error.message);
  return fail(std::move(error));
}

Result<text::TokenizerSpec> read_tokenizer_json(const std::filesystem::path& path) {
  const Result<std::string> bytes = tokenizer_file::read_file(path, kMaxTokenizerBytes);
  if (!bytes) return fail(bytes.error());
  return parse_tokenizer_json(*bytes, path.string());
}

}  // namespace pagoda::io
