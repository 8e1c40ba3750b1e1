#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "config/settings/token.h"
#include "server/auth/caller.h"

namespace genesis {

// The entries of the tokens file, one per line. Empty lines and lines that begin with '#' are
// ignored.
//   NAME ROLE sha256:<salt>:<digest>   the bearer of that token is NAME
//   cn:NAME ROLE                       a verified client certificate with that common name
//   jwt:NAME ROLE                      a verified JWT of that subject
// Several tokens may have the same name, so that a token can be replaced without an interruption.
struct TokenFile {
  struct Token {
    std::string name;
    Role role;
    TokenHash hash;
  };
  struct Named {
    std::string name;
    Role role;
  };
  std::vector<Token> tokens;
  std::vector<Named> certificates;
  std::vector<Named> jwts;
};

// Parses the file. INVALID_ARGUMENT with every error, one per line, each prefixed by
// "<path>:<line>: ". Error messages contain no hash.
absl::StatusOr<TokenFile> ParseTokenFile(const std::string& text, const std::string& path);

// Reads and parses the file. Like ReadSecretFile, refuses a file that other users may read.
absl::StatusOr<TokenFile> LoadTokenFile(const std::string& path);

}  // namespace genesis
