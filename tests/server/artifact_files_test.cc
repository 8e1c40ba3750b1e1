#include "server/checkpoints/artifact_files.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/files/crc32c.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

constexpr int64_t kPiece = 4;

class ArtifactFilesTest : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(temp_.path() + "/" + name) << text;
  }
  std::vector<std::string> Names(const std::string& job_id) {
    std::vector<std::string> names;
    for (const auto& each : ListArtifactFiles(temp_.path(), job_id)) names.push_back(each.name());
    return names;
  }
  absl::StatusOr<training::v1::ReadArtifactResponse> Read(const std::string& name,
                                                          int64_t offset = 0, int64_t limit = 0) {
    training::v1::ReadArtifactRequest request;
    request.set_job_id("a");
    request.set_name(name);
    request.set_offset(offset);
    request.set_limit(limit);
    return ReadArtifactFile(temp_.path(), request, kPiece);
  }

  TempDir temp_;
};

TEST_F(ArtifactFilesTest, AreThoseOfTheJobAlone) {
  for (const char* name :
       {"a-trace-step-7.json", "a-step-000000000100.safetensors", "a-step-000000000100.pt",
        "a-step-000000000100.pt.manifest.json", "a-b-trace-step-7.json", "ab-trace-step-7.json",
        "a-trace-step-.json", "a-trace-step-7x.json", "a-trace-step-7.json.part"}) {
    Write(name, "{}");
  }
  EXPECT_THAT(Names("a"), ElementsAre("a-step-000000000100.safetensors", "a-trace-step-7.json"));
  EXPECT_THAT(Names("a-b"), ElementsAre("a-b-trace-step-7.json"));
  EXPECT_THAT(ListArtifactFiles(temp_.path() + "/nowhere", "a"), ElementsAre());
}

TEST_F(ArtifactFilesTest, AreReadInPieces) {
  Write("a-trace-step-7.json", "0123456789");
  EXPECT_EQ(Read("a-trace-step-7.json")->piece(), "0123");
  EXPECT_EQ(Read("a-trace-step-7.json", 4, 2)->piece(), "45");
  EXPECT_EQ(Read("a-trace-step-7.json", 8)->piece(), "89");
  EXPECT_EQ(Read("a-trace-step-7.json", 10)->piece(), "");
  const auto piece = Read("a-trace-step-7.json");
  EXPECT_EQ(piece->size_bytes(), 10);
  EXPECT_EQ(piece->piece_crc32c(), Crc32c(0, "0123", 4));
  EXPECT_EQ(Read("a-trace-step-7.json", 11).status(),
            absl::OutOfRangeError("offset is 11; accepted: 0 to 10, the size of "
                                  "\"a-trace-step-7.json\""));
}

TEST_F(ArtifactFilesTest, LeadNowhereElse) {
  Write("secret", "x");
  fs::create_symlink("secret", temp_.path() + "/a-trace-step-1.json");
  fs::create_directory(temp_.path() + "/a-trace-step-2.json");
  mkfifo((temp_.path() + "/a-trace-step-3.json").c_str(), 0600);
  EXPECT_THAT(Names("a"), ElementsAre());
  for (const char* name : {"a-trace-step-1.json", "a-trace-step-2.json", "a-trace-step-3.json",
                           "a-trace-step-4.json", "secret", "../secret", "a-trace-step-1/../secret",
                           "", "a-step-1.pt", "b-trace-step-1.json"}) {
    EXPECT_EQ(Read(name).status().code(), absl::StatusCode::kNotFound) << name;
  }
  EXPECT_EQ(Read("x\n").status().message(),
            "job \"a\" has no artifact \"x\\n\"; ListArtifacts names those that it has");
}

}  // namespace
}  // namespace genesis
