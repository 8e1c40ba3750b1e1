#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <string>

namespace genesis {

// Can violate HTTP: sends any bytes and reads any response. Each read blocks for at most 20 s.
class HttpClient {
 public:
  explicit HttpClient(int port) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval limit{.tv_sec = 20, .tv_usec = 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~HttpClient() { close(socket_); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  bool connected() const { return connected_; }

  void Send(const std::string& bytes) const {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t n = send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<size_t>(n);
    }
  }

  // Reads until the server closes the connection.
  std::string ReadAll() const {
    std::string all;
    while (ReadSome(all)) {
    }
    return all;
  }

  // Reads until `end` has been received.
  std::string ReadUntil(const std::string& end) const {
    std::string all;
    while (all.find(end) == std::string::npos && ReadSome(all)) {
    }
    return all;
  }

 private:
  bool ReadSome(std::string& all) const {
    char bytes[4096];
    const ssize_t n = recv(socket_, bytes, sizeof(bytes), 0);
    if (n > 0) all.append(bytes, static_cast<size_t>(n));
    return n > 0;
  }

  int socket_;
  bool connected_ = false;
};

// Sends one request on a new connection and returns the whole response.
inline std::string HttpExchange(int port, const std::string& method, const std::string& target) {
  const HttpClient client(port);
  client.Send(method + " " + target + " HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
  return client.ReadAll();
}

}  // namespace genesis
