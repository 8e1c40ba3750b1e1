#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/files/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/datasets/upload_store.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using training::v1::Upload;

constexpr int64_t kPlenty = int64_t{1} << 40;
const Caller kUploader = {"ann", Role::kSubmitter, ""};
const Caller kOther = {"bob", Role::kSubmitter, ""};
const Caller kAnyAdmin = {"root", Role::kAdmin, ""};

std::string RandomBytes(size_t size) {
  std::mt19937_64 random(std::random_device{}());
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

UploadStore::File FileOf(const std::string& bytes, const std::string& kind = "npz") {
  return {
      .sha256 = Sha256Hex(bytes), .kind = kind, .size_bytes = static_cast<int64_t>(bytes.size())};
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> Names(const std::string& folder) {
  std::vector<std::string> names;
  if (!fs::exists(folder)) return names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

// An UploadStore whose caller is ann.
class AnnsStore {
 public:
  AnnsStore(const std::string& root, int64_t max_bytes)
      : owners_(*DatasetOwners::Open(root, Visibility(true), [](auto&) { return 0; })),
        store_(owners_.get(), max_bytes) {}
  absl::StatusOr<Upload> Start(const UploadStore::File& file) {
    return store_.Start(kUploader, file);
  }
  absl::StatusOr<Upload> Write(const UploadStore::File& file, int64_t offset,
                               absl::string_view piece) {
    return store_.Write(kUploader, file, offset, piece);
  }
  absl::Status Post(std::function<void()> task) { return store_.Post(std::move(task)); }
  DatasetOwners& owners() { return *owners_; }
  UploadStore& store() { return store_; }

 private:
  const std::unique_ptr<DatasetOwners> owners_;
  UploadStore store_;
};

// Sends the rest of the file in pieces of at most `most` bytes.
absl::StatusOr<Upload> Send(AnnsStore& store, const std::string& bytes,
                            size_t most = UploadStore::kMaxPieceBytes) {
  const UploadStore::File file = FileOf(bytes);
  absl::StatusOr<Upload> upload = store.Start(file);
  while (upload.ok() && upload->path().empty()) {
    const auto at = static_cast<size_t>(upload->received_bytes());
    upload = store.Write(file, upload->received_bytes(), absl::string_view(bytes).substr(at, most));
    if (absl::IsAborted(upload.status())) upload = store.Start(file);
  }
  return upload;
}

TEST(UploadTest, AFileHasItsNameOnceItIsWhole) {
  TempDir temp;
  AnnsStore store(temp.path(), kPlenty);
  const std::string bytes = RandomBytes(100'001);
  const UploadStore::File file = FileOf(bytes);
  ASSERT_EQ(store.Start(file)->received_bytes(), 0);
  const auto part = store.Write(file, 0, absl::string_view(bytes).substr(0, 60'000));
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(part->received_bytes(), 60'000);
  EXPECT_EQ(part->path(), "");
  const auto whole = store.Write(file, 60'000, absl::string_view(bytes).substr(60'000));
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->path(), "uploads/" + file.sha256 + ".npz");
  EXPECT_EQ(ReadAll(temp.path() + "/" + whole->path()), bytes);
  EXPECT_EQ(Names(temp.path() + "/uploads"), std::vector<std::string>{file.sha256 + ".npz"});
  // All clients that have the same file find it there.
  EXPECT_EQ(store.Start(file)->path(), whole->path());
  EXPECT_EQ(store.Write(file, 0, bytes)->path(), whole->path());
}

TEST(UploadTest, APieceForAnotherPlaceIsLeftOut) {
  TempDir temp;
  AnnsStore store(temp.path(), kPlenty);
  const std::string bytes = RandomBytes(5000);
  const UploadStore::File file = FileOf(bytes);
  ASSERT_TRUE(store.Start(file).ok());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(store.Write(file, 0, absl::string_view(bytes).substr(0, 2000))->received_bytes(),
              2000);
    EXPECT_EQ(store.Write(file, 4000, absl::string_view(bytes).substr(4000))->received_bytes(),
              2000);
    EXPECT_EQ(store.Write(file, -7, bytes)->received_bytes(), 2000);
  }
  EXPECT_EQ(Send(store, bytes)->received_bytes(), 5000);
}

TEST(UploadTest, GoesOnInAnotherDaemonAndComparesInSteps) {
  TempDir temp;
  const std::string bytes = RandomBytes(UploadStore::kHashBytes + 3'000'000);
  const UploadStore::File file = FileOf(bytes);
  int64_t sent = 0;
  ASSERT_TRUE(AnnsStore(temp.path(), kPlenty).Start(file).ok());
  while (sent < file.size_bytes) {
    AnnsStore store(temp.path(), kPlenty);
    for (int i = 0; i < 20 && sent < file.size_bytes; ++i) {
      const auto upload = store.Write(
          file, sent, absl::string_view(bytes).substr(static_cast<size_t>(sent), 1'000'000));
      ASSERT_TRUE(upload.ok()) << upload.status();
      sent = upload->received_bytes();
      if (sent < file.size_bytes) {
        EXPECT_EQ(upload->path(), "");
      }
    }
  }
  const auto upload = Send(*std::make_unique<AnnsStore>(temp.path(), kPlenty), bytes);
  ASSERT_TRUE(upload.ok()) << upload.status();
  EXPECT_EQ(Sha256HexOfFile(temp.path() + "/" + upload->path()), file.sha256);
}

TEST(UploadTest, OtherBytesThanAnnouncedAreRemoved) {
  TempDir temp;
  AnnsStore store(temp.path(), kPlenty);
  const std::string bytes = RandomBytes(3000);
  std::string others = bytes;
  others[1234] ^= 1;
  const UploadStore::File file = FileOf(bytes);
  ASSERT_TRUE(store.Start(file).ok());
  const auto upload = store.Write(file, 0, others);
  EXPECT_TRUE(absl::IsDataLoss(upload.status())) << upload.status();
  EXPECT_THAT(upload.status().message(), HasSubstr("has SHA-256 " + Sha256Hex(others)));
  EXPECT_THAT(Names(temp.path() + "/uploads"), IsEmpty());
  EXPECT_NE(Send(store, bytes)->path(), "");
}

TEST(UploadTest, AnnouncementsThatAreNoneAreRefusedAllFaultsAtOnce) {
  TempDir temp;
  AnnsStore store(temp.path(), kPlenty);
  const UploadStore::File bad{.sha256 = "../../etc/passwd", .kind = "n/../pz", .size_bytes = 0};
  const absl::Status status = store.Start(bad).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("sha256 is \"../../etc/passwd\""));
  EXPECT_THAT(status.message(), HasSubstr("kind is \"n/../pz\""));
  EXPECT_THAT(status.message(), HasSubstr("size_bytes is 0"));
  UploadStore::File upper = FileOf("x");
  for (char& c : upper.sha256) c = static_cast<char>(std::toupper(c));
  EXPECT_TRUE(absl::IsInvalidArgument(store.Write(upper, 0, "x").status()));
  const UploadStore::File file = FileOf("whole");
  EXPECT_TRUE(absl::IsNotFound(store.Write(file, 0, "whole").status()));
  ASSERT_TRUE(store.Start(file).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(store.Write(file, 0, "whole and more").status()));
  ASSERT_TRUE(store.Write(file, 0, "whole").ok());
  UploadStore::File longer = file;
  longer.size_bytes = 50;
  EXPECT_TRUE(absl::IsInvalidArgument(store.Start(longer).status()));
}

TEST(UploadTest, ALinkInTheWayIsNotFollowed) {
  TempDir temp;
  TempDir outside;
  fs::create_directory_symlink(outside.path(), temp.path() + "/uploads");
  AnnsStore store(temp.path(), kPlenty);
  EXPECT_FALSE(store.Start(FileOf("abc")).ok());
  fs::remove(temp.path() + "/uploads");
  fs::create_directory(temp.path() + "/uploads");
  const UploadStore::File file = FileOf("abc");
  fs::create_symlink(outside.path() + "/new",
                     temp.path() + "/uploads/.part-3-" + file.sha256 + ".npz");
  ASSERT_TRUE(store.Start(file).ok());
  EXPECT_FALSE(store.Write(file, 0, "abc").ok());
  EXPECT_THAT(Names(outside.path()), IsEmpty());
}

TEST(UploadTest, TheQuotaIsForAllFilesTogether) {
  TempDir temp;
  AnnsStore store(temp.path(), 10'000);
  const std::string first = RandomBytes(6000), second = RandomBytes(5000);
  ASSERT_TRUE(Send(store, first).ok());
  const absl::Status status = Send(store, second).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("uploads take 6000 bytes"));
  EXPECT_THAT(status.message(), HasSubstr("datasets.max_uploads_bytes"));
  EXPECT_EQ(Names(temp.path() + "/uploads").size(), 1U);
  // Each of these fits alone. The one that is continued later finds no space for its rest, and the
  // total never exceeds the quota.
  const std::string third = RandomBytes(3000), fourth = RandomBytes(2000);
  ASSERT_TRUE(store.Start(FileOf(third)).ok());
  ASSERT_TRUE(store.Start(FileOf(fourth)).ok());
  ASSERT_TRUE(store.Write(FileOf(fourth), 0, fourth).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(store.Write(FileOf(third), 0, third).status()));
}

TEST(UploadTest, AFileThatTheDiskHasNoRoomForIsRefusedBeforeItIsSent) {
  TempDir temp;
  AnnsStore store(temp.path(), std::numeric_limits<int64_t>::max());
  const std::string bytes = RandomBytes(100);
  UploadStore::File file = FileOf(bytes);
  file.size_bytes = int64_t{1} << 50;
  const absl::Status status = store.Start(file).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("bytes free and file " + file.sha256 +
                                          ".npz needs 1125899906842624; free some"));
  EXPECT_THAT(Names(temp.path() + "/uploads"), IsEmpty());
  EXPECT_TRUE(Send(store, bytes).ok());
}

TEST(UploadTest, AStartRemovesWhatNobodyContinuedForAWeek) {
  TempDir temp;
  const UploadStore::File old = FileOf("old"), young = FileOf("young");
  {
    AnnsStore store(temp.path(), kPlenty);
    ASSERT_TRUE(store.Start(old).ok() && store.Start(young).ok());
  }
  const std::string folder = temp.path() + "/uploads/";
  fs::last_write_time(folder + ".part-3-" + old.sha256 + ".npz",
                      fs::file_time_type::clock::now() - std::chrono::hours(8 * 24));
  AnnsStore store(temp.path(), kPlenty);
  EXPECT_EQ(Names(folder), std::vector<std::string>{".part-5-" + young.sha256 + ".npz"});
}

TEST(UploadTest, OneCallAtATimeWritesToAFile) {
  TempDir temp;
  const std::string bytes = RandomBytes(30'000'000);
  UploadStore::File file = FileOf(bytes);
  file.size_bytes += 1;  // So the upload stays incomplete.
  bool aborted = false;
  for (int round = 0; round < 100 && !aborted; ++round) {
    // Each round begins by hashing all existing bytes.
    AnnsStore store(temp.path(), kPlenty);
    ASSERT_TRUE(store.Start(file).ok());
    int64_t at = store.Write(file, 0, "")->received_bytes();
    while (at < file.size_bytes - 1) {
      at = store
               .Write(file, at, absl::string_view(bytes).substr(static_cast<size_t>(at), 2'000'000))
               ->received_bytes();
    }
    AnnsStore fresh(temp.path(), kPlenty);
    absl::Status first, second;
    std::thread other([&] { first = fresh.Write(file, at, "").status(); });
    second = fresh.Write(file, at, "").status();
    other.join();
    EXPECT_FALSE(absl::IsAborted(first) && absl::IsAborted(second));
    aborted = absl::IsAborted(first) || absl::IsAborted(second);
  }
  EXPECT_TRUE(aborted);
}

TEST(UploadTest, AnIncompleteOneIsDeletedByTheNameThatItWouldGet) {
  TempDir temp;
  AnnsStore store(temp.path(), kPlenty);
  store.owners().SetQuota(1000);
  const UploadStore::File file = FileOf(RandomBytes(900));
  const std::string name = "uploads/" + file.sha256 + ".npz";
  EXPECT_TRUE(absl::IsNotFound(store.store().RemoveIncomplete(kUploader, name)));
  ASSERT_TRUE(store.Start(file).ok());
  ASSERT_TRUE(store.store().Start(kOther, file).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(store.Start(FileOf(RandomBytes(200))).status()));
  const Caller stranger = {"eve", Role::kSubmitter, ""};
  EXPECT_TRUE(absl::IsPermissionDenied(store.store().RemoveIncomplete(stranger, name)));
  ASSERT_TRUE(store.store().RemoveIncomplete(kUploader, name).ok());
  EXPECT_TRUE(store.Start(FileOf(RandomBytes(200))).ok()) << "its bytes no longer count";
  EXPECT_EQ(Names(temp.path() + "/uploads").size(), 2U) << "it stays the other's";
  ASSERT_TRUE(store.store().RemoveIncomplete(kAnyAdmin, name).ok());
  EXPECT_EQ(Names(temp.path() + "/uploads").size(), 1U);
}

TEST(UploadTest, CallsThatWaitForTheDiskAreBounded) {
  TempDir temp;
  absl::Notification free;
  AnnsStore store(temp.path(), kPlenty);
  size_t posted = 0;
  absl::Status status;
  while (posted < 1000 && (status = store.Post([&free] { free.WaitForNotification(); })).ok()) {
    ++posted;
  }
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_GE(posted, UploadStore::kMaxWaiting);
  EXPECT_LE(posted, UploadStore::kMaxWaiting + 2);
  free.Notify();
}

TEST(UploadTest, SeveralSendersOfOneFileAgree) {
  TempDir temp;
  AnnsStore store(temp.path(), kPlenty);
  const std::string bytes = RandomBytes(1'000'003);
  std::vector<std::thread> senders;
  std::vector<absl::StatusOr<Upload>> ends(8);
  for (size_t i = 0; i < ends.size(); ++i) {
    senders.emplace_back([&, i] { ends[i] = Send(store, bytes, 10'000 + i); });
  }
  for (std::thread& sender : senders) sender.join();
  for (const auto& end : ends) {
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_EQ(ReadAll(temp.path() + "/" + end->path()), bytes);
  }
}

TEST(UploadTest, AFileBelongsToEveryCallerThatAnnouncedIt) {
  TempDir temp;
  const std::string bytes = RandomBytes(1000);
  const UploadStore::File file = FileOf(bytes);
  const std::string name = "uploads/" + file.sha256 + ".npz";
  {
    AnnsStore store(temp.path(), kPlenty);
    ASSERT_TRUE(store.Start(file).ok());
    const absl::Status refused = store.store().Write(kOther, file, 0, bytes).status();
    EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
    EXPECT_THAT(refused.message(), HasSubstr("belongs to \"ann\""));
    ASSERT_TRUE(store.store().Start(kOther, file).ok());
    ASSERT_TRUE(store.store().Write(kAnyAdmin, file, 0, bytes).ok()) << "an admin changes all";
    EXPECT_EQ(store.store().Start({"cem", Role::kSubmitter, ""}, file)->path(), name);
  }
  AnnsStore store(temp.path(), kPlenty);
  EXPECT_THAT(store.owners().Of(kAnyAdmin, name), ElementsAre("ann", "bob", "cem"));
  EXPECT_THAT(store.owners().Of(kOther, name), ElementsAre("bob"));
  EXPECT_TRUE(store.owners().Sees(kOther, name));
  EXPECT_FALSE(store.owners().Sees({"vic", Role::kViewer, ""}, name));
  EXPECT_EQ(Names(temp.path() + "/.owners/uploads"), std::vector{file.sha256 + ".npz"});
}

TEST(UploadTest, AFileWithoutAnOwnerGetsNone) {
  TempDir temp;
  const std::string bytes = RandomBytes(10);
  const UploadStore::File file = FileOf(bytes);
  const std::string name = "uploads/" + file.sha256 + ".npz";
  temp.Write(name, bytes);
  AnnsStore store(temp.path(), kPlenty);
  EXPECT_EQ(store.Start(file)->path(), name);
  EXPECT_FALSE(store.owners().Has(name));
  EXPECT_TRUE(store.owners().Sees(kOther, name));
}

TEST(UploadTest, AFileBeyondTheOwnersQuotaIsRefusedBeforeItIsSent) {
  TempDir temp;
  const std::string first = RandomBytes(600), second = RandomBytes(500);
  {
    AnnsStore store(temp.path(), kPlenty);
    store.owners().SetQuota(1000);
    ASSERT_TRUE(store.Start(FileOf(first)).ok());
  }
  AnnsStore store(temp.path(), kPlenty);
  store.owners().SetQuota(1000);
  const absl::Status refused = store.Start(FileOf(second)).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(refused.message(),
              HasSubstr("\"ann\" stores 600 bytes and quotas.stored_bytes is "
                        "1000, which leaves no room for 500 bytes more; delete datasets"));
  EXPECT_EQ(Names(temp.path() + "/uploads").size(), 1U);
  EXPECT_TRUE(store.store().Start(kOther, FileOf(second)).ok()) << "each owner for itself";
  ASSERT_TRUE(Send(store, first).ok());
  store.owners().Forget("uploads/" + FileOf(first).sha256 + ".npz");
  EXPECT_TRUE(store.Start(FileOf(second)).ok());
}

}  // namespace
}  // namespace genesis
