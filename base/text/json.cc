#include "base/text/json.h"

namespace genesis {

std::string PrintJson(const Json& value) {
  constexpr int kIndent = 2;
  return value.dump(kIndent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

}  // namespace genesis
