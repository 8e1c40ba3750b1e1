// The records of the log, as text and as JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include "base/text/json.h"
#include "genesis/training/v1/job.pb.h"
#include "server/base/job_log.h"
#include "server/base/trace_context.h"
#include "server/logging.h"
#include "spdlog/spdlog.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

using testing::HasSubstr;

TEST(Log, HasOneLineForEachRecordWhateverItSays) {
  const TempDir temp;
  const std::string path = temp.path() + "/log";
  ASSERT_TRUE(InitLogging({.file = path}).ok());
  spdlog::info("job {}",
               std::string("a\n2026-01-01 info forged\r\x1b[2J\xff") + std::string(100'000, 'x'));
  std::ifstream file(path);
  std::stringstream all;
  all << file.rdbuf();
  const std::string text = all.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_THAT(text, HasSubstr("a\\n2026-01-01 info forged\\r\\x1b[2J\\xff"));
  EXPECT_LT(text.size(), 9000U);
}

TEST(Log, IsJsonIfWanted) {
  const TempDir temp;
  const std::string path = temp.path() + "/log";
  ASSERT_TRUE(InitLogging({.file = path, .format = "json"}).ok());
  training::v1::Job job;
  job.set_id("walker");
  job.set_owner("ann \"\n");
  JobLog(job).Warn("step {}: \"a\xff\nb\"", 7);
  spdlog::info("no job");
  std::ifstream file(path);
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  const Json record = Json::parse(line);
  EXPECT_EQ(record["level"], "warning");
  EXPECT_EQ(record["message"], "step 7: \"a\\xff\\nb\"");
  EXPECT_EQ(record["job_id"], "walker");
  EXPECT_EQ(record["owner"], "ann \"\n");
  EXPECT_EQ(record["trace_id"], TraceOf(job).trace_id);
  EXPECT_EQ(record["span_id"], TraceOf(job).span_id);
  ASSERT_TRUE(std::getline(file, line));
  EXPECT_FALSE(Json::parse(line).contains("job_id"));
}

TEST(Log, NamesTheJobOfATextRecord) {
  const TempDir temp;
  const std::string path = temp.path() + "/log";
  ASSERT_TRUE(InitLogging({.file = path}).ok());
  training::v1::Job job;
  job.set_id("walker");
  JobLog(job).Info("step {}", 7);
  std::ifstream file(path);
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  EXPECT_THAT(line, HasSubstr(" info job walker: step 7"));
}

}  // namespace
}  // namespace genesis
