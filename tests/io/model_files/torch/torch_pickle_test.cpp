#include "io/model_files/torch/torch_pickle.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/safetensors_file.hpp"
#include "tests/support/torch_file.hpp"

namespace pagoda::io {
namespace {

using namespace std::string_literals;
using test::bytes_of;
using test::little;
using test::pickle_dict;
using test::pickle_int;
using test::pickle_ints;
using test::pickle_storage;
using test::pickle_tensor;
using test::pickle_text;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kTensor = pickle_tensor({{2, 3}, {3, 1}});

/// `rest` after the PROTO of protocol 2.
std::string program(const std::string& rest) {
  return "\x80\x02" + rest;
}

TEST(TorchPickle, ATensorIsAViewOfAStorage) {
  const auto pickle = pickle_dict({{"w", pickle_tensor({{2, 3}, {1, 2}, 4, "17", 10, "HalfStorage"})}});
  const auto tensors = read_torch_pickle(bytes_of(pickle), "w.bin");
  ASSERT_TRUE(tensors) << tensors.error().message;
  ASSERT_EQ(tensors->size(), 1U);
  const auto& tensor = tensors->at("w");
  EXPECT_EQ(tensor.dtype, "F16");
  EXPECT_EQ(tensor.element_bytes, 2);
  EXPECT_EQ(tensor.storage, "17");
  EXPECT_EQ(tensor.storage_size, 10);
  EXPECT_EQ(tensor.offset, 4);
  EXPECT_THAT(tensor.shape, ::testing::ElementsAre(2, 3));
  EXPECT_THAT(tensor.strides, ::testing::ElementsAre(1, 2));
}

TEST(TorchPickle, NumbersOfEveryWidthKeepTheirSign) {
  const std::string storage = pickle_storage({});
  const std::string head = "ctorch._utils\n_rebuild_tensor_v2\n(" + storage;
  const std::string sizes =
      "(K\xffM\xff\xffJ\xfe\xff\xff\xff\x8a\x00\x8a\x01\xff\x8a\x02\xff\x00\x8a\x03\x00\x00\x80t"s;
  const auto pickle = pickle_dict({{"w", head + "J" + little(0xffffffff, 4) + sizes + sizes + "\x89NtR"}});
  const auto tensors = read_torch_pickle(bytes_of(pickle), "w.bin");
  ASSERT_TRUE(tensors) << tensors.error().message;
  EXPECT_EQ(tensors->at("w").offset, -1);
  EXPECT_THAT(tensors->at("w").shape, ::testing::ElementsAre(255, 65535, -2, 0, -1, 255, -8388608));
}

TEST(TorchPickle, TheTensorsOfTheOuterDictComeFirst) {
  const std::string inner = "}" + pickle_text("a") + kTensor + "s";
  const auto both = pickle_dict({{"state_dict", inner}, {"b", kTensor}});
  const auto outer = read_torch_pickle(bytes_of(both), "w.bin");
  ASSERT_TRUE(outer) << outer.error().message;
  EXPECT_TRUE(outer->contains("b"));
  EXPECT_EQ(outer->size(), 1U);
  for (const char* name : {"state_dict", "model"}) {
    const auto nested = pickle_dict({{"epoch", "K\x03"}, {name, inner}});
    const auto tensors = read_torch_pickle(bytes_of(nested), "w.bin");
    ASSERT_TRUE(tensors) << tensors.error().message;
    EXPECT_TRUE(tensors->contains("a"));
  }
}

TEST(TorchPickle, AnObjectMayHoldItself) {
  const auto pickle = program("}q\x01(" + pickle_text("self") + "h\x01" + pickle_text("state_dict") + "h\x01" +
                              pickle_text("w") + kTensor + "u.");
  EXPECT_TRUE(read_torch_pickle(bytes_of(pickle), "w.bin"));
}

struct BadPickle {
  std::string name;
  std::string pickle;
  std::string message;
  ErrorCode code = ErrorCode::bad_file;
};

void PrintTo(const BadPickle& bad, std::ostream* out) {
  *out << bad.name;
}

class BadPickles : public ::testing::TestWithParam<BadPickle> {};

TEST_P(BadPickles, AreRefusedWithOneLineThatNamesOpcodeOrGlobal) {
  const auto tensors = read_torch_pickle(bytes_of(GetParam().pickle), "w.bin");
  ASSERT_FALSE(tensors);
  EXPECT_EQ(tensors.error().code, GetParam().code);
  EXPECT_THAT(tensors.error().message, HasSubstr(GetParam().message));
  EXPECT_THAT(tensors.error().message, ::testing::StartsWith("w.bin: data.pkl: "));
  EXPECT_THAT(tensors.error().message, Not(HasSubstr("\n")));
  EXPECT_LT(tensors.error().message.size(), 400U);
}

/// What others use to make an unpickler run something, each refused at its first step.
std::vector<BadPickle> attacks() {
  const auto refused = [](const std::string& name, const std::string& rest, const std::string& message) {
    return BadPickle{name, program(rest), message, ErrorCode::unsupported};
  };
  return {
      refused("OsSystem", "cos\nsystem\n(X\x02\0\0\0lstR."s,
              "opcode GLOBAL at byte 2 refers to \"os.system\", which is refused"),
      refused("PosixSystem", "cposix\nsystem\n.", "\"posix.system\", which is refused"),
      refused("Eval", "c__builtin__\neval\n.", "\"__builtin__.eval\", which is refused"),
      refused("Getattr", "cbuiltins\ngetattr\n.", "\"builtins.getattr\", which is refused"),
      refused("StackGlobal", "\x8c\x02os\x8c\x06system\x93.", "opcode STACK_GLOBAL at byte 14 refers to \"os.system\""),
      refused("StackGlobalOfSubprocess", "\x8c\nsubprocess\x8c\x05Popen\x93.", "\"subprocess.Popen\""),
      refused("TorchLoad", "ctorch\nload\n.", "\"torch.load\""),
      refused("TorchHub", "ctorch.hub\nload\n.", "\"torch.hub.load\""),
      refused("NearlyAllowed", "ctorch._utils\n_rebuild_tensor_v2.__globals__\n.", "_rebuild_tensor_v2.__globals__"),
      refused("EmptyName", "ctorch\n\n.", "\"torch.\", which is refused"),
      refused("ControlCharacters", "co\x1bs\nsys\rtem\n.", "\"o\\x1bs.sys\\x0dtem\""),
      refused("LongName", "c" + std::string(5000, 'o') + "\nsystem\n.", "ooo...\", which is refused"),
      refused("Inst", "(X\x02\0\0\0lsios\nsystem\n."s, "opcode INST at byte 10 is refused"),
      refused("Obj", "(o.", "opcode OBJ at byte 3 is refused"),
      refused("Newobj", "ccollections\nOrderedDict\n)\x81.", "opcode NEWOBJ at byte 28 is refused"),
      refused("NewobjEx", "\x92.", "opcode NEWOBJ_EX at byte 2 is refused"),
      refused("Ext1", "\x82\x01.", "opcode EXT1 at byte 2 is refused"),
      refused("Ext4", "\x84\x01\0\0\0."s, "opcode EXT4"),
      refused("Persid", "Pid\n.", "opcode PERSID"),
      refused("Dup", "}2.", "opcode DUP"),
      refused("TextInt", "I1\n.", "opcode INT "),
      refused("TextString", "S'a'\n.", "opcode STRING "),
      refused("TextGet", "g0\n.", "opcode GET "),
      refused("NextBuffer", "\x97.", "opcode NEXT_BUFFER"),
      refused("Bytearray", "\x96.", "opcode BYTEARRAY8"),
      refused("Long4", "\x8b\x01\0\0\0\x01."s, "opcode LONG4"),
      {"Protocol0", "(dp0\n.", "it does not begin with PROTO"},
      {"Protocol1", "\x80\x01}.", "pickle protocol 1 is not supported", ErrorCode::unsupported},
      {"Protocol6", "\x80\x06}.", "pickle protocol 6 is not supported", ErrorCode::unsupported},
  };
}

std::vector<BadPickle> malformed() {
  const auto tensor = [](const std::string& arguments) {
    return program("ctorch._utils\n_rebuild_tensor_v2\n(" + arguments + "tR.");
  };
  const std::string rest = pickle_int(0) + pickle_ints({2}) + pickle_ints({1}) + "\x89N";
  return {
      {"Empty", "", "it ends without STOP"},
      {"OnlyProto", program(""), "it ends without STOP"},
      {"NoStop", program("}"), "it ends without STOP"},
      {"ProtoTwice", program("\x80\x02}."), "PROTO is not at the beginning"},
      {"NoOpcode", program("\xff."), "opcode 255 at byte 2: this is not a pickle opcode"},
      {"BytesAfterStop", program("}.}"), "opcode STOP at byte 3: more bytes follow"},
      {"StopOnNothing", program("."), "opcode STOP at byte 2: the stack must hold one object"},
      {"StopOnTwo", program("}}."), "the stack must hold one object"},
      {"StopInMark", program("}(."), "the stack must hold one object"},
      {"TextTooLong",
       program("X\xff\xff\xff\x7f"
               "abc"),
       "opcode BINUNICODE at byte 2: the pickle ends in the middle of it"},
      {"TextOf64BitsTooLong", program("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"), "opcode BINUNICODE8 at byte 2: the"},
      {"FrameTooLong", program("\x95\xff\0\0\0\0\0\0\0}."s), "opcode FRAME at byte 2: it is longer than the pickle"},
      {"LineWithoutEnd", program("ctorch"), "opcode GLOBAL at byte 2: the pickle ends in the middle of it"},
      {"LongTooLong", program("\x8a\x09" + std::string(9, 'x') + "."), "the number has more than 64 bits"},
      {"PopOfNothing", program("0."), "opcode POP at byte 2: the stack holds too few objects"},
      {"PopUnderMark", program("}(0."), "opcode POP at byte 4: the stack holds too few objects"},
      {"TupleWithoutMark", program("t."), "opcode TUPLE at byte 2: there is no MARK"},
      {"SetitemsWithoutMark", program("}u."), "opcode SETITEMS at byte 3: there is no MARK"},
      {"AppendsWithoutMark", program("]e."), "opcode APPENDS at byte 3: there is no MARK"},
      {"Tuple2OfOne", program("N\x86."), "opcode TUPLE2 at byte 3: the stack holds too few"},
      {"SetitemOnList", program("]NNs."), "opcode SETITEM at byte 5: what it adds to must be a dict, not a list"},
      {"SetitemsOdd", program("}(Nu."), "opcode SETITEMS at byte 5: a key has no value"},
      {"AppendToDict", program("}Na."), "opcode APPEND at byte 4: what it adds to must be a list, not a dict"},
      {"UnknownMemo", program("h\x05."), "opcode BINGET at byte 2: there is no memo entry 5"},
      {"UnknownLongMemo", program("j\xff\xff\xff\xff."), "there is no memo entry 4294967295"},
      {"MemoOfNothing", program("\x94."), "opcode MEMOIZE at byte 2: the stack holds too few"},
      {"StackGlobalOfNumbers", program("K\1K\2\x93."), "opcode STACK_GLOBAL at byte 6: the name must be a str, not an"},
      {"DeepStack", program(std::string(kMaxPickleStack + 1, 'N')), "opcode NONE at byte 1000002: the stack is too"},
      {"DeepMarks", program(std::string(kMaxPickleStack + 1, '(')), "opcode MARK at byte 1000002: the stack is too"},
      {"TooManyOpcodes",
       [] {
         std::string loop;
         for (std::size_t i = 0; i < kMaxPickleOpcodes / 2; ++i) loop += "N0";
         return program(loop + "}.");
       }(),
       "there are more than 4000000 opcodes"},
      {"CallOfDict", program("})R."), "opcode REDUCE at byte 4: the function must be a global, not a dict"},
      {"CallOfDtype", program("ctorch\nfloat16\n)R."), "opcode REDUCE at byte 18: this global is not a function"},
      {"CallWithList", program("ccollections\nOrderedDict\n]R."), "the arguments must be a tuple, not a list"},
      {"OrderedDictOfItems", program("ccollections\nOrderedDict\n]\x85R."), "OrderedDict must have no arguments"},
      {"BuildOfDict", program("}}b."), "opcode BUILD at byte 4: only an OrderedDict has attributes"},
      {"BuildWithTuple", program("ccollections\nOrderedDict\n)R)b."), "only an OrderedDict has attributes"},
      {"BuildOfNothing", program("}b."), "the stack holds too few"},
      {"IdIsText", program(pickle_text("0") + "Q."), "the persistent id must be a tuple, not a str"},
      {"IdOfModule", program("(" + pickle_text("module") + "NNNNtQ."), "the persistent id is not that of a storage"},
      {"IdOfDtype",
       program("(" + pickle_text("storage") + "ctorch\nfloat32\n" + pickle_text("0") + pickle_text("cpu") + "K\x01tQ."),
       "this global is not a class of storages"},
      {"IdOfOneNumber", program("(" + pickle_text("storage") + "ctorch\nFloatStorage\nK\1K\1K\1tQ."),
       "opcode BINPERSID at byte 42: the storage's key must be a str, not an int"},
      {"TensorWithoutArguments", tensor(""), "a tensor must have 6 arguments, not 0"},
      {"TensorOfNothing", tensor("N" + rest), "a tensor's storage must be a storage, not None"},
      {"TensorWithFractionalOffset",
       tensor(pickle_storage({}) + "G" + std::string(8, '\0') + pickle_ints({2}) + pickle_ints({1}) + "\x89N"),
       "a tensor's offset must be an int, not a float"},
      {"TensorWithListOfSizes", tensor(pickle_storage({}) + "K\1]" + pickle_ints({1}) + "\x89N"),
       "a tensor's size must be a tuple, not a list"},
      {"TensorWithSizeOfTrue", tensor(pickle_storage({}) + "K\1(\x88t" + pickle_ints({1}) + "\x89N"),
       "a tensor's size must be an int, not a bool"},
      {"TensorOfHighRank",
       tensor(pickle_storage({}) + "K\1" + pickle_ints(std::vector<std::int64_t>(17, 1)) + pickle_ints({1}) + "\x89N"),
       "a tensor's size has more than 16 entries"},
      {"NegatedTensor", tensor(pickle_storage({}) + rest + "}" + pickle_text("neg") + "\x88s"),
       "a tensor with metadata is not supported", ErrorCode::unsupported},
      {"ParameterOfNothing", program("ctorch._utils\n_rebuild_parameter\n(N\x88NtR."),
       "a parameter's data must be a tensor, not None"},
      {"ParameterOfTwo", program("ctorch._utils\n_rebuild_parameter\n(N\x88tR."), "must have 3 arguments"},
      {"RootIsTensor", program(kTensor + "."), "it holds a tensor, not a dict of tensors"},
      {"RootIsNone", program("N."), "it holds None, not a dict of tensors"},
      {"NoTensors", pickle_dict({{"a", "N"}, {"model", "}"}}), "it holds no tensors, nor do \"state_dict\""},
      {"NameNotUtf8", pickle_dict({{"a\xF0", kTensor}}), "the name of a tensor is not UTF-8"},
      {"TensorTwice", pickle_dict({{"a", kTensor}, {"a", kTensor}}), "tensor \"a\" occurs twice"},
      {"TensorCalledByNumber", program("}K\1" + kTensor + "s."), "the name of a tensor is an int"},
  };
}

INSTANTIATE_TEST_SUITE_P(Attacks, BadPickles, ::testing::ValuesIn(attacks()),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Malformed, BadPickles, ::testing::ValuesIn(malformed()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace pagoda::io
