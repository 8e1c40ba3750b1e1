#include "server/store/backup.h"

#include <filesystem>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/store/store_reads.h"
#include "tests/server/jobs_for_test.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

std::vector<std::string> Files(const std::string& dir) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Backup, HoldsWhatWasCommittedWhileTheWriterWrites) {
  TempDir temp;
  const auto store = *JobStore::Open(temp.path());
  ASSERT_TRUE(store->PutJob(1, MakeJob("kept")).ok());
  ASSERT_TRUE(store->Begin().ok());
  ASSERT_TRUE(store->PutJob(2, MakeJob("not-yet")).ok());
  const auto backup = MakeBackup(temp.path());
  ASSERT_TRUE(backup.ok()) << backup.status();
  ASSERT_TRUE(store->Commit().ok());
  EXPECT_EQ(backup->size_bytes(), std::filesystem::file_size(backup->path()));
  EXPECT_EQ(Files(temp.path() + "/backups").size(), 1U) << "one file is all";

  TempDir restored;
  std::filesystem::copy_file(backup->path(), restored.path() + "/jobs.db");
  const auto copy = JobStore::Open(restored.path(), {.check = Database::Check::kFull});
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_TRUE(ReadJob((*copy)->database(), "kept")->has_value());
  EXPECT_EQ(*ReadJob((*copy)->database(), "not-yet"), std::nullopt);
}

TEST(Backup, ARestoredStoreGivesNoNumberOfAnEventTwice) {
  TempDir temp;
  const auto store = *JobStore::Open(temp.path());
  ASSERT_TRUE(store->PutJob(1, MakeJob("a")).ok());
  const auto first = MakeBackup(temp.path());
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ(*store->AddEvent(TextEvent("a", "1")), 1);
  const auto second = MakeBackup(temp.path());
  ASSERT_TRUE(second.ok()) << second.status();
  ASSERT_EQ(*store->AddEvent(TextEvent("a", "lost")), 2) << "the original goes on as before";
  for (const auto& [path, last] : {std::pair(first->path(), 0), std::pair(second->path(), 1)}) {
    TempDir restored;
    std::filesystem::copy_file(path, restored.path() + "/jobs.db");
    const auto copy = *JobStore::Open(restored.path());
    EXPECT_EQ(*copy->AddEvent(TextEvent("a", "new")), 1'000'000'001 + last);
  }
}

TEST(Backup, KeepsTheNewestTenAndNothingUnfinished) {
  TempDir temp;
  const auto store = *JobStore::Open(temp.path());
  temp.Write("backups/jobs-20200101T000000.000000Z.db", "old");
  temp.Write("backups/jobs-20200101T000000.000000Z.db.unfinished", "left by a crash");
  temp.Write("backups/notes.txt", "mine");
  std::vector<std::string> made;
  for (int i = 0; i < 12; ++i) {
    const auto backup = MakeBackup(temp.path());
    ASSERT_TRUE(backup.ok()) << backup.status();
    made.push_back(std::filesystem::path(backup->path()).filename().string());
  }
  std::vector<std::string> expected(made.end() - 10, made.end());
  expected.push_back("notes.txt");
  EXPECT_EQ(Files(temp.path() + "/backups"), expected);
}

TEST(Backup, ThatCannotBeWrittenSaysWhereAndLeavesNothing) {
  TempDir temp;
  const auto store = *JobStore::Open(temp.path());
  temp.Write("backups", "a file where the folder should be");
  const auto backup = MakeBackup(temp.path());
  EXPECT_EQ(backup.status().code(), absl::StatusCode::kFailedPrecondition) << backup.status();
  EXPECT_THAT(std::string(backup.status().message()), testing::HasSubstr(temp.path() + "/backups"));
}

TEST(Backup, RunsOnAThreadOfItsOwn) {
  TempDir temp;
  const auto store = *JobStore::Open(temp.path());
  StoreBackup backup(temp.path());
  absl::Notification done;
  backup.Start([&](const absl::StatusOr<training::v1::BackupStoreResponse>& made) {
    EXPECT_TRUE(made.ok()) << made.status();
    done.Notify();
  });
  done.WaitForNotification();
}

}  // namespace
}  // namespace genesis
