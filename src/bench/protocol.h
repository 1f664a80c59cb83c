// How things are measured so that the figures can be trusted.
//
// Every repetition of a configuration is a process of its own. Configurations take turns, A B A B, so that a machine
// that drifts slows all of them. Before each process the machine may come to rest; a process that another one disturbed
// is run again. It goes on until the figures repeat.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "bench/figures.h"
#include "bench/record.h"
#include "bench/watched_child.h"

namespace kazeia::bench {

struct Configuration {
  std::string label;                 // "tiles", "upstream"
  std::vector<std::string> command;  // the program's path first
  std::vector<std::string> warm_up;  // run once before everything, its samples are not used; empty: none
};

struct ProtocolOptions {
  int least_repetitions = 3;
  int most_repetitions = 6;
  // Of every figure but energy, which a battery's gauge rounds as it likes.
  double most_variation = 0.05;
  double most_foreign_cpu = 0.25;  // of one core
  int most_retries = 2;            // of one disturbed repetition
  double most_cool_down_s = 30;    // before each process; 0 = none
  double most_warmer_c = 5;        // than when the measurement began
  // Of a measurement that this one goes on with: "when the measurement began". 0 = this one's own beginning.
  double first_temperature_c = 0;
  // Before each process, ahead of the cool-down; may be empty.
  std::function<void()> prepare;
};

// For progress; any may be empty.
struct ProtocolEvents {
  std::function<void(int repetition)> on_repetition;  // from 0
  std::function<void(const std::string& label, const std::string& name, double value)> on_sample;
  std::function<void(const std::string& sentence)> on_remark;  // without its period
};

struct Side {
  std::string label;
  SampleTable samples;  // rows of the same length, one sample a repetition
  std::map<std::string, std::string> facts;
};

struct Measurement {
  std::vector<Side> sides;  // in the order of the configurations
  int repetitions = 0;
  std::vector<MachineMoment> moments;  // before and of each process that counted
  // Not empty if a repetition stayed disturbed: "other processes used 0.8 cores during decode_0".
  std::string disturbance;
  // The figure that varied most, and by how much.
  std::string noisiest;
  double worst_variation = 0;
};

// "other processes used 0.8 cores during decode_0"
std::string sentence(const Interference& interference);

// Errors: those of the children, within their label; kCancelled. A figure that not every repetition has is left out,
// with a remark. Once a repetition has stayed disturbed none is repeated any more, and the least number of them is
// enough: the result is spoilt already.
Result<Measurement> measure(const std::vector<Configuration>& configurations, const ProtocolOptions& options,
                            const MeasuringSeams& seams, const ProtocolEvents& events, const CancelFlag* cancel);

}  // namespace kazeia::bench
