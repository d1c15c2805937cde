#include "io/model_files/torch/torch_pickle.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "engine/text/unicode.hpp"
#include "io/model_files/file_text.hpp"
#include "io/model_files/little_endian.hpp"
#include "io/model_files/tensor_entry.hpp"
#include "io/model_files/torch/pickle_opcodes.hpp"
#include "io/model_files/torch/torch_globals.hpp"

namespace pagoda::io {
namespace {

/// A Python object. Small and flat: texts point into the pickle, and containers are in lists of their own kind, so that
/// an object may be in several containers, itself included, without recursion.
struct Value {
  enum class Kind : std::uint8_t { none, boolean, integer, real, text, global, tuple, list, dict, storage, tensor };
  Kind kind = Kind::none;
  std::int64_t number = 0;  // a boolean or an integer; else the index in the list of this kind
  std::string_view text = {};
  TorchGlobal global = {};
};

using Kind = Value::Kind;
using Values = std::span<const Value>;

const char* kind_name(Kind kind) {
  static constexpr std::array kNames{"None",    "a bool", "an int", "a float",   "a str",   "a global",
                                     "a tuple", "a list", "a dict", "a storage", "a tensor"};
  return kNames[static_cast<std::size_t>(kind)];
}

struct Dict {
  std::vector<std::pair<Value, Value>> items;
  bool ordered = false;  // whether it is an OrderedDict, which may have attributes
};

class Interpreter {
 public:
  Interpreter(std::span<const std::byte> pickle, std::string_view file_name) : pickle_(pickle), file_name_(file_name) {}

  Result<PickledTensors> run() {
    if (pickle_.size() > kMaxPickleBytes) {
      stop(std::to_string(pickle_.size()) + " bytes are more than the limit of " + std::to_string(kMaxPickleBytes));
    }
    for (std::size_t count = 0; !stopped_ && !error_; ++count) {
      if (count == kMaxPickleOpcodes) {
        stop("there are more than " + std::to_string(kMaxPickleOpcodes) + " opcodes");
        break;
      }
      start_ = position_;
      if (position_ == pickle_.size()) {
        stop("it ends without STOP");
        break;
      }
      opcode_ = std::to_integer<std::uint8_t>(pickle_[position_++]);
      if ((count == 0) != (opcode_ == kProto)) {
        stop(count == 0 ? "it does not begin with PROTO" : "PROTO is not at the beginning");
        break;
      }
      step();
    }
    if (error_) return fail(std::move(*error_));
    return state_dict();
  }

 private:
  /// Ends the run. Functions that return bool return false after calling this.
  bool stop(const std::string& reason, ErrorCode code = ErrorCode::bad_file) {
    if (!error_) error_ = Error{code, std::string(file_name_) + ": data.pkl: " + reason};
    return false;
  }

  bool bad(const std::string& reason) { return stop(where() + ": " + reason); }

  std::string where() const {
    const auto name = opcode_name(opcode_);
    return "opcode " + (name.empty() ? std::to_string(opcode_) : std::string(name)) + " at byte " +
           std::to_string(start_);
  }

  bool step() {
    switch (opcode_) {
      case kProto:
        return protocol();
      case kFrame:
        return frame();
      case kStop:
        return finish();
      case kMark:
        marks_.push_back(stack_.size());
        return marks_.size() <= kMaxPickleStack || bad("the stack is too deep");
      case kPop: {
        Value ignored;
        return pop(ignored);
      }
      case kNone:
        return push({});
      case kNewtrue:
      case kNewfalse:
        return push({.kind = Kind::boolean, .number = opcode_ == kNewtrue});
      case kBinint:
      case kBinint1:
      case kBinint2:
      case kLong1:
        return integer();
      case kBinfloat: {
        std::span<const std::byte> ignored;
        return take_bytes(8, ignored) && push({.kind = Kind::real});
      }
      case kShortBinunicode:
        return text(1);
      case kBinunicode:
        return text(4);
      case kBinunicode8:
        return text(8);
      case kGlobal:
        return global();
      case kStackGlobal:
        return stack_global();
      case kEmptyTuple:
        return push_tuple({});
      case kTuple1:
      case kTuple2:
      case kTuple3:
        return last_as_tuple(1U + opcode_ - kTuple1);
      case kTuple:
        return !marks_.empty() ? last_as_tuple(stack_.size() - marks_.back()) && pop_mark() : bad("there is no MARK");
      case kEmptyList:
        return push({.kind = Kind::list});
      case kAppend:
        return append(1);
      case kAppends:
        return !marks_.empty() ? from_mark(&Interpreter::append) : bad("there is no MARK");
      case kEmptyDict:
        return push_dict(false);
      case kSetitem:
        return set_items(2);
      case kSetitems:
        return !marks_.empty() ? from_mark(&Interpreter::set_items) : bad("there is no MARK");
      case kBinput:
        return put(1);
      case kLongBinput:
        return put(4);
      case kMemoize:
        return memoize(memo_.size());
      case kBinget:
        return get(1);
      case kLongBinget:
        return get(4);
      case kBinpersid:
        return storage();
      case kReduce:
        return reduce();
      case kBuild:
        return build();
      default:
        return opcode_name(opcode_).empty()
                   ? bad("this is not a pickle opcode")
                   : stop(where() + " is refused: only descriptions of tensors are read", ErrorCode::unsupported);
    }
  }

  // ---- bytes and stack ----

  bool take_bytes(std::uint64_t count, std::span<const std::byte>& bytes) {
    if (count > pickle_.size() - position_) return bad("the pickle ends in the middle of it");
    bytes = pickle_.subspan(position_, count);
    position_ += count;
    return true;
  }

  bool take_number(std::uint64_t bytes, std::uint64_t& value) {
    std::span<const std::byte> raw;
    if (!take_bytes(bytes, raw)) return false;
    value = little_endian(raw);
    return true;
  }

  bool push(Value value) {
    if (stack_.size() == kMaxPickleStack) return bad("the stack is too deep");
    stack_.push_back(value);
    return true;
  }

  /// Returns the last `count` objects above the last MARK; they stay on the stack.
  bool last(std::size_t count, Values& values) {
    const std::size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() - floor < count) return bad("the stack holds too few objects");
    values = Values(stack_).last(count);
    return true;
  }

  bool pop(Value& value) {
    Values values;
    if (!last(1, values)) return false;
    value = values[0];
    stack_.pop_back();
    return true;
  }

  bool pop_mark() {
    marks_.pop_back();
    return true;
  }

  /// Applies `what` to the objects above the last MARK and removes the MARK.
  bool from_mark(bool (Interpreter::*what)(std::size_t)) {
    const std::size_t count = stack_.size() - marks_.back();
    return pop_mark() && (this->*what)(count);
  }

  bool expect(const Value& value, Kind kind, const char* what) {
    return value.kind == kind ||
           bad(std::string(what) + " must be " + kind_name(kind) + ", not " + kind_name(value.kind));
  }

  // ---- simple instructions ----

  bool protocol() {
    std::uint64_t version = 0;
    if (!take_number(1, version)) return false;
    return (version >= 2 && version <= 5) ||
           stop("pickle protocol " + std::to_string(version) + " is not supported (2 to 5 are)",
                ErrorCode::unsupported);
  }

  bool frame() {
    std::uint64_t bytes = 0;
    if (!take_number(8, bytes)) return false;
    return bytes <= pickle_.size() - position_ || bad("it is longer than the pickle");
  }

  bool finish() {
    if (!marks_.empty() || stack_.size() != 1) return bad("the stack must hold one object");
    if (position_ != pickle_.size()) return bad("more bytes follow");
    stopped_ = true;
    return true;
  }

  bool integer() {
    std::uint64_t bytes = opcode_ == kBinint ? 4 : opcode_ == kBinint2 ? 2 : 1;
    std::uint64_t raw = 0;
    if (!take_number(bytes, raw)) return false;
    if (opcode_ == kLong1) {
      bytes = raw;
      if (bytes > 8) return bad("the number has more than 64 bits");
      if (!take_number(bytes, raw)) return false;
    }
    const bool is_signed = opcode_ == kBinint || opcode_ == kLong1;
    if (is_signed && bytes > 0 && bytes < 8 && (raw >> (8 * bytes - 1)) != 0) raw |= ~std::uint64_t{0} << (8 * bytes);
    return push({.kind = Kind::integer, .number = static_cast<std::int64_t>(raw)});
  }

  bool text(std::uint64_t length_bytes) {
    std::uint64_t length = 0;
    std::span<const std::byte> bytes;
    if (!take_number(length_bytes, length) || !take_bytes(length, bytes)) return false;
    return push({.kind = Kind::text, .text = {reinterpret_cast<const char*>(bytes.data()), bytes.size()}});
  }

  bool line(std::string_view& text) {
    const auto rest = pickle_.subspan(position_);
    const auto end = std::ranges::find(rest, std::byte{'\n'});
    if (end == rest.end()) return bad("the pickle ends in the middle of it");
    const auto length = static_cast<std::size_t>(end - rest.begin());
    text = {reinterpret_cast<const char*>(rest.data()), length};
    position_ += length + 1;
    return true;
  }

  bool global() {
    std::string_view module;
    std::string_view name;
    return line(module) && line(name) && push_global(module, name);
  }

  bool stack_global() {
    Value name;
    Value module;
    return pop(name) && pop(module) && expect(name, Kind::text, "the name") &&
           expect(module, Kind::text, "the module") && push_global(module.text, name.text);
  }

  bool push_global(std::string_view module, std::string_view name) {
    const auto found = find_torch_global(module, name);
    if (!found) {
      const std::string full_name = std::string(module) + "." + std::string(name);
      return stop(
          where() + " refers to " + quote(full_name) + ", which is refused: only descriptions of tensors are read",
          ErrorCode::unsupported);
    }
    return push({.kind = Kind::global, .global = *found});
  }

  // ---- containers ----

  bool push_tuple(Values values) {
    tuples_.emplace_back(values.begin(), values.end());
    return push({.kind = Kind::tuple, .number = static_cast<std::int64_t>(tuples_.size() - 1)});
  }

  bool last_as_tuple(std::size_t count) {
    Values values;
    if (!last(count, values)) return false;
    tuples_.emplace_back(values.begin(), values.end());
    stack_.resize(stack_.size() - count);
    return push({.kind = Kind::tuple, .number = static_cast<std::int64_t>(tuples_.size() - 1)});
  }

  const std::vector<Value>& tuple(const Value& value) const { return tuples_[static_cast<std::size_t>(value.number)]; }

  /// Drops the elements of a list: tensors in a list have no name, so they are never used.
  bool append(std::size_t count) {
    Values values;
    if (!last(count + 1, values) || !expect(values[0], Kind::list, "what it adds to")) return false;
    stack_.resize(stack_.size() - count);
    return true;
  }

  bool push_dict(bool ordered) {
    dicts_.push_back({{}, ordered});
    return push({.kind = Kind::dict, .number = static_cast<std::int64_t>(dicts_.size() - 1)});
  }

  Dict& dict(const Value& value) { return dicts_[static_cast<std::size_t>(value.number)]; }

  /// Adds the last `count` objects as keys and values to the dict before them.
  bool set_items(std::size_t count) {
    Values values;
    if (count % 2 != 0) return bad("a key has no value");
    if (!last(count + 1, values) || !expect(values[0], Kind::dict, "what it adds to")) return false;
    auto& items = dict(values[0]).items;
    for (std::size_t i = 1; i < values.size(); i += 2) items.emplace_back(values[i], values[i + 1]);
    stack_.resize(stack_.size() - count);
    return true;
  }

  bool memoize(std::uint64_t key) {
    Values values;
    if (!last(1, values)) return false;
    memo_[key] = values[0];
    return true;
  }

  bool put(std::uint64_t key_bytes) {
    std::uint64_t key = 0;
    return take_number(key_bytes, key) && memoize(key);
  }

  bool get(std::uint64_t key_bytes) {
    std::uint64_t key = 0;
    if (!take_number(key_bytes, key)) return false;
    const auto found = memo_.find(key);
    return found != memo_.end() ? push(found->second) : bad("there is no memo entry " + std::to_string(key));
  }

  // ---- tensors ----

  /// Replaces ("storage", class, key, device, number of elements) by a storage.
  bool storage() {
    Value id;
    if (!pop(id) || !expect(id, Kind::tuple, "the persistent id")) return false;
    const auto& parts = tuple(id);
    if (parts.size() != 5 || parts[0].kind != Kind::text || parts[0].text != "storage") {
      return bad("the persistent id is not that of a storage");
    }
    if (!expect(parts[1], Kind::global, "the storage's class") || !expect(parts[2], Kind::text, "the storage's key") ||
        !expect(parts[3], Kind::text, "the storage's device") || !expect(parts[4], Kind::integer, "the storage's size"))
      return false;
    const auto& type = parts[1].global;
    const bool typed = type.kind == TorchGlobal::Kind::typed_storage;
    if (!typed && type.kind != TorchGlobal::Kind::untyped_storage) return bad("this global is not a class of storages");
    PickledTensor whole;
    whole.storage = parts[2].text;
    whole.storage_size = parts[4].number;
    whole.storage_element_bytes = typed ? type.dtype->element_bytes : 1;
    if (typed) whole.dtype = type.dtype->name;
    storages_.push_back(std::move(whole));
    return push({.kind = Kind::storage, .number = static_cast<std::int64_t>(storages_.size() - 1)});
  }

  /// Replaces a function and the tuple of its arguments by its result.
  bool reduce() {
    Value arguments;
    Value function;
    if (!pop(arguments) || !pop(function) || !expect(arguments, Kind::tuple, "the arguments") ||
        !expect(function, Kind::global, "the function"))
      return false;
    const Values values = tuple(arguments);
    switch (function.global.kind) {
      case TorchGlobal::Kind::ordered_dict:
        return values.empty() ? push_dict(true) : bad("OrderedDict must have no arguments");
      case TorchGlobal::Kind::rebuild_tensor_v2:
        return rebuild_tensor(values, false);
      case TorchGlobal::Kind::rebuild_tensor_v3:
        return rebuild_tensor(values, true);
      case TorchGlobal::Kind::rebuild_parameter:
        if (values.size() != 3) return bad("_rebuild_parameter must have 3 arguments");
        return expect(values[0], Kind::tensor, "a parameter's data") && push(values[0]);
      default:
        return bad("this global is not a function");
    }
  }

  /// Arguments: (storage, offset, size, stride, requires_grad, backward_hooks), a dtype in version 3, and optionally
  /// metadata of the tensor, a negated or conjugated view for example, which must be empty.
  bool rebuild_tensor(Values values, bool has_dtype) {
    const std::size_t needed = has_dtype ? 7 : 6;
    if (values.size() != needed && values.size() != needed + 1) {
      return bad("a tensor must have " + std::to_string(needed) + " arguments, not " + std::to_string(values.size()));
    }
    if (!expect(values[0], Kind::storage, "a tensor's storage") ||
        !expect(values[1], Kind::integer, "a tensor's offset") || (has_dtype && !is_dtype(values[6])))
      return false;
    PickledTensor tensor = storages_[static_cast<std::size_t>(values[0].number)];
    if (tensor.dtype.empty() != has_dtype) return bad("the storage's class does not fit the function");
    if (has_dtype) tensor.dtype = values[6].global.dtype->name;
    tensor.element_bytes = has_dtype ? values[6].global.dtype->element_bytes : tensor.storage_element_bytes;
    tensor.offset = values[1].number;
    if (!integers(values[2], "a tensor's size", tensor.shape) ||
        !integers(values[3], "a tensor's stride", tensor.strides))
      return false;
    if (values.size() > needed && !is_empty_value(values.back())) {
      return stop(where() + ": a tensor with metadata is not supported", ErrorCode::unsupported);
    }
    tensors_.push_back(std::move(tensor));
    return push({.kind = Kind::tensor, .number = static_cast<std::int64_t>(tensors_.size() - 1)});
  }

  bool is_dtype(const Value& value) {
    return (value.kind == Kind::global && value.global.kind == TorchGlobal::Kind::dtype) ||
           bad("a tensor's dtype must be a dtype of torch");
  }

  bool integers(const Value& value, const char* what, std::vector<std::int64_t>& numbers) {
    if (!expect(value, Kind::tuple, what)) return false;
    if (tuple(value).size() > kMaxTensorRank) {
      return bad(std::string(what) + " has more than " + std::to_string(kMaxTensorRank) + " entries");
    }
    for (const auto& number : tuple(value)) {
      if (!expect(number, Kind::integer, what)) return false;
      numbers.push_back(number.number);
    }
    return true;
  }

  bool is_empty_value(const Value& value) {
    return value.kind == Kind::none || (value.kind == Kind::dict && dict(value).items.empty());
  }

  /// Accepts attributes of an OrderedDict: the versions of modules, which are not used.
  bool build() {
    Value state;
    Values values;
    if (!pop(state) || !last(1, values)) return false;
    return (values[0].kind == Kind::dict && dict(values[0]).ordered && state.kind == Kind::dict) ||
           bad("only an OrderedDict has attributes, and they are a dict");
  }

  // ---- the result ----

  Result<PickledTensors> state_dict() {
    const Value& root = stack_.back();
    if (root.kind != Kind::dict) {
      stop(std::string("it holds ") + kind_name(root.kind) + ", not a dict of tensors");
      return fail(std::move(*error_));
    }
    PickledTensors tensors;
    if (!collect(dict(root), tensors)) return fail(std::move(*error_));
    if (!tensors.empty()) return tensors;
    for (const char* name : {"state_dict", "model"}) {
      for (const auto& [key, value] : dict(root).items) {
        if (key.kind != Kind::text || key.text != name || value.kind != Kind::dict) continue;
        if (!collect(dict(value), tensors)) return fail(std::move(*error_));
        if (!tensors.empty()) return tensors;
      }
    }
    stop("it holds no tensors, nor do \"state_dict\" and \"model\" in it");
    return fail(std::move(*error_));
  }

  bool collect(const Dict& from, PickledTensors& tensors) {
    for (const auto& [key, value] : from.items) {
      if (value.kind != Kind::tensor) continue;
      if (key.kind != Kind::text) return stop(std::string("the name of a tensor is ") + kind_name(key.kind));
      if (text::find_invalid_utf8(key.text) != std::string_view::npos) return stop("the name of a tensor is not UTF-8");
      if (!tensors.emplace(key.text, tensors_[static_cast<std::size_t>(value.number)]).second) {
        return stop("tensor " + quote(key.text) + " occurs twice");
      }
    }
    return true;
  }

  std::span<const std::byte> pickle_;
  std::string_view file_name_;
  std::size_t position_ = 0;
  std::size_t start_ = 0;  // begin of the instruction
  std::uint8_t opcode_ = 0;
  bool stopped_ = false;
  std::optional<Error> error_;  // the first error

  std::vector<Value> stack_;
  std::vector<std::size_t> marks_;  // sizes of the stack at each MARK
  std::unordered_map<std::uint64_t, Value> memo_;
  std::vector<std::vector<Value>> tuples_;
  std::vector<Dict> dicts_;
  std::vector<PickledTensor> storages_;  // only the fields of a storage are set
  std::vector<PickledTensor> tensors_;
};

}  // namespace

Result<PickledTensors> read_torch_pickle(std::span<const std::byte> pickle, std::string_view file_name) {
  return Interpreter(pickle, file_name).run();
}

}  // namespace pagoda::io
