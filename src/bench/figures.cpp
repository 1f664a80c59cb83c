#include "bench/figures.h"

#include <algorithm>
#include <string_view>

#include "bench/statistics.h"

namespace kazeia::bench {

Figure make_figure(const std::string& name, std::vector<double> samples, const std::string& prefix) {
  const std::string_view view(name);
  Figure figure;
  figure.name = prefix + name;
  figure.samples = std::move(samples);
  figure.unit = "tok/s";
  const auto lower_is_better = [&figure](const char* unit) {
    figure.unit = unit;
    figure.higher_is_better = false;
  };
  if (view.starts_with("energy_")) {
    lower_is_better("J/tok");
  } else if (view.ends_with("_ms")) {
    lower_is_better("ms");
  } else if (view.ends_with("_bytes")) {
    lower_is_better("bytes");
  }
  summarise(figure);
  return figure;
}

Figure make_ratio(const std::string& name, const Figure& a, const Figure& b) {
  Figure ratio;
  ratio.name = "ratio_" + name;
  ratio.unit = "ratio";
  ratio.higher_is_better = a.higher_is_better;
  for (std::size_t i = 0; i < std::min(a.samples.size(), b.samples.size()); ++i) {
    if (b.samples[i] != 0) ratio.samples.push_back(a.samples[i] / b.samples[i]);
  }
  summarise(ratio);
  return ratio;
}

void SampleTable::add(const std::string& name, double value) {
  const auto found = std::find_if(rows_.begin(), rows_.end(), [&](const auto& row) { return row.first == name; });
  if (found != rows_.end()) {
    found->second.push_back(value);
  } else {
    rows_.push_back({name, {value}});
  }
}

const std::vector<double>* SampleTable::find(const std::string& name) const {
  const auto found = std::find_if(rows_.begin(), rows_.end(), [&](const auto& row) { return row.first == name; });
  return found == rows_.end() ? nullptr : &found->second;
}

}  // namespace kazeia::bench
