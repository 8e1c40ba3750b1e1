#include "trainer/formats/record_checksums.h"

#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"

namespace genesis {
namespace {

TEST(ChecksumsTest, AreTheStandardsOwn) {
  const Checksums sums = ChecksumsOf("123456789", 9);
  EXPECT_EQ(sums.crc32, 0xCBF43926u);
  EXPECT_EQ(sums.crc32c, 0xE3069283u);
  EXPECT_EQ(ChecksumsOf("", 0).crc32, 0u);
  EXPECT_EQ(ChecksumsOf("", 0).crc32c, 0u);
}

TEST(ChecksumsTest, OfManyPiecesAreThoseOfTheWhole) {
  // Expected: the checksums of a million times "a" by zlib and by a table of the polynomial.
  const std::string million(1000000, 'a');
  const Checksums sums = ChecksumsOf(million.data(), million.size());
  EXPECT_EQ(sums.crc32, 0xDC25BFBCu);
  EXPECT_EQ(sums.crc32c, 0x436FE240u);
}

TEST(ChecksumsAheadTest, AreEachRecordsInAnyOrder) {
  std::vector<std::string> records;
  for (int i = 0; i < 200; ++i) records.push_back(std::string(i * 997, static_cast<char>(i)));
  ChecksumsAhead ahead(std::vector<std::string_view>(records.begin(), records.end()));
  for (const size_t i : {199, 0, 7, 7, 100}) {
    const Checksums own = ChecksumsOf(records[i].data(), records[i].size());
    EXPECT_EQ(ahead.Of(i).crc32, own.crc32) << i;
    EXPECT_EQ(ahead.Of(i).crc32c, own.crc32c) << i;
  }
}

TEST(ChecksumsAheadTest, EndsWithoutBeingAsked) {
  const std::string record(1 << 22, 'r');
  const ChecksumsAhead ahead(std::vector<std::string_view>(100, record));
}

}  // namespace
}  // namespace genesis
