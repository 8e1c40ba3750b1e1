#include "server/http/accept.h"

#include <gtest/gtest.h>
#include <zlib.h>

namespace genesis {
namespace {

TEST(Accept, OpenMetricsIsForWhoNamesIt) {
  // The Accept headers of Prometheus 2.42 and 2.53.
  EXPECT_TRUE(
      PrefersOpenMetrics("application/openmetrics-text;version=1.0.0,"
                         "application/openmetrics-text;version=0.0.1;q=0.75,"
                         "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"));
  EXPECT_TRUE(PrefersOpenMetrics("Application/OpenMetrics-Text; Version=1.0.0"));
  EXPECT_TRUE(PrefersOpenMetrics("application/openmetrics-text, text/plain"));
}

TEST(Accept, AnythingElseIsText) {
  EXPECT_FALSE(PrefersOpenMetrics(""));
  EXPECT_FALSE(PrefersOpenMetrics("*/*"));
  EXPECT_FALSE(PrefersOpenMetrics("text/html,application/xhtml+xml,*/*;q=0.8"));
  EXPECT_FALSE(PrefersOpenMetrics("application/openmetrics-text;q=0"));
  EXPECT_FALSE(PrefersOpenMetrics("application/openmetrics-text;q=none"));
  EXPECT_FALSE(PrefersOpenMetrics("application/openmetrics-text;version=0.0.1"));
  EXPECT_FALSE(PrefersOpenMetrics("application/openmetrics-text;q=0.4,text/plain;q=0.5"));
  EXPECT_FALSE(PrefersOpenMetrics(";;;,,=;q"));
}

TEST(Accept, GzipIsForWhoTakesIt) {
  EXPECT_TRUE(AcceptsGzip("gzip"));
  EXPECT_TRUE(AcceptsGzip("deflate, GZIP;q=0.5"));
  EXPECT_TRUE(AcceptsGzip("*"));
  EXPECT_FALSE(AcceptsGzip(""));
  EXPECT_FALSE(AcceptsGzip("br, deflate"));
  EXPECT_FALSE(AcceptsGzip("gzip;q=0"));
  EXPECT_FALSE(AcceptsGzip("gzip;q=0, *"));
  EXPECT_FALSE(AcceptsGzip("identity, *;q=0"));
}

std::string Gunzip(const std::string& compressed, size_t most) {
  std::string body(most, '\0');
  z_stream stream{};
  EXPECT_EQ(inflateInit2(&stream, 15 + 16), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(compressed.data()));
  stream.avail_in = static_cast<uInt>(compressed.size());
  stream.next_out = reinterpret_cast<Bytef*>(body.data());
  stream.avail_out = static_cast<uInt>(body.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  body.resize(stream.total_out);
  inflateEnd(&stream);
  return body;
}

TEST(Accept, WhatIsCompressedIsWhatItWas) {
  std::string body;
  for (int i = 0; i < 5000; ++i)
    body += "genesis_jobs{state=\"running\"} " + std::to_string(i) + "\n";
  for (const std::string& each : {body, std::string(), std::string("a")}) {
    const std::optional<std::string> compressed = Gzip(each);
    ASSERT_TRUE(compressed.has_value());
    EXPECT_EQ(Gunzip(*compressed, each.size() + 1), each);
  }
  EXPECT_LT(Gzip(body)->size(), body.size() / 4);
}

}  // namespace
}  // namespace genesis
