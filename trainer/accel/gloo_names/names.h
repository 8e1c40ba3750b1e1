#pragma once

#include <chrono>
#include <string>
#include <vector>

// The names of Gloo's types that c10d's ProcessGroupGloo.hpp mentions. LibTorch holds Gloo and does
// not ship its headers; those of another release differ in layout. So nothing here can be made or
// looked into: what would try does not link.
namespace gloo {

class Context {
 public:
  Context() = delete;
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace rendezvous {

class Store {
 public:
  Store();
  virtual ~Store();
  virtual void set(const std::string& key, const std::vector<char>& value) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
  virtual void wait(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys,
                    const std::chrono::milliseconds& timeout) = 0;
};

}  // namespace rendezvous

namespace transport {

class Device;
class UnboundBuffer;

}  // namespace transport
}  // namespace gloo
