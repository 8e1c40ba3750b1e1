#pragma once

#include <vector>

#include "base/text/field_error.h"
#include "config/settings/settings.h"

namespace genesis {

// Adds what is wrong with settings that are each fine alone: two servers on one port, half of TLS,
// an address that others reach where nobody is asked who calls.
void CheckConflicts(const Settings& settings, std::vector<FieldError>& errors);

}  // namespace genesis
