#include "trainer/distributed/slurm_lists.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace genesis {

std::string FirstHost(const std::string& list) {
  const size_t open = list.find('[');
  const size_t comma = list.find(',');
  if (open == std::string::npos || comma < open) return list.substr(0, comma);
  const size_t close = list.find(']', open);
  if (close == std::string::npos) return "";
  const std::string numbers = list.substr(open + 1, close - open - 1);
  // "cn[1-2]-ib,cn5": the text after the bracket belongs to the name.
  const size_t end = list.find(',', close);
  const size_t length = end == std::string::npos ? end : end - close - 1;
  return absl::StrCat(list.substr(0, open), numbers.substr(0, numbers.find_first_of(",-")),
                      list.substr(close + 1, length));
}

int TasksOfNode(const std::string& list, int node) {
  for (absl::string_view group : absl::StrSplit(list, ',')) {
    int hosts = 1;
    int tasks = 0;
    const size_t times = group.find("(x");
    if (times != absl::string_view::npos) {
      const absl::string_view count = absl::StripSuffix(group.substr(times + 2), ")");
      if (!absl::SimpleAtoi(count, &hosts) || hosts < 1) return 1;
    }
    if (!absl::SimpleAtoi(group.substr(0, times), &tasks) || tasks < 1) return 1;
    if (node < hosts) return tasks;
    node -= hosts;
  }
  return 1;
}

}  // namespace genesis
