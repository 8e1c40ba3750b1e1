#include "trainer/formats/pickle_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace genesis {
namespace {

using testing::HasSubstr;
using namespace std::string_literals;

std::string Fault(const std::string& pickle) {
  return std::string(ReadPickle(pickle).status().message());
}

TEST(PickleReaderTest, ReadsDictsNumbersStringsAndNone) {
  // pickle.dumps({"a": [1, -2, 300, 2.5, None, True], "b": (1 << 40,)}, protocol=2)
  const auto document = ReadPickle(
      "\x80\x02}q\x00(X\x01\x00\x00\x00"s
      "aq\x01]q\x02(K\x01J\xfe\xff\xff\xffM,\x01G@\x04\x00\x00\x00\x00\x00\x00N\x88"s
      "eX\x01\x00\x00\x00"s
      "bq\x03\x8a\x06\x00\x00\x00\x00\x00\x01\x85q\x04u."s);
  ASSERT_TRUE(document.ok()) << document.status();
  const auto* const list = document->root->Find("a")->As<PickleList>();
  ASSERT_EQ(list->items.size(), 6u);
  EXPECT_EQ(*list->items[0]->As<int64_t>(), 1);
  EXPECT_EQ(*list->items[1]->As<int64_t>(), -2);
  EXPECT_EQ(*list->items[2]->As<int64_t>(), 300);
  EXPECT_EQ(*list->items[3]->As<double>(), 2.5);
  EXPECT_NE(list->items[4]->As<std::monostate>(), nullptr);
  EXPECT_TRUE(*list->items[5]->As<bool>());
  const auto* const tuple = document->root->Find("b")->As<PickleList>();
  EXPECT_EQ(*tuple->items[0]->As<int64_t>(), int64_t{1} << 40);
}

TEST(PickleReaderTest, RefusesByNameWhatWouldRunCode) {
  // os.system("true")
  EXPECT_THAT(Fault("\x80\x02"s + "cos\nsystem\nX\x04\x00\x00\x00true\x85R."s),
              HasSubstr("wants to call os.system; accepted: tensors"));
}

TEST(PickleReaderTest, SaysWhichEntryItRefuses) {
  // {"model": {"a": 1, "args": argparse.Namespace()}}
  EXPECT_THAT(Fault("\x80\x02}q\x00(X\x05\x00\x00\x00model}q\x01(X\x01\x00\x00\x00"s +
                    "aK\x01X\x04\x00\x00\x00"s + "argscargparse\nNamespace\n)Ruu."s),
              HasSubstr("wants to call argparse.Namespace in entry model.args"));
}

TEST(PickleReaderTest, ReadsWhatProtocolFourAdds) {
  // pickle.dumps({"ab": collections.OrderedDict(c=5)}, protocol=4), framed and memoized.
  const auto document = ReadPickle(
      "\x80\x04\x95\x30\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x02"s + "ab\x94\x8c\x0b"s +
      "collections\x94\x8c\x0bOrderedDict\x94\x93\x94)R\x94\x8c\x01"s + "c\x94K\x05ss."s);
  ASSERT_TRUE(document.ok()) << document.status();
  const PickleValue* const inner = document->root->Find("ab");
  ASSERT_NE(inner, nullptr);
  EXPECT_EQ(*inner->Find("c")->As<int64_t>(), 5);
}

TEST(PickleReaderTest, RefusesOpcodesAndProtocolsThatNoCheckpointNeeds) {
  EXPECT_THAT(Fault("\x80\x01."s), HasSubstr("has pickle protocol 1; accepted: 2 to 5"));
  EXPECT_THAT(Fault("\x80\x06."s), HasSubstr("has pickle protocol 6; accepted: 2 to 5"));
  EXPECT_THAT(Fault("\x80\x02i."s), HasSubstr("uses pickle opcode 0x69"));
}

TEST(PickleReaderTest, SurvivesBrokenPrograms) {
  for (const std::string& pickle : {""s,
                                    "\x80"s,
                                    "."s,
                                    "(."s,
                                    "e."s,
                                    "u."s,
                                    "s."s,
                                    "R."s,
                                    "Q."s,
                                    "b."s,
                                    "t."s,
                                    "\x87."s,
                                    "h\x01."s,
                                    "q\x01."s,
                                    "}(K\x01u."s,
                                    "]K\x01K\x02."s,
                                    "X\xff\xff\xff\xff."s,
                                    "cos"s,
                                    "\x8a\xff."s,
                                    "]q\x00h\x00"s
                                    "a."s}) {
    ReadPickle(pickle).status().IgnoreError();
  }
  EXPECT_THAT(Fault("}(K\x01u."s), HasSubstr("a key without a value"));
  EXPECT_THAT(Fault("(."s), HasSubstr("does not end in one value"));
}

}  // namespace
}  // namespace genesis
