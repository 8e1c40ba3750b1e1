// Tests of webhooks without a network: signatures, addresses, webhooks.file, attempts.
#include <arpa/inet.h>
#include <sys/stat.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/webhooks/delivery.h"
#include "server/webhooks/endpoints.h"
#include "server/webhooks/public_address.h"
#include "server/webhooks/signature.h"
#include "tests/server/jobs_for_test.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// The example of the specification's libraries.
constexpr char kSecret[] = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

TEST(WebhookSignatureTest, IsThatOfTheStandardsExample) {
  EXPECT_EQ(SignWebhook(*ParseWebhookSecret(kSecret), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330,
                        R"({"test": 2432232314})"),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

TEST(WebhookSignatureTest, RefusesOtherSecrets) {
  for (const char* secret : {"", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_", "whsec_MfKQ",
                             "whsec_no base64 no base64 no base64"}) {
    EXPECT_FALSE(ParseWebhookSecret(secret)) << secret;
  }
  EXPECT_FALSE(ParseWebhookSecret("whsec_" + std::string(88, 'A'))) << "66 bytes";
}

bool IsPublic(const std::string& address) {
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  if (inet_pton(AF_INET, address.c_str(), &v4.sin_addr) == 1) {
    EXPECT_EQ(AddressText(reinterpret_cast<const sockaddr&>(v4)), address);
    return IsPublicAddress(reinterpret_cast<const sockaddr&>(v4));
  }
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  EXPECT_EQ(inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr), 1) << address;
  return IsPublicAddress(reinterpret_cast<const sockaddr&>(v6));
}

TEST(PublicAddressTest, IsNoneOfTheSpecialPurposeRegistries) {
  for (const char* address : {"8.8.8.8", "1.1.1.1", "172.15.255.255", "172.32.0.1",
                              "100.63.255.255", "100.128.0.1", "169.253.1.1", "223.255.255.255",
                              "2606:4700::1111", "2a00:1450:4001::8a", "2001:4860:4860::8888"}) {
    EXPECT_TRUE(IsPublic(address)) << address;
  }
  for (const char* address : {"0.0.0.0",
                              "10.1.2.3",
                              "100.64.0.1",
                              "127.0.0.1",
                              "127.255.255.255",
                              "169.254.169.254",
                              "172.16.0.1",
                              "172.31.255.255",
                              "192.168.1.1",
                              "198.18.0.1",
                              "224.0.0.1",
                              "255.255.255.255",
                              "::",
                              "::1",
                              "::ffff:8.8.8.8",
                              "::ffff:127.0.0.1",
                              "64:ff9b::7f00:1",
                              "fd00::1",
                              "fe80::1",
                              "ff02::1",
                              "2002:7f00:1::",
                              "2001:0:7f00:1::",
                              "2001:db8::1"}) {
    EXPECT_FALSE(IsPublic(address)) << address;
  }
  const sockaddr other = {.sa_family = AF_UNIX, .sa_data = {}};
  EXPECT_FALSE(IsPublicAddress(other));
}

StoredDelivery Stored(int attempts = 0) {
  StoredDelivery stored{
      .number = 1, .endpoint = "chat", .create_time = absl::Now(), .attempts = attempts};
  stored.event = TextEvent("a", "changed");
  stored.event.set_sequence(7);
  return stored;
}

// No connection is opened, so these need no network.
TEST(DeliveryTest, ConnectsToPublicAddressesOnly) {
  for (const char* url :
       {"https://127.0.0.1:9/hook", "https://localhost:9/",
        "https://169.254.169.254/latest/meta-data/", "https://10.0.0.1/", "https://192.168.0.1/",
        "https://0.0.0.0:9/", "https://2130706433/", "https://0x7f.1/", "https://017700000001/",
        "https://100.100.100.200/", "https://[::1]:9/", "https://[::ffff:127.0.0.1]:9/",
        "https://[fd00:ec2::254]/"}) {
    WebhookEndpoint endpoint{.name = "chat", .url = url, .origin = url, .key = "key"};
    Delivery delivery(endpoint, Stored(), absl::Now());
    const CURLcode code = curl_easy_perform(delivery.handle());
    const WebhookAttempt attempt = delivery.Finish(code, absl::Now(), 0.5);
    EXPECT_FALSE(attempt.delivered) << url;
    EXPECT_THAT(attempt.error, HasSubstr("is not public; name another, or set allow_private: true"))
        << url;
  }
}

TEST(DeliveryTest, SpeaksNoOtherProtocol) {
  for (const char* url : {"http://127.0.0.1:9/", "file:///etc/passwd", "gopher://127.0.0.1:9/"}) {
    WebhookEndpoint endpoint{.name = "chat", .url = url, .key = "key"};
    Delivery delivery(endpoint, Stored(), absl::Now());
    EXPECT_EQ(curl_easy_perform(delivery.handle()), CURLE_UNSUPPORTED_PROTOCOL) << url;
  }
}

TEST(NextAttemptTest, DoublesUpToTwoHoursForADay) {
  StoredDelivery stored = Stored();
  const absl::Time now = stored.create_time;
  const auto delay = [&](int attempts, double random = 0.5,
                         absl::Duration retry_after = absl::ZeroDuration()) {
    stored.attempts = attempts;
    return *NextAttempt(stored, now, retry_after, random) - now;
  };
  EXPECT_EQ(delay(0), absl::Seconds(5));
  EXPECT_EQ(delay(1), absl::Seconds(10));
  EXPECT_EQ(delay(5), absl::Seconds(160));
  EXPECT_EQ(delay(11), absl::Hours(2));
  EXPECT_EQ(delay(10000), absl::Hours(2));
  EXPECT_EQ(delay(0, 0), absl::Seconds(4));
  EXPECT_EQ(delay(0, 1), absl::Seconds(6));
  EXPECT_EQ(delay(0, 0.5, absl::Minutes(3)), absl::Minutes(3));
  EXPECT_EQ(delay(3, 0.5, absl::Seconds(1)), absl::Seconds(40)) << "not sooner than without";
  EXPECT_EQ(delay(0, 0.5, absl::Hours(5)), absl::Hours(5));
  EXPECT_EQ(delay(0, 0.5, absl::Hours(1000)), absl::Hours(24));
  stored.attempts = 20;
  EXPECT_TRUE(NextAttempt(stored, now + absl::Hours(21), absl::ZeroDuration(), 1));
  EXPECT_FALSE(NextAttempt(stored, now + absl::Hours(23), absl::ZeroDuration(), 1));
}

TEST(EventTypeTest, IsTheNewStateOrTheKind) {
  training::v1::JobEvent event;
  event.mutable_state_changed()->set_to(training::v1::JOB_STATE_FAILED);
  EXPECT_EQ(EventType(event), "job.failed");
  event.mutable_checkpoint_written();
  EXPECT_EQ(EventType(event), "job.checkpoint_written");
}

std::string Entry(const std::string& name, const std::string& more = "") {
  return absl::StrCat("- name: ", name,
                      "\n  url: https://example.org/hook?token=hidden\n  secret: ", kSecret, "\n",
                      more);
}

TEST(WebhooksFileTest, HasEndpointsWithDefaults) {
  const auto endpoints = ParseWebhooks(
      absl::StrCat("endpoints:\n", Entry("chat"),
                   Entry("pager",
                         "  events: [job.failed, job.incident]\n  owner: ann\n"
                         "  labels: {team: red, urgent: ''}\n  allow_private: true\n")),
      "w");
  ASSERT_TRUE(endpoints.ok()) << endpoints.status();
  ASSERT_EQ(endpoints->size(), 2U);
  EXPECT_EQ((*endpoints)[0].origin, "https://example.org");
  EXPECT_EQ((*endpoints)[0].key, *ParseWebhookSecret(kSecret));
  EXPECT_FALSE((*endpoints)[0].allow_private);
  EXPECT_THAT((*endpoints)[0].types,
              ElementsAre("job.cancelled", "job.checkpoint_written", "job.failed", "job.incident",
                          "job.precision_changed", "job.succeeded"));
  EXPECT_THAT((*endpoints)[1].types, ElementsAre("job.failed", "job.incident"));
  EXPECT_EQ((*endpoints)[1].filter.owner, "ann");
  EXPECT_EQ((*endpoints)[1].filter.labels.at("team"), "red");
  EXPECT_EQ((*endpoints)[1].filter.labels.at("urgent"), "");
  EXPECT_TRUE((*endpoints)[1].allow_private);
  EXPECT_TRUE(ParseWebhooks("endpoints: []\n", "w")->empty());
  EXPECT_TRUE(LoadWebhooks("")->empty());
}

TEST(WebhooksFileTest, TellsEveryFaultWithItsLineAndNoSecret) {
  const std::string text =
      "endpoints:\n"
      "- name: a b\n  url: ftp://example.org/hidden\n  secret: whsec_hidden\n"
      "- name: c\n  url: http://example.org/hidden\n  secret_file: /nowhere/s\n  event: []\n"
      "- name: d\n  url: https://me:hidden@example.org/\n  events: [failed]\n  allow_private: "
      "yes\n";
  const absl::Status status = ParseWebhooks(text, "w").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  const std::string message(status.message());
  for (const char* part :
       {"w:2:9: endpoints[0].name is \"a b\"; accepted: 1 to 63 letters",
        "w:3:8: endpoints[0].url is not usable; accepted: an address such as https://",
        "w:4:11: endpoints[0].secret is not a secret; accepted: whsec_ and the base64",
        "w:6:8: endpoints[1].url is not usable", "/nowhere/s: no such file; check the path",
        "endpoints[1] is a group with the key \"event\"; accepted: name, url",
        "endpoints[2].secret is missing; accepted: one of secret and secret_file",
        "endpoints[2].events is \"failed\"; accepted: job.cancelled",
        "endpoints[2].allow_private is \"yes\"; accepted: true or false"}) {
    EXPECT_THAT(message, HasSubstr(part));
  }
  EXPECT_THAT(message, Not(HasSubstr("hidden")));
}

TEST(WebhooksFileTest, RefusesOtherForms) {
  std::string many = "endpoints:\n";
  for (int i = 0; i < 17; ++i) many += Entry(absl::StrCat("e", i));
  for (const std::string& text :
       {std::string(), std::string("- a\n"), std::string("endpoints: 3\n"),
        std::string("hooks: []\n"), std::string("endpoints: []\nmore: 1\n"), many,
        std::string("endpoints: [3]\n"), "endpoints:\n" + Entry("twice") + Entry("twice"),
        "endpoints:\n" + Entry("a", "  owner: ann\n  owner: bob\n")}) {
    const absl::Status status = ParseWebhooks(text, "w").status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("accepted: ")) << text;
  }
}

TEST(WebhooksFileTest, IsRefusedIfOthersMayReadIt) {
  const TempDir temp;
  const std::string path = temp.path() + "/webhooks.yaml";
  std::ofstream(path) << "endpoints: []\n";
  chmod(path.c_str(), 0644);
  EXPECT_THAT(std::string(LoadWebhooks(path).status().message()),
              HasSubstr("webhooks.file: " + path + ": has mode 0644"));
  chmod(path.c_str(), 0600);
  EXPECT_TRUE(LoadWebhooks(path).ok());
}

}  // namespace
}  // namespace genesis
