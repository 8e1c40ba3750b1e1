// Tests of each of the daemon's defenses against malicious callers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <stdexcept>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/text/field_error.h"
#include "base/text/message_limits.h"
#include "genesis/training/v1/training_service.pb.h"
#include "google/rpc/status.pb.h"
#include "server/api/open_watches.h"
#include "server/auth/certificate_name.h"
#include "server/base/answer_once.h"
#include "server/base/guard.h"
#include "server/base/io_threads.h"
#include "server/base/request_check.h"
#include "server/http/host_check.h"
#include "server/http/http_framing.h"
#include "server/rest/json_limits.h"
#include "server/rest/request_reader.h"
#include "server/rpc/status_mapping.h"

namespace genesis {
namespace {

using testing::HasSubstr;
using training::v1::ListJobsRequest;
using training::v1::TrainRequest;

TEST(Guard, TurnsWhatIsThrownIntoAStatusAndCountsIt) {
  TakeCaughtErrors();
  const absl::Status status =
      Guarded("GetHistory", [] { throw std::out_of_range("vector::_M_range_check"); });
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ended GetHistory"));
  EXPECT_EQ(TakeCaughtErrors(), 1);
  EXPECT_EQ(TakeCaughtErrors(), 0);
}

TEST(AnswerOnce, AnswersForATaskThatThrowsAndNeverTwice) {
  std::vector<absl::StatusCode> given;
  const Callback<int> first = [&](const absl::StatusOr<int>& result) {
    given.push_back(result.status().code());
  };
  {
    IoThreads threads(1);
    threads.Post([answer = AnswerOnce(first)] { throw std::bad_alloc(); });
  }
  EXPECT_THAT(given, testing::ElementsAre(absl::StatusCode::kInternal));
  given.clear();
  {
    const Callback<int> once = AnswerOnce(first);
    once(7);
    once(absl::InternalError("late"));
  }
  EXPECT_THAT(given, testing::ElementsAre(absl::StatusCode::kOk));
}

TEST(RequestCheck, BoundsListsMapsAndTextsByTheirFields) {
  ListJobsRequest list;
  for (int i = 0; i < 100'000; ++i) list.add_states(training::v1::JOB_STATE_QUEUED);
  EXPECT_EQ(CheckRequest(list).message(), "states: has 100000 values; accepted: at most 64");
  TrainRequest train;
  for (int i = 0; i < 65; ++i) {
    (*train.mutable_spec()->mutable_scheduling()->mutable_labels())[absl::StrCat("k", i)] = "v";
  }
  train.mutable_spec()->mutable_dataset()->mutable_replay()->set_path(std::string(100'000, '\n'));
  const absl::Status status = CheckRequest(train);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("scheduling.labels: has 65 keys; accepted: at most 64"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("dataset.replay.path is \""));
  EXPECT_LT(status.message().size(), 3000U);
  training::v1::AppendTrajectoriesRequest append;
  for (int i = 0; i < 1000; ++i) append.add_rewards(1);
  EXPECT_TRUE(CheckRequest(append).ok()) << "a column is as long as it is";
}

TEST(RequestCheck, RefusesEveryNumberThatAnEnumDoesNotHave) {
  ListJobsRequest list;
  list.set_order(static_cast<training::v1::JobOrder>(77));
  EXPECT_EQ(CheckRequest(list).message(),
            "order is 77; accepted: NEWEST_FIRST, OLDEST_FIRST, PRIORITY");
  list.clear_order();
  list.add_states(static_cast<training::v1::JobState>(-5));
  EXPECT_THAT(std::string(CheckRequest(list).message()), HasSubstr("states[0] is -5; accepted: "));
  training::v1::SetPrecisionPolicyRequest policy;
  policy.set_application(static_cast<training::v1::PolicyApplication>(9));
  EXPECT_FALSE(CheckRequest(policy).ok());
}

TEST(Status, FitsItsTrailerHoweverManyAndLongItsFaults) {
  for (const size_t length : {size_t{10}, size_t{400}, size_t{100'000}}) {
    for (const char letter : {'x', '\n', '%'}) {
      std::vector<FieldError> faults;
      for (int i = 0; i < 50; ++i) {
        faults.push_back({absl::StrCat("field", i), std::string(length, letter), "something"});
      }
      const grpc::Status status = ToGrpcStatus(ToStatus(faults));
      EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
      EXPECT_THAT(status.error_message(), HasSubstr("field0"));
      size_t encoded = 0;
      for (const char c : status.error_message())
        encoded += c >= 0x20 && c < 0x7F && c != '%' ? 1 : 3;
      EXPECT_LT(encoded + status.error_details().size() * 4 / 3, 7100U) << length;
      google::rpc::Status rpc;
      ASSERT_TRUE(rpc.ParseFromString(status.error_details()));
      EXPECT_EQ(rpc.message(), status.error_message());
    }
  }
  const grpc::Status plain = ToGrpcStatus(absl::NotFoundError(std::string(9000, 'a')));
  EXPECT_EQ(plain.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_LT(plain.error_message().size(), 2500U);
}

TEST(Json, ThatIsDeepOrHasManyValuesIsRefusedInOnePass) {
  const std::vector<std::string> bad = {std::string(2'000'000, '['), std::string(33, '{'),
                                        absl::StrCat("{\"a\":", std::string(40, '[')),
                                        absl::StrCat("[", std::string(10'001, ','), "]")};
  for (const std::string& text : bad) {
    TrainRequest request;
    const absl::Time begin = absl::Now();
    EXPECT_EQ(ReadJson(text, request).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
  }
  TrainRequest request;
  EXPECT_TRUE(ReadJson("{\"jobId\": \"[[[{{{,,,\\\"[[\"}", request).ok());
  EXPECT_EQ(request.job_id(), "[[[{{{,,,\"[[");
  EXPECT_TRUE(CheckJsonLimits(std::string(32, '['), {}).ok());
}

std::string FaultOf(const std::string& fields, const std::string& version = "1.1") {
  return HeadFault(absl::StrCat("POST /v1/jobs HTTP/", version, "\r\n", fields, "\r\n"));
}

TEST(Framing, ThatCanBeReadInTwoWaysIsRefused) {
  const std::string host = "Host: localhost\r\n";
  EXPECT_EQ(FaultOf(host), "");
  EXPECT_EQ(FaultOf(host + "Content-Length: 12\r\nAccept: a\r\nAccept: b\r\n"), "");
  EXPECT_EQ(FaultOf(host + "Transfer-Encoding: Chunked\r\n"), "");
  EXPECT_EQ(FaultOf("", "1.0"), "");
  for (const std::string& fields : std::vector<std::string>{
           "", "Host : x\r\n", host + host, host + "Content-Length: 1\r\nContent-Length: 1\r\n",
           host + "Content-Length: +1\r\n", host + "Content-Length: 1, 1\r\n",
           host + "Content-Length:\r\n", host + "Content-Length: 9999999999999999999\r\n",
           host + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
           host + "Transfer-Encoding: xchunked\r\n", host + "Transfer-Encoding: gzip, chunked\r\n",
           host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
           host + "Transfer-Encoding: \"chunked\"\r\n", host + "A: b\r\n folded\r\n",
           host + "no colon\r\n", host + ": nameless\r\n", host + "A: b\rc\r\n",
           host + "Authorization: Bearer a\r\nauthorization: Bearer b\r\n"}) {
    EXPECT_NE(FaultOf(fields), "") << fields;
  }
  EXPECT_NE(FaultOf("Transfer-Encoding: chunked\r\n", "1.0"), "");
  EXPECT_NE(HeadFault("GET / HTTP/1.1\nHost: x\n\n"), "");
}

TEST(Framing, FindsTheEndOfAHeadAndOfABadOneAtOnce) {
  EXPECT_EQ(FindHeadEnd("GET / HTTP/1.1\r\n\r\nrest", 0), 18U);
  EXPECT_EQ(FindHeadEnd("GET / HTTP/1.1\r\n\r\n", 17), 18U) << "seen in two pieces";
  EXPECT_EQ(FindHeadEnd("GET / HTTP/1.1\r\nHost:", 0), std::nullopt);
  EXPECT_EQ(FindHeadEnd("GET / HTTP/1.1\nHost:", 0), 15U);
  EXPECT_EQ(FindHeadEnd(absl::string_view("\x16\x03\x01\0", 4), 0), 1U);
}

TEST(HostCheck, KeepsOtherNamesFromADaemonThatAsksNobody) {
  Settings settings;
  settings.http.listen = "127.0.0.1:8080";
  const auto check = [&](const std::string& host) {
    HttpRequest request;
    if (!host.empty()) request.headers["host"] = host;
    return HostCheck(settings).Check(request).ok();
  };
  for (const char* host : {"", "localhost", "LOCALHOST:8080", "localhost.", "127.0.0.1:1",
                           "10.0.0.7", "[::1]:8080", "[fe80::1]"}) {
    EXPECT_TRUE(check(host)) << host;
  }
  for (const char* host : {"evil.example", "evil.example:8080", "127.0.0.1.evil.example",
                           "localhost.evil.example", "127.1", "[evil]"}) {
    EXPECT_FALSE(check(host)) << host;
  }
  settings.http.listen = "box.local:8080";
  settings.auth.tokens_file = "/tokens";
  EXPECT_TRUE(check("train.example.org")) << "a caller without a token gets nothing anyway";
}

using Certificate = std::unique_ptr<X509, void (*)(X509*)>;

Certificate WithNames(const std::vector<std::string>& names) {
  Certificate certificate(X509_new(), &X509_free);
  for (const std::string& name : names) {
    X509_NAME_add_entry_by_NID(
        X509_get_subject_name(certificate.get()), NID_commonName, V_ASN1_UTF8STRING,
        reinterpret_cast<const unsigned char*>(name.data()), static_cast<int>(name.size()), -1, 0);
  }
  return certificate;
}

TEST(CertificateName, IsTheOneCommonNameAndNothingElse) {
  EXPECT_EQ(*NameOfCertificate(*WithNames({"carol"})), "carol");
  EXPECT_EQ(*NameOfCertificate(*WithNames({"J\xc3\xbcrgen"})), "J\xc3\xbcrgen");
  const std::string nul("boss\0.evil.example", 18);
  for (const auto& names : std::vector<std::vector<std::string>>{
           {}, {nul}, {"carol", "boss"}, {"boss\n"}, {"boss\x7f"}, {"boss\xe2\x80\xae"}}) {
    EXPECT_EQ(NameOfCertificate(*WithNames(names)).status().code(),
              absl::StatusCode::kUnauthenticated);
  }
  EXPECT_FALSE(NameOfPemCertificate("no certificate").ok());
}

class SilentWatch final : public QuietStream {
 public:
  void CheckAdmission() override { ++checks; }
  int checks = 0;
};

TEST(OpenWatches, AreBoundedForEachCallerOverHttpAndInAll) {
  OpenWatches watches;
  std::vector<std::shared_ptr<SilentWatch>> open;
  const auto add = [&](const std::string& caller, const std::string& protocol) {
    auto watch = std::make_shared<SilentWatch>();
    absl::Status status = watches.Open(watch, caller, protocol);
    if (status.ok()) open.push_back(watch);
    return status;
  };
  for (int i = 0; i < OpenWatches::kMaxOverHttp; ++i) EXPECT_TRUE(add("ann", "http").ok());
  EXPECT_THAT(std::string(add("bob", "http").message()), HasSubstr("128 watches over HTTP"));
  while (open.size() < OpenWatches::kMaxOfCaller) ASSERT_TRUE(add("ann", "grpc").ok());
  EXPECT_THAT(std::string(add("ann", "grpc").message()), HasSubstr("512 watches of \"ann\""));
  EXPECT_TRUE(add("bob", "grpc").ok());
  for (int i = 0; open.size() < OpenWatches::kMax; ++i) {
    ASSERT_TRUE(add(absl::StrCat("caller", i % 9), "grpc").ok());
  }
  EXPECT_EQ(add("zoe", "grpc").code(), absl::StatusCode::kResourceExhausted);
  watches.CheckAdmissions();
  EXPECT_EQ(open.front()->checks, 1);
  for (const auto& each : open) watches.Close(each.get());
  EXPECT_TRUE(add("ann", "http").ok());
}

}  // namespace
}  // namespace genesis
