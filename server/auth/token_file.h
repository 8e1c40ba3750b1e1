#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "config/settings/token.h"
#include "server/auth/caller.h"

namespace genesis {

// The entries of the tokens file. A line each, empty lines and those that begin with '#' aside:
//   NAME ROLE sha256:<salt>:<digest>   whoever has that token is NAME
//   cn:NAME ROLE                       a verified client certificate with that common name
// Several tokens may have one name, so that one can be replaced without a pause.
struct TokenFile {
  struct Token {
    std::string name;
    Role role;
    TokenHash hash;
  };
  struct Certificate {
    std::string common_name;
    Role role;
  };
  std::vector<Token> tokens;
  std::vector<Certificate> certificates;
};

// INVALID_ARGUMENT with every fault, a line each, that begins "<path>:<line>: ". Messages name no
// hash.
absl::StatusOr<TokenFile> ParseTokenFile(const std::string& text, const std::string& path);

// Reads and parses; as ReadSecretFile refuses a file that others may read.
absl::StatusOr<TokenFile> LoadTokenFile(const std::string& path);

}  // namespace genesis
