#include "trainer/checkpoint/shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files/durable_file.h"
#include "base/files/sha256.h"
#include "tests/temp_dir.h"
#include "tests/trainer/same_state.h"
#include "tests/trainer/state_for_test.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/checkpoint_reader.h"
#include "trainer/checkpoint/checkpoint_writer.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/verify.h"
#include "trainer/checkpoint/weights.h"
#include "trainer/checkpoint/write_checkpoint.h"

namespace genesis {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr training::v1::OptimizerKind kAdamW = training::v1::OPTIMIZER_KIND_ADAMW;
constexpr training::v1::OptimizerKind kSgd = training::v1::OPTIMIZER_KIND_SGD;

TrainingState StateAt(int64_t step, int64_t width = 4) {
  TrainingState state = StateForTest(kAdamW, static_cast<uint64_t>(step), width);
  state.position.progress.set_step(step);
  return state;
}

CheckpointMeta MetaOf(int rank, int ranks, const std::string& token = "t-1") {
  CheckpointMeta meta;
  meta.job_id = "a";
  meta.shard = ShardPlace{.rank = rank, .ranks = ranks, .token = token};
  return meta;
}

// Returns the state of a rank with sharded optimizer state: only its own part is kept.
TrainingState OwnPart(TrainingState state, int rank, int ranks) {
  const Value tree = ShardTree(state, {.rank = rank, .ranks = ranks, .token = "t"});
  std::string kept;
  for (const DictItem& item : tree.As<ValueDict>()->items) {
    if (item.key != DictKey(std::string("model_state_dict"))) continue;
    for (const DictItem& each : item.value.As<ValueDict>()->items) {
      absl::StrAppend(&kept, std::get<std::string>(each.key), ";");
    }
  }
  for (size_t i = 0; i < state.optimizer.parameters.size(); ++i) {
    if (!absl::StrContains(kept, state.model[i].first + ";")) state.optimizer.parameters[i].clear();
  }
  return state;
}

// Writes the shards of all ranks, one after another.
void Write(const TrainingState& state, const std::string& path, int ranks,
           const std::string& token = "t-1") {
  for (int rank = 0; rank < ranks; ++rank) {
    const auto size = WriteShard(OwnPart(state, rank, ranks), path, MetaOf(rank, ranks, token));
    ASSERT_TRUE(size.ok()) << size.status();
  }
  const auto shards = FindShards(path, state.position.progress.step(), MetaOf(0, ranks, token));
  ASSERT_TRUE(shards.ok()) << shards.status();
  ASSERT_TRUE(shards->has_value());
  const auto size = WriteIndex(OwnPart(state, 0, ranks), path, MetaOf(0, ranks, token), **shards);
  ASSERT_TRUE(size.ok()) << size.status();
  int64_t all = static_cast<int64_t>(fs::file_size(path));
  for (const ShardFile& shard : **shards) all += static_cast<int64_t>(shard.size);
  EXPECT_EQ(*size, all);
}

std::string FaultOf(const std::string& path) {
  const auto state = ReadCheckpoint(path);
  return state.ok() ? "" : std::string(state.status().message());
}

class CheckpointShardsTest : public testing::Test {
 protected:
  std::string Shard(int rank, int ranks = 2, const std::string& token = "t-1") const {
    return ShardPath(path_, {.rank = rank, .ranks = ranks, .token = token});
  }

  const TempDir temp_;
  const CheckpointFolder folder_{temp_.path(), "a"};
  const std::string path_ = folder_.Path(9);
};

TEST_F(CheckpointShardsTest, AnyNumberOfRanksWritesTheStateOfOneFile) {
  for (const auto kind : {kAdamW, kSgd}) {
    const TrainingState state = StateForTest(kind, 3);
    const std::string one = temp_.path() + "/one.pt";
    ASSERT_TRUE(WriteCheckpoint(state, one).ok());
    const auto whole = ReadCheckpoint(one);
    ASSERT_TRUE(whole.ok()) << whole.status();
    for (const int ranks : {1, 2, 3, 7}) {
      Write(state, path_, ranks, absl::StrCat("t-", ranks));
      const auto read = ReadCheckpoint(path_);
      ASSERT_TRUE(read.ok()) << ranks << ": " << read.status();
      EXPECT_EQ(Difference(*read, *whole), "") << ranks;
      EXPECT_EQ(*VerifyCheckpoint(path_), "");
      // Shards and manifests of the earlier write must be gone.
      EXPECT_THAT(ShardNames(path_), SizeIs(2 * ranks));
      // If it is written again as one file, the result must be equal.
      const std::string again = temp_.path() + "/again.pt";
      ASSERT_TRUE(WriteCheckpoint(*read, again).ok());
      EXPECT_EQ(Sha256HexOfFile(again), Sha256HexOfFile(one));
    }
  }
}

TEST_F(CheckpointShardsTest, SharesAreAboutEqualAndTheIndexIsSmall) {
  TrainingState state = StateAt(9, 20000);
  Write(state, path_, 2);
  const auto first = static_cast<double>(fs::file_size(Shard(0)));
  const auto second = static_cast<double>(fs::file_size(Shard(1)));
  EXPECT_LT(std::abs(first - second), 0.1 * (first + second));
  EXPECT_LT(fs::file_size(path_), 60'000u);
  EXPECT_GT(first + second, 1e6);
}

TEST_F(CheckpointShardsTest, WeightsAreReadAndExportedFromThem) {
  const TrainingState state = StateAt(9);
  Write(state, path_, 2);
  const auto weights = ReadWeights(path_);
  ASSERT_TRUE(weights.ok()) << weights.status();
  ASSERT_THAT(*weights, SizeIs(state.model.size() + state.tied.size()));
  for (size_t i = 0; i < state.model.size(); ++i) {
    EXPECT_EQ((*weights)[i].first, state.model[i].first);
    EXPECT_TRUE(at::equal((*weights)[i].second, state.model[i].second));
  }
  const std::string to = temp_.path() + "/average.safetensors";
  ASSERT_TRUE(ExportSafetensors(path_, to, WeightsKind::kAverage).ok());
  const auto average = ReadWeights(to);
  ASSERT_TRUE(average.ok()) << average.status();
  EXPECT_THAT(*average, SizeIs(state.ema.size() + state.tied.size()));
  const auto part = ReadWeights(Shard(1));
  EXPECT_EQ(part.status().message(),
            absl::StrCat(Shard(1),
                         ": is a shard, which holds a part of the weights; accepted: the "
                         ".pt that lists it"));
}

TEST_F(CheckpointShardsTest, AShardThatIsGoneOrDamagedIsNamed) {
  const auto refused = [&](const std::string& said) {
    const std::string fault = FaultOf(path_);
    EXPECT_THAT(fault, HasSubstr(said));
    EXPECT_EQ(std::string(VerifyCheckpoint(path_).status().message()), fault);
  };
  Write(StateAt(9), path_, 2);
  const auto size = fs::file_size(Shard(1));
  {
    std::fstream file(Shard(1), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(size / 2));
    file.put('\x5a');
  }
  refused(absl::StrCat(Shard(1), ": has SHA-256 "));
  fs::resize_file(Shard(1), size - 1);
  refused(absl::StrCat(Shard(1), ": is ", size - 1, " bytes long; ", path_, " says ", size,
                       "; the file is damaged"));
  fs::remove(Shard(1));
  refused(absl::StrCat(Shard(1), ": cannot be opened: No such file or directory; ", path_,
                       " lists it, with ", size, " bytes"));
  // Recovery uses the previous checkpoint, and retention keeps it.
  ASSERT_TRUE(WriteCheckpoint(StateAt(5), folder_.Path(5)).ok());
  const auto good = NewestGood(folder_.Paths(), [](const std::string&) {});
  EXPECT_EQ(*good, folder_.Path(5));
  EXPECT_THAT(folder_.Retain(1, 9), IsEmpty());
}

// Tests a forged index that lists `shards`.
class HostileIndexTest : public CheckpointShardsTest {
 protected:
  std::string FaultWith(const std::vector<ShardFile>& shards) {
    const CheckpointMeta meta = MetaOf(0, 2);
    const auto size = WriteIndex(StateAt(9), folder_.Path(9), meta, shards);
    EXPECT_TRUE(size.ok()) << size.status();
    // Without its manifest, only the file itself can be checked, with the same result.
    const std::string with = FaultOf(path_);
    fs::remove(ManifestPath(path_));
    EXPECT_EQ(FaultOf(path_), with);
    return with;
  }
  ShardFile Describe(const std::string& path) const {
    return {.name = fs::path(path).filename().string(),
            .size = fs::file_size(path),
            .sha256 = Sha256HexOfFile(path)};
  }
  ShardFile Good(int rank) { return Describe(Shard(rank)); }
  void WriteBoth(int64_t step) {
    for (int rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(WriteShard(StateAt(step), path_, MetaOf(rank, 2)).ok());
    }
  }
};

TEST_F(HostileIndexTest, NamesOfOtherFilesAreRefused) {
  WriteBoth(9);
  const std::vector<ShardFile> good = {Good(0), Good(1)};
  ASSERT_EQ(FaultWith(good), "");
  for (const std::string& name :
       {std::string("../a-step-000000000009.pt.shard-1-of-2-t-1"),
        std::string("a-step-000000000009.pt.shard-1-of-2-/../../etc/x"), std::string("/etc/passwd"),
        std::string(""), std::string("a-step-000000000009.pt.shard-1-of-2-"),
        std::string("a-step-000000000008.pt.shard-1-of-2-t-1"),
        std::string("b-step-000000000009.pt.shard-1-of-2-t-1"), good[0].name}) {
    WriteBoth(9);
    std::vector<ShardFile> shards = good;
    shards[1].name = name;
    EXPECT_EQ(FaultWith(shards),
              absl::StrCat(path_, ": lists shard 1 as \"", name,
                           "\"; accepted: a-step-000000000009.pt.shard-1-of-2-<letters and "
                           "digits>, in the same folder"));
  }
}

TEST_F(HostileIndexTest, AShardOfAnotherStepIsRefused) {
  WriteBoth(8);
  EXPECT_EQ(FaultWith({Good(0), Good(1)}),
            absl::StrCat(Shard(0),
                         ": is shard 0 of 2 of step 8, written as \"t-1\"; accepted: "
                         "shard 0 of 2 of step 9, written as \"t-1\", which ",
                         path_, " lists"));
}

TEST_F(HostileIndexTest, AShardWithAnothersTensorsIsRefused) {
  WriteBoth(9);
  // The shard of rank 0 has a tensor under the name of one that belongs to rank 1.
  TrainingState state = StateAt(9);
  std::swap(state.model[0].first, state.model[4].first);
  ASSERT_TRUE(WriteShard(state, path_, MetaOf(0, 2)).ok());
  EXPECT_THAT(FaultWith({Good(0), Good(1)}),
              HasSubstr(absl::StrCat("for which ", path_, " has no place")));
}

TEST_F(HostileIndexTest, AListThatLacksAShardIsRefused) {
  ASSERT_TRUE(WriteShard(StateAt(9), path_, MetaOf(0, 1)).ok());
  WriteBoth(9);
  // A copy of shard 0 of 2 in place of the only shard: its name does not match its content.
  fs::copy_file(Shard(0), Shard(0, 1), fs::copy_options::overwrite_existing);
  EXPECT_THAT(FaultWith({Describe(Shard(0, 1))}), HasSubstr("is shard 0 of 2 of step 9"));
}

TEST_F(HostileIndexTest, ALinkOutOfTheFolderIsJudgedByItsBytes) {
  WriteBoth(9);
  std::vector<ShardFile> shards = {Good(0), Good(1)};
  fs::remove(Shard(1));
  fs::create_symlink("/etc/passwd", Shard(1));
  EXPECT_THAT(FaultWith(shards), HasSubstr(Shard(1) + ": is "));
}

TEST_F(CheckpointShardsTest, PrepareRemovesShardsThatNoCheckpointLists) {
  Write(StateAt(9), path_, 2);
  ASSERT_TRUE(WriteShard(StateAt(9), path_, MetaOf(1, 2, "dead-4")).ok());
  ASSERT_TRUE(WriteShard(StateAt(10), folder_.Path(10), MetaOf(0, 2, "dead-5")).ok());
  temp_.Write("b-step-000000000010.pt.shard-0-of-2-x-1", "another job's");
  CheckpointFolder folder = folder_;
  ASSERT_TRUE(folder.Prepare().ok());
  EXPECT_THAT(ShardNames(path_), SizeIs(4));
  EXPECT_THAT(ShardNames(folder_.Path(10)), IsEmpty());
  EXPECT_TRUE(fs::exists(temp_.path() + "/b-step-000000000010.pt.shard-0-of-2-x-1"));
  EXPECT_TRUE(ReadCheckpoint(path_).ok());
  EXPECT_THAT(folder.Paths(), ElementsAre(path_));
}

TEST_F(CheckpointShardsTest, AShardOfAFailedCheckpointGoesAndOneThatIsListedStays) {
  Write(StateAt(9), path_, 2);
  ASSERT_TRUE(WriteShard(StateAt(9), path_, MetaOf(1, 2, "failed-4")).ok());
  ASSERT_TRUE(WriteShard(StateAt(10), folder_.Path(10), MetaOf(1, 2, "failed-5")).ok());
  folder_.RemoveShard(9, {.rank = 1, .ranks = 2, .token = "failed-4"});
  folder_.RemoveShard(9, {.rank = 1, .ranks = 2, .token = "t-1"});
  folder_.RemoveShard(10, {.rank = 1, .ranks = 2, .token = "failed-5"});
  folder_.RemoveShard(11, {.rank = 1, .ranks = 2, .token = "never-6"});
  EXPECT_THAT(ShardNames(path_), SizeIs(4));
  EXPECT_THAT(ShardNames(folder_.Path(10)), IsEmpty());
  EXPECT_TRUE(ReadCheckpoint(path_).ok());
}

TEST_F(CheckpointShardsTest, RetentionRemovesAllFilesOfOne) {
  for (const int64_t step : {1, 2, 3}) Write(StateAt(step), folder_.Path(step), 2);
  EXPECT_THAT(folder_.Retain(1, 3), ElementsAre("a-step-2", "a-step-1"));
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(temp_.path())) {
    EXPECT_THAT(entry.path().filename().string(), testing::StartsWith("a-step-000000000003."));
    ++files;
  }
  EXPECT_EQ(files, 6u);
}

// Starts a process that writes a rank's shards of one step after another.
pid_t WriteAsRank(const std::string& folder, int rank, const std::string& token, int64_t newest) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  CheckpointWriter writer(CheckpointFolder(folder, "a"), {.keep_last = 2});
  const TrainingState state = StateAt(1, 2000);
  TrainingState next = OwnPart(state, rank, 2);
  for (next.position.progress.set_step(newest + 1);;
       next.position.progress.set_step(next.position.progress.step() + 1)) {
    const CheckpointMeta meta =
        MetaOf(rank, 2, absl::StrCat(token, "-", next.position.progress.step()));
    if (!writer.Submit(next, meta, nullptr).ok()) _exit(1);
  }
}

TEST_F(CheckpointShardsTest, RanksKilledAtAnyTimeLeaveOnlyWholeCheckpoints) {
  std::mt19937 chooser(7);
  int64_t newest = 0;
  for (int round = 0; round < 20; ++round) {
    pid_t pids[2];
    const std::string token = absl::StrCat("round", round);
    for (int rank = 0; rank < 2; ++rank)
      pids[rank] = WriteAsRank(temp_.path(), rank, token, newest);
    // A random process is killed first; the other one continues for a while.
    const size_t first = chooser() % 2;
    for (const size_t each : {first, 1 - first}) {
      std::this_thread::sleep_for(std::chrono::microseconds(chooser() % 90000));
      kill(pids[each], SIGKILL);
      int status = 0;
      waitpid(pids[each], &status, 0);
      ASSERT_TRUE(WIFSIGNALED(status));
    }
    CheckpointFolder folder(temp_.path(), "a");
    ASSERT_TRUE(folder.Prepare().ok());
    size_t files = 0;
    for (const auto& entry : fs::directory_iterator(temp_.path())) {
      EXPECT_THAT(entry.path().filename().string(), testing::StartsWith("a-step-"));
      ++files;
    }
    // The checkpoint and two shards, each with a manifest.
    EXPECT_EQ(files, 6 * folder.Paths().size());
    for (const std::string& path : folder.Paths()) {
      const auto verified = VerifyCheckpoint(path);
      ASSERT_TRUE(verified.ok()) << verified.status();
    }
    if (folder.Paths().empty()) continue;
    const auto left = ReadCheckpoint(folder.Paths().front());
    ASSERT_TRUE(left.ok()) << left.status();
    EXPECT_GE(left->position.progress.step(), newest);
    newest = left->position.progress.step();
  }
  EXPECT_GT(newest, 3);
}

TEST_F(CheckpointShardsTest, AShardThatNeverComesEndsTheWaitAndNothingIsListed) {
  {
    CheckpointWriter writer(folder_, {});
    ASSERT_TRUE(writer.Submit(StateAt(9), MetaOf(0, 2), nullptr).ok());
    ASSERT_TRUE(writer.FlushShard().ok());
    EXPECT_TRUE(fs::exists(Shard(0)));
    EXPECT_FALSE(fs::exists(path_));
    writer.ExpectShardsWithin(std::chrono::milliseconds(20));
    const absl::Status status = writer.Flush();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(status.message(),
              absl::StrCat(path_,
                           ": its 2 shards are not all there; a rank ended before its own "
                           "was durable, or writes to another folder: all ranks need the "
                           "same"));
  }
  EXPECT_THAT(folder_.Paths(), IsEmpty());
}

}  // namespace
}  // namespace genesis
