#pragma once

#include <string>
#include <vector>

namespace genesis {

// Readers of setting values that several rows of the table share. Each stores what was typed and
// returns "", or what is accepted when it is not.

// "host:port"; who may listen where is decided when all settings are known.
std::string SetAddress(const std::string& text, std::string& address);
// Empty is accepted only where it means something: a default worked out, or none.
std::string SetPath(const std::string& text, bool may_be_empty, std::string& path);
std::string SetInt(const std::string& text, int min, int max, int& number);
std::string SetBool(const std::string& text, bool& value);
std::string SetWord(const std::string& text, const std::vector<std::string>& words,
                    std::string& word);
// Permission bits of a file, in octal, such as 0600.
std::string SetMode(const std::string& text, int& mode);

}  // namespace genesis
