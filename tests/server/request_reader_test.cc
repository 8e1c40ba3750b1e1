#include "server/rest/request_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text/field_error.h"
#include "config/job/job_file.h"
#include "genesis/training/v1/training_service.pb.h"
#include "google/rpc/error_details.pb.h"
#include "server/http/http_range.h"
#include "server/rest/path_template.h"
#include "yaml-cpp/yaml.h"

namespace genesis {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using training::v1::ListJobsRequest;
using training::v1::TrainRequest;

std::vector<std::string> FieldsOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kBadRequestType);
  google::rpc::BadRequest details;
  if (payload) details.ParseFromString(std::string(*payload));
  std::vector<std::string> fields;
  for (const auto& violation : details.field_violations()) fields.push_back(violation.field());
  return fields;
}

TEST(ReadQuery, FillsFieldsOfEveryKind) {
  ListJobsRequest request;
  ASSERT_TRUE(ReadQuery("states=JOB_STATE_QUEUED&states=RUNNING&page_size=5&"
                        "idPrefix=run%2D&labels.team=a+b&labels.a.b=c&labels%5Bx%5D=y&"
                        "order=JOB_ORDER_PRIORITY",
                        request)
                  .ok());
  EXPECT_THAT(request.states(),
              ElementsAre(training::v1::JOB_STATE_QUEUED, training::v1::JOB_STATE_RUNNING));
  EXPECT_EQ(request.page_size(), 5);
  EXPECT_EQ(request.id_prefix(), "run-");
  EXPECT_EQ(request.labels().at("team"), "a b");
  EXPECT_EQ(request.labels().at("a.b"), "c");
  EXPECT_EQ(request.labels().at("x"), "y");
  EXPECT_EQ(request.order(), training::v1::JOB_ORDER_PRIORITY);
}

// JSON.stringify of JavaScript writes a number that is not finite as null.
TEST(ReadJson, RefusesNullsAmongTheNumbersOfAMap) {
  training::v1::ReportMetricsRequest request;
  const absl::Status refused =
      ReadJson(R"({"step": 1, "values": {"return": null, "wins": 2}})", request);
  EXPECT_EQ(refused.message(),
            "values.return is null; accepted: a number; leave the key out if it has none");
  EXPECT_TRUE(ReadJson(R"({"step": null, "values": {"null": 1}})", request).ok());
}

TEST(ReadQuery, RepeatsRepeatedFieldsOfMessages) {
  training::v1::ListEventsRequest request;
  ASSERT_TRUE(ReadQuery("filter.kinds=updated&filter.kinds=deleted&filter.states=FAILED&"
                        "filter.states=CANCELLED&filter.labels.team=a&filter[owner]=ann&"
                        "since=2026-01-31T12:00:00%2B01:00",
                        request)
                  .ok());
  EXPECT_EQ(request.since().seconds(), 1769857200);
  EXPECT_EQ(request.filter().kinds_size(), 2);
  EXPECT_EQ(request.filter().states_size(), 2);
  EXPECT_EQ(request.filter().labels().at("team"), "a");
  for (const char* twice :
       {"filter.owner=a&filter.owner=b", "filter.labels.t=a&filter.labels.t=b"}) {
    training::v1::ListEventsRequest other;
    EXPECT_THAT(ReadQuery(twice, other).message(), testing::HasSubstr("given twice")) << twice;
  }
}

TEST(ReadQuery, RefusesWhatItDoesNotKnowAndSaysWhatItDoes) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"pagesize=1", "did you mean page_size?"},
      {"page_size=", "a whole number"},
      {"page_size=2147483648", "a whole number"},
      {"page_size=1&page_size=1", "given twice"},
      {"states=QUEUEING", "QUEUED, STARTING"},
      {"labels=a", "labels.KEY=VALUE"},
      {"page_size.x=1", "has no fields"},
      {"owner=%zz", "hexadecimal"},
      {"owner=%C0%80", "UTF-8"},
      {"owner", "needs a value"},
  };
  training::v1::ListEventsRequest events;
  EXPECT_THAT(ReadQuery("since=yesterday", events).message(), HasSubstr("2026-01-31T12:00:00Z"));
  for (const auto& [query, part] : cases) {
    ListJobsRequest request;
    const absl::Status status = ReadQuery(query, request);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << query;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part)) << query;
  }
}

TEST(ReadJson, ReadsBothSpellingsOfNames) {
  TrainRequest request;
  ASSERT_TRUE(
      ReadJson(R"({"jobId": "a", "spec": {"training": {"max_steps": "5"}}})", request).ok());
  EXPECT_EQ(request.job_id(), "a");
  EXPECT_EQ(request.spec().training().max_steps(), 5);
}

TEST(ReadJson, TakesShortNamesOfEnumsBesideFullOnes) {
  TrainRequest request;
  ASSERT_TRUE(ReadJson(R"({"spec": {"precision": {"mode": "BF16", "fallbacks": ["FP32"]},
                                    "optimizer": {"kind": "OPTIMIZER_KIND_SGD"}}})",
                       request)
                  .ok());
  EXPECT_EQ(request.spec().precision().mode(), training::v1::PRECISION_MODE_BF16);
  EXPECT_THAT(request.spec().precision().fallbacks(),
              ElementsAre(training::v1::PRECISION_MODE_FP32));
  EXPECT_EQ(request.spec().optimizer().kind(), training::v1::OPTIMIZER_KIND_SGD);
  const absl::Status unknown = ReadJson(R"({"spec": {"precision": {"mode": "FP99"}}})", request);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("FP99"));
  EXPECT_FALSE(ReadJson(R"({"spec": {"precision": {"mode": "SGD"}}})", request).ok())
      << "a name of another type";
  EXPECT_FALSE(ReadJson(R"({"spec": {"precision": {"mode": "mixed_bf16"}}})", request).ok());
}

// Converts YAML to JSON. Plain scalars that are JSON numbers or Booleans stay as they are.
std::string ToJson(const YAML::Node& node) {
  std::vector<std::string> parts;
  if (node.IsMap()) {
    for (const auto& each : node) {
      parts.push_back(
          absl::StrCat(nlohmann::json(each.first.Scalar()).dump(), ":", ToJson(each.second)));
    }
    return absl::StrCat("{", absl::StrJoin(parts, ","), "}");
  }
  if (node.IsSequence()) {
    for (const YAML::Node& each : node) parts.push_back(ToJson(each));
    return absl::StrCat("[", absl::StrJoin(parts, ","), "]");
  }
  if (node.IsNull()) return "null";
  const std::string& text = node.Scalar();
  const bool plain = node.Tag() == "?" && nlohmann::json::accept(text) && text[0] != '"';
  return plain ? text : nlohmann::json(text).dump();
}

// Returns the job files of the examples and of the YAML blocks of the pages.
std::vector<std::string> JobFiles() {
  const std::filesystem::path source = GENESIS_SOURCE_DIR;
  std::vector<std::string> found;
  const auto read = [](const std::filesystem::path& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  for (const auto& each : std::filesystem::directory_iterator(source / "examples")) {
    if (each.path().extension() == ".yaml") found.push_back(read(each.path()));
  }
  for (const auto& each : std::filesystem::directory_iterator(source / "docs")) {
    if (each.path().extension() != ".md") continue;
    const std::string page = read(each.path());
    for (size_t at = 0; (at = page.find("```yaml\n", at)) != std::string::npos;) {
      at += std::string("```yaml\n").size();
      found.push_back(page.substr(at, page.find("```", at) - at));
    }
  }
  return found;
}

TEST(ReadJson, EveryJobFileIsTheBodyOfARequest) {
  int read = 0;
  for (const std::string& yaml : JobFiles()) {
    const absl::StatusOr<training::v1::JobSpec> wanted = ParseJobFile(yaml, "job.yaml");
    if (!wanted.ok()) continue;  // Part of a job file, or settings.
    ++read;
    TrainRequest request;
    const std::string body = absl::StrCat("{\"spec\": ", ToJson(YAML::Load(yaml)), "}");
    const absl::Status status = ReadJson(body, request);
    ASSERT_TRUE(status.ok()) << status << body;
    EXPECT_EQ(request.spec().SerializeAsString(), wanted->SerializeAsString()) << body;
  }
  EXPECT_GE(read, 6);
}

TEST(ReadJson, NamesEveryUnknownFieldWithItsPath) {
  TrainRequest request;
  const absl::Status status = ReadJson(
      R"({"jobid": "a", "spec": {"training": {"max_stepz": 5},
          "rehearsals": [{}, {"nothing": 1}], "scheduling": {"labels": {"any": "thing"}}}})",
      request);
  EXPECT_THAT(FieldsOf(status), testing::UnorderedElementsAre("jobid", "spec.training.max_stepz",
                                                              "spec.rehearsals[1].nothing"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("did you mean max_steps?"));
}

TEST(ReadJson, RefusesWhatIsNoObjectOfTheRightTypes) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{", "not JSON"},
      {"[]", "no object"},
      {"\xff", "UTF-8"},
      {R"({"spec": {"training": {"max_steps": "many"}}})", "max_steps"},
      {R"({"validate_only": 3})", "validate_only"},
      {std::string(30, '['), "not JSON"},
      {std::string(200, '['), "nested deeper than 32 levels"},
  };
  for (const auto& [text, part] : cases) {
    TrainRequest request;
    const absl::Status status = ReadJson(text, request);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part)) << text;
  }
}

TEST(MatchPath, FindsFieldsAndVerbs) {
  using Fields = std::map<std::string, std::string>;
  EXPECT_EQ(MatchPath("/v1/jobs/{job_id}", "/v1/jobs/a"), Fields({{"job_id", "a"}}));
  EXPECT_EQ(MatchPath("/v1/jobs/{job_id}:cancel", "/v1/jobs/a:cancel"), Fields({{"job_id", "a"}}));
  EXPECT_EQ(MatchPath("/v1/jobs", "/v1/jobs"), Fields());
  EXPECT_EQ(MatchPath("/v1/jobs/{job_id}", "/v1/jobs/a:cancel"), std::nullopt);
  EXPECT_EQ(MatchPath("/v1/jobs/{job_id}:cancel", "/v1/jobs/:cancel"), std::nullopt);
  EXPECT_EQ(MatchPath("/v1/jobs/{job_id}", "/v1/jobs/"), std::nullopt);
  EXPECT_EQ(MatchPath("/v1/jobs/{job_id}", "/v1/jobs/a/b"), std::nullopt);
  EXPECT_EQ(MatchPath("/v1/jobs", "/v1/job"), std::nullopt);
}

// Returns "-" for the whole file, "416" if the range is not satisfiable, otherwise "begin..end".
std::string Ranged(const std::string& header, int64_t size = 10) {
  const RangeAnswer answer = ReadRange(header, size);
  if (!answer.range) return "416";
  if (!answer.partial) return "-";
  return std::to_string(answer.range->begin) + ".." + std::to_string(answer.range->end);
}

TEST(ReadRange, FollowsTheRfc) {
  EXPECT_EQ(Ranged("bytes=0-0"), "0..1");
  EXPECT_EQ(Ranged("bytes=2-"), "2..10");
  EXPECT_EQ(Ranged("bytes=2-99"), "2..10");
  EXPECT_EQ(Ranged("bytes=-3"), "7..10");
  EXPECT_EQ(Ranged("bytes=-99"), "0..10");
  EXPECT_EQ(Ranged("bytes=10-"), "416");
  EXPECT_EQ(Ranged("bytes=-0"), "416");
  EXPECT_EQ(Ranged("bytes=-5", 0), "416");
  for (const char* whole : {"bytes=5-2", "bytes=a-b", "bytes=1-2,4-5", "lines=1-2", "bytes=", "x",
                            "bytes=+1-2", "bytes=99999999999999999999-"}) {
    EXPECT_EQ(Ranged(whole), "-") << whole;
  }
}

}  // namespace
}  // namespace genesis
