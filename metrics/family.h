#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "metrics/catalogue.h"

namespace genesis {

// All series of one metric of the catalogue. A series is created at its first use. Label names,
// help and buckets come from the catalogue; callers pass only the label values, in its order.
// Owner: Metrics. Thread-safe, as prometheus-cpp's families are. The constructor throws
// std::logic_error if the name is not in the catalogue or has another kind.
template <typename T>
class MetricFamily {
 public:
  MetricFamily(prometheus::Registry& registry, const std::string& deployment,
               const std::string& name)
      : info_(Entry(name)), family_(Register(registry, deployment, info_)) {}

  T& With(std::initializer_list<std::string> label_values) {
    const prometheus::Labels labels = LabelsOf(label_values);
    if constexpr (std::is_same_v<T, prometheus::Histogram>) {
      return family_.Add(labels, info_.buckets);
    } else {
      return family_.Add(labels);
    }
  }

  // Removes the series, so that it is no longer exported.
  void Remove(T& series) { family_.Remove(&series); }

  // Sets a gauge, or removes its series if `value` is unset. Call from one thread at a time.
  template <typename Number>
  void Put(std::initializer_list<std::string> label_values, std::optional<Number> value) {
    if (value.has_value()) {
      With(label_values).Set(static_cast<double>(*value));
    } else if (family_.Has(LabelsOf(label_values))) {
      Remove(With(label_values));
    }
  }

 private:
  prometheus::Labels LabelsOf(std::initializer_list<std::string> label_values) const {
    prometheus::Labels labels;
    auto name = info_.labels.begin();
    for (const std::string& value : label_values) labels.emplace(*name++, value);
    return labels;
  }

  static const MetricInfo& Entry(const std::string& name) {
    const MetricInfo* info = FindMetric(name);
    constexpr MetricKind kKind = std::is_same_v<T, prometheus::Counter> ? MetricKind::kCounter
                                 : std::is_same_v<T, prometheus::Gauge> ? MetricKind::kGauge
                                                                        : MetricKind::kHistogram;
    if (info == nullptr || info->kind != kKind) {
      throw std::logic_error("metrics/catalogue.cc does not list " + name + " as this kind");
    }
    return *info;
  }

  static prometheus::Family<T>& Register(prometheus::Registry& registry,
                                         const std::string& deployment, const MetricInfo& info) {
    return prometheus::detail::Builder<T>()
        .Name(info.name)
        .Help(info.help)
        .Labels({{"deployment", deployment}})
        .Register(registry);
  }

  const MetricInfo& info_;
  prometheus::Family<T>& family_;
};

}  // namespace genesis
