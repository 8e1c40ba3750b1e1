#pragma once

#include <vector>

#include "base/text/field_error.h"
#include "config/settings/settings.h"

namespace genesis {

// Adds conflicts between settings that are valid by themselves, such as two servers on one port,
// TLS with only one of its files, or an address open to other hosts without authentication.
void CheckConflicts(const Settings& settings, std::vector<FieldError>& errors);

}  // namespace genesis
