#include "trainer/runtime/job_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/temp_dir.h"

namespace genesis {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class JobFilesTest : public testing::Test {
 protected:
  JobFilesTest() {
    folder_.Write("data/deep/walks.npz", "x");
    folder_.Write("checkpoints/a.pt", "x");
    folder_.Write("outside/secret.npz", "x");
  }

  std::string& Path() { return *spec_.mutable_dataset()->mutable_trajectories()->mutable_path(); }
  absl::Status Resolve() { return ResolveJobFiles(root_, folder_.path() + "/checkpoints", spec_); }
  void Link(const std::string& to, const std::string& from) const {
    std::filesystem::create_symlink(folder_.path() + to, folder_.path() + from);
  }

  TempDir folder_;
  std::string root_ = folder_.path() + "/data";
  training::v1::JobSpec spec_;
};

TEST_F(JobFilesTest, FollowsLinksWithinTheRoot) {
  Link("/data/deep", "/data/link");
  Path() = folder_.path() + "/data/link/walks.npz";
  ASSERT_TRUE(Resolve().ok());
  EXPECT_EQ(Path(), std::filesystem::canonical(folder_.path()).string() + "/data/deep/walks.npz");
}

TEST_F(JobFilesTest, TheRootMayBeALinkItself) {
  Link("/data", "/root");
  root_ = folder_.path() + "/root/";
  Path() = folder_.path() + "/root/deep/walks.npz";
  EXPECT_TRUE(Resolve().ok());
}

TEST_F(JobFilesTest, RefusesWhatLeadsOut) {
  Link("/outside/secret.npz", "/data/file.npz");
  Link("/outside", "/data/folder");
  // A folder whose path starts with the root's path, but is outside it.
  folder_.Write("data-of-others/x.npz", "x");
  Link("/data-of-others/x.npz", "/data/near.npz");
  for (const char* name : {"file.npz", "folder/secret.npz", "near.npz", "../outside/secret.npz"}) {
    Path() = folder_.path() + "/data/" + name;
    EXPECT_THAT(std::string(Resolve().message()),
                AllOf(HasSubstr("dataset.trajectories.path is \""), HasSubstr("which leads to \""),
                      HasSubstr("accepted: what lies beneath the dataset root " + root_)))
        << name;
  }
  root_.clear();
  EXPECT_TRUE(Resolve().ok()) << "a job that a person runs by hand may";
}

TEST_F(JobFilesTest, WeightsMayLieWithTheCheckpoints) {
  Path() = folder_.path() + "/data/deep/walks.npz";
  std::string& weights = *spec_.mutable_model()->mutable_initial_weights();
  weights = folder_.path() + "/checkpoints/a.pt";
  EXPECT_TRUE(Resolve().ok());
  Link("/outside/secret.npz", "/checkpoints/b.pt");
  weights = folder_.path() + "/checkpoints/b.pt";
  EXPECT_THAT(std::string(Resolve().message()), HasSubstr("model.initial_weights"));
}

TEST_F(JobFilesTest, LeavesWhatIsNotThereToWhoOpensIt) {
  Path() = folder_.path() + "/data/absent.npz";
  EXPECT_TRUE(Resolve().ok());
  EXPECT_EQ(Path(), folder_.path() + "/data/absent.npz");
}

}  // namespace
}  // namespace genesis
