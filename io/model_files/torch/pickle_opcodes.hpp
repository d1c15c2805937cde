#pragma once

#include <cstdint>
#include <string_view>

namespace pagoda::io {

/// The supported instructions of pickle, by their names in Python's pickletools.
enum PickleOpcode : std::uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kBinfloat = 'G',
  kBinint = 'J',
  kBinint1 = 'K',
  kBinint2 = 'M',
  kNone = 'N',
  kBinpersid = 'Q',
  kReduce = 'R',
  kBinunicode = 'X',
  kEmptyList = ']',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kBinget = 'h',
  kLongBinget = 'j',
  kBinput = 'q',
  kLongBinput = 'r',
  kSetitem = 's',
  kTuple = 't',
  kEmptyTuple = ')',
  kSetitems = 'u',
  kEmptyDict = '}',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewtrue = 0x88,
  kNewfalse = 0x89,
  kLong1 = 0x8a,
  kShortBinunicode = 0x8c,
  kBinunicode8 = 0x8d,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
};

/// Returns the name of any instruction of pickle; empty for a byte that is no instruction.
std::string_view opcode_name(std::uint8_t opcode);

}  // namespace pagoda::io
