#include "server/auth/audit_log.h"

#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

using google::protobuf::Struct;

class AuditLogTest : public testing::Test {
 protected:
  AuditLogTest() : path_(dir_.path() + "/log/audit.log") {
    audit_ = AuditLog::Open(
                 path_, [this] { return now_; }, [this] { ++lost_; })
                 .value();
  }

  static std::string Text(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Returns all lines, each of which must be JSON.
  std::vector<Struct> Lines() const {
    std::vector<Struct> lines;
    for (const absl::string_view line : absl::StrSplit(Text(path_), '\n', absl::SkipEmpty())) {
      const auto status =
          google::protobuf::util::JsonStringToMessage(std::string(line), &lines.emplace_back());
      EXPECT_TRUE(status.ok()) << line;
    }
    return lines;
  }
  static std::string Field(const Struct& line, const std::string& name) {
    return line.fields().at(name).string_value();
  }

  const TempDir dir_;
  const std::string path_;
  absl::Time now_ = absl::FromUnixSeconds(1'000'000'000);
  int lost_ = 0;
  std::unique_ptr<AuditLog> audit_;
};

TEST_F(AuditLogTest, HasALineOfJsonForEachEntry) {
  audit_->Write({"ann", "admin", "ipv4:127.0.0.1:1", "grpc", "Train", "job-1", "OK"});
  ASSERT_EQ(Lines().size(), 1u);
  EXPECT_EQ(Text(path_),
            "{\"time\":\"2001-09-09T01:46:40.000Z\",\"caller\":\"ann\",\"role\":\"admin\","
            "\"peer\":\"ipv4:127.0.0.1:1\",\"protocol\":\"grpc\",\"method\":\"Train\","
            "\"subject\":\"job-1\",\"outcome\":\"OK\"}\n");
}

TEST_F(AuditLogTest, WhatCallersChooseCannotBreakALine) {
  audit_->Write({"a", "", "", "grpc", "GetJob", "x\"}\n{\"caller\":\"root\\\xFF\x01", "NOT_FOUND"});
  audit_->Write({"a", "", "", "grpc", "GetJob", std::string(100'000, 'y'), "NOT_FOUND"});
  const std::vector<Struct> lines = Lines();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(Field(lines[0], "caller"), "a");
  EXPECT_THAT(Field(lines[0], "subject"), testing::StartsWith("x\"}\n{\"caller\":\"root\\"));
  EXPECT_EQ(Field(lines[1], "subject").size(), 256u);
  audit_->Write({"jwt:änn", "", "", "grpc", "GetJob", "", "OK"});
  EXPECT_EQ(Field(Lines().back(), "caller"), "jwt:änn");
}

TEST_F(AuditLogTest, RefusalsBeyond100AMinuteAreCounted) {
  AuditEntry refusal = {"", "", "p", "grpc", "Stats", "", "UNAUTHENTICATED", true};
  for (int i = 0; i < 250; ++i) audit_->Write(refusal);
  EXPECT_EQ(Lines().size(), 100u);
  audit_->Write({"ann", "admin", "p", "grpc", "Train", "j", "OK"});
  EXPECT_EQ(Lines().back().fields().at("refusals_not_written").number_value(), 150);
  now_ += absl::Minutes(1);
  audit_->Write(refusal);
  EXPECT_EQ(Lines().size(), 102u);
  EXPECT_FALSE(Lines().back().fields().contains("refusals_not_written"));
}

TEST_F(AuditLogTest, GoesOnInANewFileOnceTheOldOneWasMovedAway) {
  audit_->Write({"first", "", "", "", "", "", ""});
  std::filesystem::rename(path_, path_ + ".1");
  audit_->Write({"second", "", "", "", "", "", ""});
  EXPECT_TRUE(audit_->Reopen().ok());
  audit_->Write({"third", "", "", "", "", "", ""});
  EXPECT_THAT(Text(path_ + ".1"), testing::HasSubstr("second"));
  ASSERT_EQ(Lines().size(), 1u);
  EXPECT_EQ(Field(Lines()[0], "caller"), "third");
}

TEST_F(AuditLogTest, KeepsTheOldFileWhenTheNewOneCannotBeOpened) {
  std::filesystem::rename(path_, path_ + ".1");
  std::filesystem::create_directory(path_);
  EXPECT_TRUE(absl::IsFailedPrecondition(audit_->Reopen()));
  audit_->Write({"ann", "", "", "", "", "", ""});
  EXPECT_THAT(Text(path_ + ".1"), testing::HasSubstr("ann"));
}

TEST_F(AuditLogTest, LinesOfManyThreadsDoNotMix) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this, i] {
      for (int j = 0; j < 200; ++j) {
        audit_->Write({absl::StrCat("t", i), "", "", "", "", absl::StrCat(j), ""});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Lines().size(), 800u);
}

TEST_F(AuditLogTest, ALineThatIsCutOffDoesNotSpoilTheNext) {
  // RLIMIT_FSIZE acts like a full disk for this process only.
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 200;
  setrlimit(RLIMIT_FSIZE, &small);
  audit_->Write({"fits", "", "", "", "", "", ""});
  audit_->Write({"is-cut", "", "", "", "", "", ""});
  audit_->Write({"is-lost", "", "", "", "", "", ""});
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(lost_, 2);
  audit_->Write({"whole", "", "", "", "", "", ""});
  const std::vector<std::string> lines = absl::StrSplit(Text(path_), '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[0], testing::HasSubstr("fits"));
  EXPECT_THAT(lines[2], testing::StartsWith("{\"time\""));
  EXPECT_THAT(lines[2], testing::HasSubstr("whole"));
}

TEST(AuditLogOpenTest, SaysWhyItCannot) {
  const TempDir dir;
  const auto audit = AuditLog::Open(
      dir.path(), [] { return absl::Now(); }, [] {});
  EXPECT_EQ(audit.status().message(),
            absl::StrCat("cannot open the audit log ", dir.path(),
                         ": Is a directory; choose another with --audit-file"));
}

}  // namespace
}  // namespace genesis
