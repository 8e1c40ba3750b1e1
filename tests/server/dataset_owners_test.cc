// Tests of the rules of owners of datasets and of the quota of stored bytes, without a daemon.
#include "server/auth/dataset_owners.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "tests/temp_dir.h"

namespace genesis {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const Caller kAnn = {"ann", Role::kSubmitter, ""};
const Caller kBob = {"bob", Role::kSubmitter, ""};
const Caller kVic = {"vic", Role::kViewer, ""};
const Caller kRoot = {"root", Role::kAdmin, ""};

class DatasetOwnersTest : public testing::Test {
 protected:
  DatasetOwnersTest() {
    for (const char* name : {"arm", "uploads/1.npz"}) temp_.Write(name, "");
    Open(false);
  }
  void Open(bool own_only) {
    owners_ = *DatasetOwners::Open(temp_.path(), Visibility(own_only),
                                   [this](const std::string& owner) -> absl::StatusOr<int64_t> {
                                     if (!store_.ok()) return store_;
                                     return owner == "ann" ? checkpoints_ : 0;
                                   });
  }

  TempDir temp_;
  absl::Status store_;
  int64_t checkpoints_ = 0;
  std::unique_ptr<DatasetOwners> owners_;
};

TEST_F(DatasetOwnersTest, OwnersAndAdminsChangeADatasetAfterARestartToo) {
  ASSERT_TRUE(owners_->Add("arm", "ann", 0).ok());
  ASSERT_TRUE(owners_->Add("uploads/1.npz", "bob", 5).ok());
  for (int start = 0; start < 2; ++start) {
    EXPECT_TRUE(owners_->CheckChange(kAnn, "arm").ok());
    EXPECT_TRUE(owners_->CheckChange(kRoot, "arm").ok());
    const absl::Status refused = owners_->CheckChange(kBob, "arm");
    EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
    EXPECT_EQ(
        refused.message(),
        "dataset \"arm\" belongs to \"ann\"; \"bob\" may change only what is its own: ask its "
        "owner or an admin");
    EXPECT_TRUE(absl::IsPermissionDenied(owners_->CheckChange(kAnn, "arm/1.segment")));
    const absl::Status admins = owners_->CheckChange(kAnn, "pendulum.npz");
    EXPECT_THAT(admins.message(), HasSubstr("belongs to the admins"));
    EXPECT_TRUE(owners_->Sees(kVic, "arm"));
    EXPECT_THAT(owners_->Of(kVic, "uploads/1.npz"), ElementsAre("bob"));
    Open(false);
  }
  owners_->Forget("arm");
  Open(false);
  EXPECT_FALSE(owners_->Has("arm"));
}

TEST_F(DatasetOwnersTest, WithOwnJobsOnlyOthersSeeNeitherADatasetNorItsFiles) {
  ASSERT_TRUE(owners_->Add("arm", "ann", 0).ok());
  ASSERT_TRUE(owners_->Add("uploads/1.npz", "ann", 5).ok());
  ASSERT_TRUE(owners_->Add("uploads/1.npz", "bob", 5).ok());
  Open(true);
  for (const char* path : {"arm", "arm/00000000000000000000.segment"}) {
    EXPECT_TRUE(owners_->Sees(kAnn, path)) << path;
    EXPECT_TRUE(owners_->Sees(kRoot, path)) << path;
    EXPECT_FALSE(owners_->Sees(kBob, path)) << path;
    EXPECT_FALSE(owners_->Sees(kVic, path)) << path;
  }
  for (const char* hidden : {"uploads/.part-5-1.npz", ".owners/arm"}) {
    EXPECT_FALSE(owners_->Sees(kBob, hidden)) << hidden;
    EXPECT_TRUE(owners_->Sees(kRoot, hidden)) << hidden;
  }
  EXPECT_TRUE(owners_->Sees(kVic, "pendulum.npz")) << "no owner";
  EXPECT_THAT(owners_->Of(kBob, "uploads/1.npz"), ElementsAre("bob"));
  EXPECT_THAT(owners_->Of(kRoot, "uploads/1.npz"), ElementsAre("ann", "bob"));
  EXPECT_THAT(owners_->Of(kVic, "uploads/1.npz"), IsEmpty());
}

TEST_F(DatasetOwnersTest, ASharedDatasetStaysUntilItsLastOwnerDeletesIt) {
  ASSERT_TRUE(owners_->Add("uploads/1.npz", "ann", 5).ok());
  ASSERT_TRUE(owners_->Add("uploads/1.npz", "bob", 5).ok());
  EXPECT_FALSE(*owners_->Leave(kRoot, "uploads/1.npz")) << "an admin deletes it for all";
  EXPECT_TRUE(*owners_->Leave(kAnn, "uploads/1.npz"));
  Open(false);
  EXPECT_THAT(owners_->Of(kRoot, "uploads/1.npz"), ElementsAre("bob"));
  EXPECT_FALSE(*owners_->Leave(kBob, "uploads/1.npz"));
}

TEST_F(DatasetOwnersTest, TheQuotaCountsDatasetsAndCheckpoints) {
  ASSERT_TRUE(owners_->Add("arm", "ann", 0).ok());
  owners_->SetBytes("arm", 600);
  owners_->SetBytes("not-owned", 600);
  EXPECT_TRUE(owners_->CheckRoom("ann", int64_t{1} << 50, "anything").ok()) << "no limit";
  owners_->SetQuota(1000);
  EXPECT_TRUE(owners_->CheckRoom("ann", 400, "a batch").ok());
  EXPECT_TRUE(owners_->CheckRoom("bob", 1000, "a batch").ok());
  checkpoints_ = 100;
  const absl::Status full = owners_->CheckRoomOf("arm", 301, "a batch of 301 bytes");
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  EXPECT_EQ(full.message(),
            "\"ann\" stores 700 bytes and quotas.stored_bytes is 1000, which leaves no room for a "
            "batch of 301 bytes; delete datasets (`genesisctl dataset-delete`), incomplete "
            "uploads (by the name uploads/SHA256.KIND) or checkpoints (`genesisctl "
            "checkpoint-delete`) of that owner");
  EXPECT_TRUE(owners_->CheckRoomOf("not-owned", 5000, "a batch").ok());
  EXPECT_TRUE(absl::IsResourceExhausted(owners_->Add("uploads/1.npz", "ann", 301)));
  EXPECT_FALSE(owners_->Has("uploads/1.npz"));
  ASSERT_TRUE(owners_->Add("uploads/1.npz", "ann", 300).ok());
  EXPECT_FALSE(owners_->CheckRoom("ann", 1, "a batch").ok());
  ASSERT_TRUE(owners_->Copy("uploads/1.npz", "uploads/2.npz").ok());
  owners_->Forget("uploads/1.npz");
  EXPECT_FALSE(owners_->CheckRoom("ann", 1, "a batch").ok());
  owners_->SetBytes("arm", 0);
  EXPECT_TRUE(owners_->CheckRoom("ann", 600, "a batch").ok());
  store_ = absl::UnavailableError("the store is locked");
  EXPECT_EQ(owners_->CheckRoom("ann", 1, "a batch"), store_);
}

TEST_F(DatasetOwnersTest, AStartForgetsTheOwnersOfDatasetsThatAreGone) {
  ASSERT_TRUE(owners_->Add("arm", "ann", 0).ok());
  ASSERT_TRUE(owners_->Add("uploads/1.npz", "ann", 0).ok());
  std::filesystem::remove(temp_.path() + "/arm");
  Open(false);
  EXPECT_FALSE(owners_->Has("arm"));
  EXPECT_TRUE(owners_->Has("uploads/1.npz"));
  EXPECT_FALSE(std::filesystem::exists(temp_.path() + "/.owners/arm"));
}

TEST_F(DatasetOwnersTest, ARecordThatCannotBeReadStopsTheStart) {
  ASSERT_TRUE(owners_->Add("arm", "ann", 0).ok());
  std::filesystem::remove(temp_.path() + "/.owners/arm");
  std::filesystem::create_symlink("/nonexistent", temp_.path() + "/.owners/arm");
  const absl::Status status =
      DatasetOwners::Open(temp_.path(), Visibility(false), [](auto&) { return 0; }).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("/.owners/arm cannot be read"));
}

}  // namespace
}  // namespace genesis
