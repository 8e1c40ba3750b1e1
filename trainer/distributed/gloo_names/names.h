#pragma once

#include <chrono>
#include <string>
#include <vector>

// Declares Gloo's types that c10d's ProcessGroupGloo.hpp mentions. LibTorch contains Gloo without
// its headers, and those of another release differ in layout. Objects of these types can therefore
// be neither created nor accessed: code that tries does not link.
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
