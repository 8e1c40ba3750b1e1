#include "trainer/run/job_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/temp_dir.h"

namespace genesis {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using training::v1::StartJob;

class JobFilesTest : public testing::Test {
 protected:
  JobFilesTest() {
    folder_.Write("data/deep/walks.npz", "x");
    folder_.Write("checkpoints/a.pt", "x");
    folder_.Write("outside/secret.npz", "x");
    start_.set_datasets_root(folder_.path() + "/data");
    start_.set_checkpoint_dir(folder_.path() + "/checkpoints");
  }

  std::string& Path() {
    return *start_.mutable_spec()->mutable_dataset()->mutable_trajectories()->mutable_path();
  }
  void Link(const std::string& to, const std::string& from) const {
    std::filesystem::create_symlink(folder_.path() + to, folder_.path() + from);
  }

  TempDir folder_;
  StartJob start_;
};

TEST_F(JobFilesTest, FollowsLinksWithinTheRoot) {
  Link("/data/deep", "/data/link");
  Path() = folder_.path() + "/data/link/walks.npz";
  ASSERT_TRUE(ResolveJobFiles(start_).ok());
  EXPECT_EQ(Path(), std::filesystem::canonical(folder_.path()).string() + "/data/deep/walks.npz");
}

TEST_F(JobFilesTest, TheRootMayBeALinkItself) {
  Link("/data", "/root");
  start_.set_datasets_root(folder_.path() + "/root/");
  Path() = folder_.path() + "/root/deep/walks.npz";
  EXPECT_TRUE(ResolveJobFiles(start_).ok());
}

TEST_F(JobFilesTest, RefusesWhatLeadsOut) {
  Link("/outside/secret.npz", "/data/file.npz");
  Link("/outside", "/data/folder");
  // A folder whose path starts with the root's path, but is outside it.
  folder_.Write("data-of-others/x.npz", "x");
  Link("/data-of-others/x.npz", "/data/near.npz");
  for (const char* name : {"file.npz", "folder/secret.npz", "near.npz", "../outside/secret.npz"}) {
    Path() = folder_.path() + "/data/" + name;
    EXPECT_THAT(
        std::string(ResolveJobFiles(start_).message()),
        AllOf(HasSubstr("dataset.trajectories.path is \""), HasSubstr("which leads to \""),
              HasSubstr("accepted: what lies beneath the dataset root " + start_.datasets_root())))
        << name;
  }
  start_.clear_datasets_root();
  EXPECT_TRUE(ResolveJobFiles(start_).ok()) << "a job that a person runs by hand may";
}

TEST_F(JobFilesTest, WeightsMayLieWithTheCheckpoints) {
  Path() = folder_.path() + "/data/deep/walks.npz";
  std::string& weights = *start_.mutable_spec()->mutable_model()->mutable_initial_weights();
  weights = folder_.path() + "/checkpoints/a.pt";
  EXPECT_TRUE(ResolveJobFiles(start_).ok());
  Link("/outside/secret.npz", "/checkpoints/b.pt");
  weights = folder_.path() + "/checkpoints/b.pt";
  EXPECT_THAT(std::string(ResolveJobFiles(start_).message()), HasSubstr("model.initial_weights"));
}

TEST_F(JobFilesTest, LeavesWhatIsNotThereToWhoOpensIt) {
  Path() = folder_.path() + "/data/absent.npz";
  EXPECT_TRUE(ResolveJobFiles(start_).ok());
  EXPECT_EQ(Path(), folder_.path() + "/data/absent.npz");
}

}  // namespace
}  // namespace genesis
