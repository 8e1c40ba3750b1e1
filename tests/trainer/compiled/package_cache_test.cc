#include "trainer/compiled/package_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/files/sha256.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

using testing::HasSubstr;

const std::string kKey(64, 'a');

class PackageCacheTest : public testing::Test {
 protected:
  PackageCacheTest() { chmod(folder_.path().c_str(), 0755); }

  void Write(const std::string& bytes, const std::string& sum) {
    folder_.Write(kKey + ".pt2", bytes);
    folder_.Write(kKey + ".pt2.sha256", sum + "  " + kKey + ".pt2\n");
    chmod(Path().c_str(), 0644);
    chmod((Path() + ".sha256").c_str(), 0644);
  }
  std::string Path() const { return folder_.path() + "/" + kKey + ".pt2"; }
  absl::Status Find() const { return FindPackage(folder_.path(), kKey).status(); }

  TempDir folder_;
};

TEST(Sha256Test, IsThatOfTheStandard) {
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_F(PackageCacheTest, FindsAWholePackage) {
  Write("package", Sha256Hex("package"));
  const auto found = FindPackage(folder_.path(), kKey);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, Path());
}

TEST_F(PackageCacheTest, HasNoneWhereTheFolderIsEmptyOrMissing) {
  EXPECT_EQ(Find().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(FindPackage(folder_.path() + "/missing", kKey).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(PackageCacheTest, RefusesOneThatIsDamagedOrUnfinished) {
  Write("damaged", Sha256Hex("package"));
  EXPECT_EQ(Find().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Find().message(), HasSubstr(".pt2 is damaged: its SHA-256 is not the one in"));
  Write("package", Sha256Hex("package"));
  std::filesystem::resize_file(Path(), 3);
  EXPECT_THAT(Find().message(), HasSubstr("is damaged"));
  std::filesystem::remove(Path() + ".sha256");
  EXPECT_EQ(Find().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Find().message(), HasSubstr("is unfinished"));
}

TEST_F(PackageCacheTest, RefusesOneOfAnotherName) {
  Write("package", Sha256Hex("package"));
  folder_.Write(kKey + ".pt2.sha256", Sha256Hex("package") + "  other.pt2\n");
  EXPECT_THAT(Find().message(), HasSubstr("is damaged"));
}

TEST_F(PackageCacheTest, RefusesWhatOthersMayWrite) {
  Write("package", Sha256Hex("package"));
  chmod(Path().c_str(), 0664);
  EXPECT_EQ(Find().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(Find().message(), HasSubstr("has mode 0664, so others may write it"));
  chmod(Path().c_str(), 0644);
  chmod(folder_.path().c_str(), 0777);
  EXPECT_THAT(Find().message(), HasSubstr("chmod go-w " + folder_.path()));
  chmod(folder_.path().c_str(), 0755);
  EXPECT_TRUE(Find().ok());
}

TEST_F(PackageCacheTest, CountsOnlyWhatBelongsToRootOrToTheWorkersUser) {
  EXPECT_EQ(FindPackage("/usr", kKey).status().code(), absl::StatusCode::kNotFound);
  Write("package", Sha256Hex("package"));
  EXPECT_TRUE(Find().ok());
  if (geteuid() != 0) return;  // Only root can change the owner of a file.
  ASSERT_EQ(chown(Path().c_str(), 12345, 12345), 0);
  EXPECT_EQ(Find().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(Find().message(), HasSubstr("belongs to user 12345"));
}

}  // namespace
}  // namespace genesis
