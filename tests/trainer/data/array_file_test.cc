#include "trainer/data/array_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"
#include "base/text/utf8.h"
#include "tests/temp_dir.h"
#include "tests/trainer/npz_writer.h"

namespace genesis {
namespace {

using testing::HasSubstr;

constexpr int64_t kMemoryLimit = 1 << 20;

absl::StatusOr<StoredArray> Load(const std::string& path, const std::string& array) {
  absl::StatusOr<ArrayFile> file = ArrayFile::Open(path, "a", kMemoryLimit);
  if (!file.ok()) return file.status();
  return file->Load(array);
}

absl::Status ReadStatus(const std::string& file, const std::string& array = "a") {
  const TempDir folder;
  folder.Write("x.npz", file);
  return Load(folder.path() + "/x.npz", array).status();
}

std::string Message(const std::string& file) { return std::string(ReadStatus(file).message()); }

const std::string& Good() {
  static const auto* const good =
      new std::string(NpyBytes("<f4", "(2, 2)", RawBytes<float>({1, 2, 3, 4})));
  return *good;
}

TEST(ArrayFileTest, ReadsStoredAndDeflatedArraysAlike) {
  for (const bool deflate : {false, true}) {
    const TempDir folder;
    folder.Write("x.npz", ZipBytes({{"a.npy", Good()}}, deflate));
    const auto array = Load(folder.path() + "/x.npz", "a");
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_EQ(array->type(), ElementType::kFloat32);
    EXPECT_THAT(array->shape(), testing::ElementsAre(2, 2));
    // Only decompressed data is held in memory.
    EXPECT_EQ(array->held_bytes() > 0, deflate);
    std::vector<float> values(3);
    ASSERT_TRUE(array->ReadFloats(1, 3, values.data()).ok());
    EXPECT_THAT(values, testing::ElementsAre(2, 3, 4));
  }
}

TEST(ArrayFileTest, ReadsEveryAcceptedType) {
  const std::pair<std::string, std::string> arrays[] = {
      {"<f8", RawBytes<double>({0, 1})},  {"<f2", RawBytes<uint16_t>({0, 0x3C00})},
      {"<i8", RawBytes<int64_t>({0, 1})}, {"<i4", RawBytes<int32_t>({0, 1})},
      {"<i2", RawBytes<int16_t>({0, 1})}, {"|i1", RawBytes<int8_t>({0, 1})},
      {"|u1", RawBytes<uint8_t>({0, 1})}, {"|b1", RawBytes<uint8_t>({0, 1})}};
  for (const auto& [descr, data] : arrays) {
    const TempDir folder;
    folder.Write("x.npy", NpyBytes(descr, "(2,)", data));
    const auto array = Load(folder.path() + "/x.npy", "a");
    ASSERT_TRUE(array.ok()) << descr << array.status();
    std::vector<float> values(2);
    ASSERT_TRUE(array->ReadFloats(0, 2, values.data()).ok());
    EXPECT_THAT(values, testing::ElementsAre(0, 1)) << descr;
  }
}

TEST(ArrayFileTest, NamesTheArraysThatAreThereWhenOneIsMissing) {
  const absl::Status status = ReadStatus(ZipBytes({{"a.npy", Good()}}), "b");
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr(
          "has no array \"b\", which is the member \"b.npy\"; it has the members: \"a.npy\""));
}

// If both were accepted, one of the two members would be used for both arrays.
TEST(ArrayFileTest, RefusesTwoMembersForOneArray) {
  for (const char* const name : {"a", "weight", "\xff", "b.npy"}) {
    const std::string other = absl::StrCat(name, ".npy");
    for (const bool same_size : {true, false}) {
      const std::string wide = NpyBytes("<f4", "(1000,)", std::string(4000, '\1'));
      const absl::Status status =
          ReadStatus(ZipBytes({{name, Good()}, {other, same_size ? Good() : wide}}));
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(absl::StrCat("has the members ", QuoteValue(name), " and ",
                                         QuoteValue(other))));
    }
  }
}

TEST(ArrayFileTest, ListsOfNamesAreBounded) {
  std::map<std::string, std::string> records;
  for (int i = 0; i < 3000; ++i) records[absl::StrCat(std::string(200, 'n'), i, "\n\xc3")] = "x";
  const std::string message(ReadStatus(ZipBytes(records)).message());
  EXPECT_THAT(message, HasSubstr("and 2992 more"));
  EXPECT_LT(message.size(), 4000u);
  EXPECT_TRUE(IsUtf8(message)) << message;
}

// The header must be one Python literal. Text that merely resembles one is refused.
TEST(ArrayFileTest, ParsesTheWholeHeader) {
  const std::string data = RawBytes<float>({1, 2, 3, 4});
  const auto with = [&](const std::string& header) {
    std::string npy("\x93NUMPY\x01\x00", 8);
    const auto size = static_cast<uint16_t>(header.size());
    npy.append(reinterpret_cast<const char*>(&size), sizeof(size));
    return Message(ZipBytes({{"a.npy", npy + header + data}}));
  };
  for (const char* const sound :
       {"{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }    \n",
        "{'shape':(2,2),'fortran_order':False,'descr':'<f4'}",
        "{\"descr\": \"<f4\", \"fortran_order\": False, \"shape\": (2, 2)}"}) {
    EXPECT_EQ(with(sound), "") << sound;
  }
  for (const char* const broken :
       {"'descr': '<f4', 'fortran_order': False, 'shape': (4,), ",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), 'more': 1}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4,)} + x",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4,,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (+4,)}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (4,)}",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (4,)}",
        "{'descr': <f4, 'fortran_order': False, 'shape': (4,)}",
        "x = {'descr': '<f4', 'fortran_order': False, 'shape': (4,)}", "{", "", "{'descr'"}) {
    EXPECT_NE(with(broken), "") << broken;
  }
}

TEST(ArrayFileTest, RefusesLayoutsThatItDoesNotRead) {
  const std::string data = RawBytes<float>({1, 2, 3, 4});
  EXPECT_THAT(Message(ZipBytes({{"a.npy", NpyBytes("<f4", "(2, 2)", data, "True")}})),
              HasSubstr("a is in fortran order; accepted: C order"));
  EXPECT_THAT(Message(ZipBytes({{"a.npy", NpyBytes(">f4", "(2, 2)", data)}})),
              HasSubstr("a is big-endian ('>f4'); accepted: little-endian"));
  EXPECT_THAT(Message(ZipBytes({{"a.npy", NpyBytes("<c8", "(2,)", data)}})),
              HasSubstr("a has elements of type '<c8'; accepted: float32"));
}

TEST(ArrayFileTest, RefusesAShapeThatDoesNotFitTheBytes) {
  const std::string data = RawBytes<float>({1, 2, 3});
  EXPECT_THAT(Message(ZipBytes({{"a.npy", NpyBytes("<f4", "(2, 2)", data)}})),
              HasSubstr("a holds 12 bytes but its shape (2, 2) of float32 needs 16"));
  EXPECT_THAT(Message(ZipBytes({{"a.npy", NpyBytes("<f4", "(-3,)", data)}})),
              HasSubstr("the shape (-3,) in its header is unreadable"));
  EXPECT_THAT(Message(ZipBytes({{"a.npy", NpyBytes("<f4", "(4294967296, 4294967296)", data)}})),
              HasSubstr("accepted: at most 2^40 elements"));
}

TEST(ArrayFileTest, RefusesAFileThatIsNoZip) {
  EXPECT_THAT(Message("hello"), HasSubstr("it has no central directory"));
  EXPECT_THAT(Message(""), HasSubstr("it has no central directory"));
}

TEST(ArrayFileTest, FindsADamagedRecordByItsChecksum) {
  for (const bool deflate : {false, true}) {
    std::string file = ZipBytes({{"a.npy", Good()}}, deflate);
    file[60] = static_cast<char>(file[60] ^ 1);
    EXPECT_TRUE(absl::IsDataLoss(ReadStatus(file))) << ReadStatus(file);
  }
}

// Any truncation or change must give an error or valid data, without a crash or excessive memory.
TEST(ArrayFileTest, SurvivesEveryTruncationAndEveryChangedByte) {
  const std::string file = ZipBytes({{"a.npy", Good()}}, /*deflate=*/true);
  for (size_t length = 0; length < file.size(); ++length) {
    EXPECT_FALSE(ReadStatus(file.substr(0, length)).ok()) << length;
  }
  for (size_t at = 0; at < file.size(); ++at) {
    for (const int change : {0x01, 0x80, 0xFF}) {
      std::string changed = file;
      changed[at] = static_cast<char>(changed[at] ^ change);
      ReadStatus(changed).IgnoreError();
    }
  }
}

}  // namespace
}  // namespace genesis
