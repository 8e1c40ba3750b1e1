#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "base/files/memory_file.h"
#include "base/files/memory_socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace genesis {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(60);

struct Pair {
  MemorySocket left;
  MemorySocket right;
};

Pair ConnectedPair(absl::Duration timeout = kTimeout) {
  std::array<int, 2> ends = {};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
  return {MemorySocket(ends[0], timeout), MemorySocket(ends[1], timeout)};
}

std::unique_ptr<MemoryFile> Sealed(const std::string& content) {
  auto file = MemoryFile::Create();
  EXPECT_TRUE(file.ok());
  EXPECT_TRUE((*file)->Write(content.data(), content.size()).ok());
  EXPECT_TRUE((*file)->Seal().ok());
  return *std::move(file);
}

TEST(MemoryTest, ASealedFileHasItsContentAndNoProcessChangesIt) {
  const auto file = Sealed("weights");
  EXPECT_EQ(file->content(), "weights");
  EXPECT_EQ(write(file->descriptor(), "x", 1), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(ftruncate(file->descriptor(), 1), -1);
  EXPECT_EQ(errno, EPERM);
}

TEST(MemoryTest, AFileThatMayChangeIsRefused) {
  const auto file = MemoryFile::Create();
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->Write("x", 1).ok());
  const auto opened = MemoryFile::Open(dup((*file)->descriptor()));
  EXPECT_THAT(opened.status().message(), HasSubstr("is not sealed; accepted: a file of memfd"));
}

TEST(MemoryTest, AMessagePassesWithTheDescriptorOfAFile) {
  Pair pair = ConnectedPair();
  const auto file = Sealed("weights");
  // More than a socket buffers.
  const std::string text(size_t{1} << 20, 'm');
  std::thread sender([&] { EXPECT_TRUE(pair.left.Send(text, file->descriptor()).ok()); });
  const auto received = pair.right.Receive();
  sender.join();
  ASSERT_TRUE(received.ok()) << received.status();
  EXPECT_EQ(received->bytes, text);
  const auto opened = MemoryFile::Open(received->descriptor);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*opened)->content(), "weights");
}

TEST(MemoryTest, AnEmptyMessagePassesWithoutADescriptor) {
  Pair pair = ConnectedPair();
  ASSERT_TRUE(pair.left.Send("").ok());
  const auto received = pair.right.Receive();
  ASSERT_TRUE(received.ok()) << received.status();
  EXPECT_EQ(received->bytes, "");
  EXPECT_EQ(received->descriptor, -1);
}

TEST(MemoryTest, ASilentAndALongWindedPeerAreErrors) {
  Pair silent = ConnectedPair(absl::Milliseconds(1));
  EXPECT_EQ(silent.right.Receive().status().code(), absl::StatusCode::kDeadlineExceeded);
  std::array<int, 2> ends = {};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  const uint32_t length = MemorySocket::kMaxMessageBytes + 1;
  ASSERT_EQ(write(ends[0], &length, sizeof(length)), static_cast<ssize_t>(sizeof(length)));
  MemorySocket socket(ends[1], kTimeout);
  EXPECT_THAT(socket.Receive().status().message(), HasSubstr("accepted: at most 67108864"));
  close(ends[0]);
}

}  // namespace
}  // namespace genesis
